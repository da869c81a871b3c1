"""What a generation's race came to, as it is kept beside its corpus and in the row's result."""

from __future__ import annotations

from pathlib import Path

import msgspec

COUNTS = "counts.json"


class GenerationCounts(msgspec.Struct, frozen=True, kw_only=True):
    """`racer` is the row whose checkpoint raced; `kept` of its `raced` episodes are among the corpus' `rows`."""

    racer: str
    model_id: str
    raced: int
    solved: int
    kept: int
    rows: int


def read_counts(folder: Path) -> GenerationCounts | None:
    """Those of a finished generation, None of another folder."""
    path = folder / COUNTS
    return msgspec.json.decode(path.read_bytes(), type=GenerationCounts) if path.exists() else None
