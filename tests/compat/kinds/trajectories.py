"""Trajectories: every row of a published file converted as `--foreign` converts it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from tests.compat.rows import Finding, Kind, Row
from tests.training.foreign_shares import examined


def examine(path: Path) -> Finding:
    """A file is red where any row of it is refused."""
    ran, result, is_red, _ = examined(path)
    return Finding(ran=ran, result=result, is_red=is_red)


def counted(rows: Sequence[Row]) -> str:
    """How many trajectories the files hold, and how many of them converted."""
    pairs = [re.match(r"(\d+) of (\d+) rows", row.result) for row in rows]
    converted, held = (sum(int(pair[place]) for pair in pairs if pair) for place in (1, 2))
    return f"{converted} of {held} trajectories converted."


KIND = Kind(
    folder="trajectories",
    title="Trajectories",
    about=(
        "Each file as it stands, converted row by row as `arena corpus build --foreign` reads it. A row of this "
        "table is a file; it is red where any trajectory in it is refused, and the code says why (`arena explain "
        "CODE`). Calls are those that stand as calls: shell commands in a message's text stay text."
    ),
    patterns=("*",),
    examine=lambda path: (examine(path),),
    counted=counted,
)
