"""Where the completions of unfinished work items lie: one file each, in one folder for each race and stage.

Promise: a file is there from an item's first completion until its end, and is removed with it; what is left of items
that were closed otherwise goes with the folder, once the store has no open item of that race and stage. If a file
cannot be written, a warning is logged and its item is restarted under the stricter rule.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from urllib.parse import quote, unquote

from arena.records.model import Context, Stage
from arena.store.port import Store, WorkItem
from foundation.canonical import text_hash
from harness.inference.journal import open_journal

_SUFFIX = ".journal"
_NAME_CHARS = 40


class Journals:
    """The journals of one node, below `folder`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder.resolve()  # workers have it too

    def path(self, item: WorkItem) -> Path:
        """The file of a work item, whether or not it exists."""
        return self._folder / _folder_name(item.context) / (text_hash(item.item_id)[:_NAME_CHARS] + _SUFFIX)

    def forgive(self, item: WorkItem) -> None:
        """The item's next attempt owes nothing of what earlier ones were answered. Raises ArenaError V2004, V2115."""
        path = self.path(item)
        if path.exists():
            with open_journal(str(path)) as journal:
                assert journal is not None
                journal.forgive()

    def remove(self, item: WorkItem) -> None:
        """The item has ended. Raises OSError."""
        self.path(item).unlink(missing_ok=True)

    async def sweep(self, store: Store) -> None:
        """Remove the folders of races and stages that have no open item. Raises ArenaError V2021."""
        for folder in sorted(self._folder.glob("*.*")):
            stage, _, race = folder.name.partition(".")
            if not await store.open_items(unquote(race), _stage(stage)):
                shutil.rmtree(folder, ignore_errors=True)  # what stays is tried again at the next turn


def _folder_name(context: Context) -> str:
    return f"{context.stage}.{quote(context.race_id, safe='')}"


def _stage(name: str) -> Stage:
    return "race" if name == "race" else "qualifying"
