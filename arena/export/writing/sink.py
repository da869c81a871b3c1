"""Where the files of shards are written: on threads of this process, a thread a file.

A process of its own for the views was measured and is slower: rows have to be packed and decoded once more, while
compression and hashing hold no lock of the interpreter.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from arena.export.facts import ViewContext
from arena.export.model import Format, Manifest, ShardFile
from arena.export.row import LOG_ALONE
from arena.export.views import finish_export, require_views
from arena.export.writing.shards import VIEWS, Outgoing, ShardWriter, adopt, described

Finished = Callable[[], list[ShardFile]]  # waits for what it gives


class Sink:
    """Writes one shard after the other."""

    def __init__(self, folder: Path, views: Sequence[Format], threads: ThreadPoolExecutor) -> None:
        self._folder, self._views, self._threads = folder, views, threads
        self._shard: ShardWriter | None = None
        self._context = LOG_ALONE

    def begin(self, context: ViewContext) -> None:
        """Say what views show beside the log. Before the first row; where it is not called, they show the log alone."""
        self._context = context

    def write(self, shard_number: int, rows: Sequence[Outgoing]) -> None:
        """Add rows to a shard, in log order; the first begin it. Returns when every file has taken them."""
        if self._shard is None or self._shard.number != shard_number:
            self._shard = ShardWriter(self._folder, self._views, shard_number, self._context)
        for done in [self._threads.submit(job) for job in self._shard.jobs(rows)]:
            done.result()

    def finish(self) -> Finished:
        """Complete the shard begun last, while the next one may begin: its files, on disk for good, paths relative to
        the export. None: no files."""
        shard, self._shard = self._shard, None
        if shard is None:
            return list
        written = self._threads.submit(shard.close)
        return lambda: described(self._folder, written.result())

    def conclude(self, manifest: Manifest) -> list[ShardFile]:
        """Write each view's files about the whole export, a function of `manifest` without those files."""
        files = list[ShardFile]()
        for view in self._views:
            folder = self._folder / VIEWS / view
            folder.mkdir(parents=True, exist_ok=True)
            files += adopt(self._folder, view, finish_export(view, folder, manifest))
        return files


@contextlib.contextmanager
def open_sink(folder: Path, views: Sequence[Format]) -> Iterator[Sink]:
    """What writes an export's shards, with these views, under `folder`, for the length of the block.

    Raises ArenaError V2073 for a format that can't be loaded.
    """
    require_views(views)
    with ThreadPoolExecutor(max_workers=1 + len(views)) as threads:
        yield Sink(folder, views, threads)
