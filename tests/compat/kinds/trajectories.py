"""Trajectories: every row of a published file converted as `--foreign` converts it."""

from __future__ import annotations

from pathlib import Path

from tests.compat.rows import Finding, Kind
from tests.training.foreign_shares import examined


def examine(path: Path) -> Finding:
    """A file is red where any row of it is refused."""
    ran, result, is_red, _ = examined(path)
    return Finding(ran=ran, result=result, is_red=is_red)


KIND = Kind(
    folder="trajectories",
    patterns=("*",),
    examine=lambda path: (examine(path),),
)
