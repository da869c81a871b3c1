"""Where a node's batches and catalogues lie, for explaining results on raced problems to people."""

from __future__ import annotations

import os
from pathlib import Path

from arena.bank.batch import BatchExplainer
from foundation.errors import ArenaError
from problems.score import ProductOf


def link_catalogue(state_dir: Path, catalogue: Path, together: Path) -> None:
    """Let a state folder know a catalogue that lies elsewhere. Where it lies in `together`, a folder around both, the
    link is the way from one to the other, and holds when that folder is moved. Raises OSError."""
    beside, target = (state_dir / "catalogues").resolve(), catalogue.resolve()
    beside.mkdir()
    is_near = target.is_relative_to(together.resolve())
    (beside / catalogue.name).symlink_to(os.path.relpath(target, beside) if is_near else target)


def open_explainer(state_dir: Path, catalogue: Path | None = None) -> BatchExplainer:
    """Explains from the batches in a state folder, over `catalogue` (an index folder) and those beside them. Opens
    nothing yet."""
    opened: dict[str, ProductOf] = {}

    def products_of(catalogue_sha256: str) -> ProductOf | None:
        from harness.catalogue.layout import read_manifest
        from harness.catalogue.native import open_catalogue

        folders = [*([catalogue] if catalogue else []), *sorted((state_dir / "catalogues").glob("*/"))]
        for folder in folders if catalogue_sha256 not in opened else ():
            try:
                if read_manifest(folder).content_sha256 == catalogue_sha256:
                    opened[catalogue_sha256] = open_catalogue(folder, kernel="numpy").product
                    break
            except (ArenaError, OSError):  # no index, or one of another release
                continue
        return opened.get(catalogue_sha256)

    return BatchExplainer(state_dir / "bank", products_of)
