"""Views: the same trajectories in the forms other tools read. What a format offers, and where it is found.

A view is a function of the shard's trajectories and of what the export holds beside its log (`ViewContext`),
so the same rows give the same bytes: verification writes each shard again and compares. A format is one module
`arena.export.formats.<format>`, imported when it is asked for, with two functions:

```
open_writer(folder: Path, shard_number: int, context: ViewContext) -> ViewWriter   # one shard; the view's own folder
finish_export(folder: Path, manifest: Manifest) -> tuple[ShardFile, ...]   # whole-export files (a card); may be ()
```

Files are named by shard number and stand complete only after `finish`. `ShardFile.path` is relative to `folder`.
`jsonl` is no view: it is the log itself.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Protocol, cast

from arena.export.facts import ViewContext
from arena.export.model import FORMATS, Format, Manifest, ShardFile, Trajectory
from arena.export.row import LOG_ALONE
from foundation.errors import ArenaError


class ViewWriter(Protocol):
    """Writes one shard of one view."""

    def write(self, rows: Sequence[Trajectory]) -> None:
        """Add trajectories, in log order. Called any number of times; nothing of `rows` may be kept but bytes."""
        ...

    def finish(self) -> tuple[ShardFile, ...]:
        """Complete the shard's files and say what they are, paths relative to the view's folder. Called once."""
        ...


def open_view(view: Format, folder: Path, shard_number: int, context: ViewContext = LOG_ALONE) -> ViewWriter:
    """A writer of shard `shard_number` (from 0) of a view into its own `folder`, which exists.

    Files of an earlier, interrupted try are overwritten. Raises ValueError for `jsonl`, which is no view.
    """
    return cast(ViewWriter, _module(view).open_writer(folder, shard_number, context))


def finish_export(view: Format, folder: Path, manifest: Manifest) -> tuple[ShardFile, ...]:
    """Write a view's files about the whole export (a dataset card), a function of `manifest` without those files."""
    return cast(tuple[ShardFile, ...], _module(view).finish_export(folder, manifest))


def require_views(formats: Sequence[Format]) -> None:
    """Load the modules of these formats. Raises ArenaError V2073 for one that can't be: better now than half-way."""
    for name in formats:
        if name != "jsonl":
            try:
                _module(name)
            except ImportError as error:
                raise ArenaError("V2073", f"format {name}: {error}") from error


def _module(view: Format) -> ModuleType:
    if view == "jsonl" or view not in FORMATS:
        raise ValueError(f"{view} is not a view")
    return importlib.import_module(f"arena.export.formats.{view}")
