"""The engines by name: one place that opens and builds whichever was asked for.

`auto` is ours and picks its kernel by catalogue size; `numpy` and `numba` are ours with a fixed kernel; `lucene` is the
reference. All answer with the same pages. The first three share one kind of index, Lucene has its own.
"""

from __future__ import annotations

from pathlib import Path
from typing import cast

from foundation.errors import ArenaError
from foundation.progress import Progress, no_progress
from harness.catalogue.build import BuildReport, build_index
from harness.catalogue.lucene import LuceneCatalogue, build_lucene_index, open_lucene_catalogue
from harness.catalogue.native import Engine, Kernel, open_catalogue

ENGINES = ("auto", "numpy", "numba", "lucene")


def open_engine(name: str, path: Path, *, is_fully_checked: bool = False) -> Engine | LuceneCatalogue:
    """Open the index at `path` with the engine of that name.

    Raises ArenaError V2030 for an unknown name, V2060 when the engine's packages are missing (the text says what to
    install), V2010 when there is no such index or it is broken.
    """
    _check_name(name)
    if name == "lucene":
        return open_lucene_catalogue(path, is_fully_checked=is_fully_checked)
    try:
        return open_catalogue(path, is_fully_checked=is_fully_checked, kernel=cast(Kernel, name))
    except ImportError as error:
        raise ArenaError("V2060", f"{error}; install with: pip install numba, or choose numpy") from error


def build_engine(
    name: str, documents: Path, target: Path, *, is_strict: bool = False, progress: Progress = no_progress
) -> BuildReport:
    """Build the index that the engine of that name opens. Raises like `build_index`, and V2030, V2060."""
    _check_name(name)
    if name == "lucene":
        return build_lucene_index(documents, target, progress, is_strict=is_strict)
    return build_index(documents, target, is_strict=is_strict, progress=progress)


def _check_name(name: str) -> None:
    if name not in ENGINES:
        raise ArenaError("V2030", f"engine {name!r} is unknown; one of {', '.join(ENGINES)}")
