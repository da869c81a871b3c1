"""Where the files of shards are written: on threads of this process, or in one process beside it.

Both hand the same rows in the same order to the same writers, so the bytes are equal. A process that dies
ends the pass with V2087 and leaves nothing that counts. It holds the folder of the views from before the first byte of
any file until it ends: whoever goes on with an export whose exporter was killed waits until then. It alone loads the
modules of the formats, while the first records are read, and it compresses: one core reads, the other writes.
"""

from __future__ import annotations

import contextlib
import fcntl
import multiprocessing
import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any, Protocol, TypeVar

import msgspec

from arena.export.facts import ViewContext
from arena.export.model import Format, Manifest, ShardFile
from arena.export.row import LOG_ALONE
from arena.export.views import finish_export, require_views
from arena.export.writing.ipc import Outgoing, pack, unpack
from arena.export.writing.shards import VIEWS, ShardWriter, ViewFiles, WrittenShard, adopt, described
from foundation.errors import ArenaError
from foundation.executors.processes import begin_process

AHEAD = 8  # batches that may wait for the process: enough that the exporter does not wait for its start
AHEAD_BYTES = 64 << 20  # of them, whatever a row's size; one batch may always wait

Finished = Callable[[], list[ShardFile]]  # waits for what it gives
T = TypeVar("T")
_ENCODER = msgspec.msgpack.Encoder()
_MANIFEST = msgspec.msgpack.Decoder(Manifest)
_CONTEXT = msgspec.msgpack.Decoder(ViewContext)


class Sink(Protocol):
    """Writes one shard after the other."""

    def begin(self, context: ViewContext) -> None:
        """Say what views show beside the log. Before the first row; where it is not called, they show the log alone."""
        ...

    def write(self, shard_number: int, rows: Sequence[Outgoing]) -> None:
        """Add rows to a shard, in log order; the first begin it. May return before they are written."""
        ...

    def finish(self) -> Finished:
        """Complete the shard begun last: its files, on disk for good, paths relative to the export. None: no files.

        May return before they are complete, and the next shard may begin then: what it returns waits, if called.
        """
        ...

    def conclude(self, manifest: Manifest) -> list[ShardFile]:
        """Write each view's files about the whole export, a function of `manifest` without those files."""
        ...


class ThreadSink:
    """Writes on a thread a file, and returns when all are done."""

    def __init__(self, folder: Path, views: Sequence[Format], threads: ThreadPoolExecutor) -> None:
        self._folder, self._views, self._threads = folder, views, threads
        self._shard: ShardWriter | None = None
        self._context = LOG_ALONE

    def begin(self, context: ViewContext) -> None:
        """Take what views show beside the log."""
        self._context = context

    def write(self, shard_number: int, rows: Sequence[Outgoing]) -> None:
        """Add to a shard."""
        if self._shard is None or self._shard.number != shard_number:
            self._shard = ShardWriter(self._folder, self._views, shard_number, self._context)
        for done in [self._threads.submit(job) for job in self._shard.jobs(rows)]:
            done.result()

    def finish(self) -> Finished:
        """Complete the shard."""
        shard, self._shard = self._shard, None
        if shard is None:
            return list
        written = self._threads.submit(shard.close)
        return lambda: described(self._folder, written.result())

    def conclude(self, manifest: Manifest) -> list[ShardFile]:
        """Write the files about the whole export."""
        return _adopted(self._folder, _concluded(self._folder, self._views, manifest))


class ProcessSink:
    """Writes in another process; what was handed over waits there in order."""

    def __init__(self, folder: Path, views: Sequence[Format], pool: ProcessPoolExecutor) -> None:
        self._folder, self._pool = folder, pool
        loading = pool.submit(require_views, views)
        self._running = deque[tuple[Future[Any], int]]([(loading, 0)])  # with the bytes they wait with

    def begin(self, context: ViewContext) -> None:
        """Hand over what views show beside the log. Raises as `write`."""
        packed = _ENCODER.encode(context)
        self._running.append((self._submit(_begin_views, packed), len(packed)))

    def write(self, shard_number: int, rows: Sequence[Outgoing]) -> None:
        """Add to a shard. Raises ArenaError V2087, and V2073 for a format that can't be loaded."""
        packed = pack(rows)
        self._running.append((self._submit(_write_packed, shard_number, packed), len(packed)))
        while len(self._running) > AHEAD or (
            len(self._running) > 1 and sum(size for _, size in self._running) > AHEAD_BYTES
        ):
            _result(self._running.popleft()[0])

    def finish(self) -> Finished:
        """Complete the shard. Raises as `write`, when waited for: a shard of which a batch failed is none."""
        before, finishing = [one for one, _ in self._running], self._submit(_finish_shard)
        self._running.append((finishing, 0))

        def finished() -> list[ShardFile]:
            for one in before:
                _result(one)
            return described(self._folder, _result(finishing))

        return finished

    def conclude(self, manifest: Manifest) -> list[ShardFile]:
        """Write the files about the whole export. Raises as `write`."""
        while self._running:
            _result(self._running.popleft()[0])
        return _adopted(self._folder, _result(self._submit(_conclude, _ENCODER.encode(manifest))))

    def _submit(self, work: Callable[..., T], *values: object) -> Future[T]:
        try:
            return self._pool.submit(work, *values)
        except BrokenProcessPool as error:
            raise ArenaError("V2087", str(error)) from error


@contextlib.contextmanager
def open_sink(folder: Path, views: Sequence[Format], *, in_process: bool = False) -> Iterator[Sink]:
    """What writes an export's shards, with these views, under `folder`, for the length of the block.

    Raises ArenaError V2073 for a format that can't be loaded; a process says so when it is first handed something.
    """
    if not in_process or not views:
        require_views(views)
        with ThreadPoolExecutor(max_workers=1 + len(views)) as threads:
            yield ThreadSink(folder, views, threads)
        return
    spawn = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(1, spawn, initializer=_begin, initargs=(folder, tuple(views)))
    try:
        yield ProcessSink(folder, tuple(views), pool)
    finally:
        pool.shutdown(cancel_futures=True)


def await_writers(folder: Path) -> None:
    """Wait until no process writes shards under `folder`: one whose exporter was killed ends a moment later."""
    if (folder / VIEWS).is_dir():
        os.close(_locked(folder / VIEWS))


class _Process:
    """What the process that writes holds between calls."""

    def __init__(self, folder: Path, views: Sequence[Format]) -> None:
        self.folder, self.views = folder, views
        self._lock: int | None = None
        self.shard: ShardWriter | None = None
        self.context = LOG_ALONE

    def hold(self) -> None:
        """Hold the folder of the views; to be called before anything is written."""
        if self._lock is None:
            views = self.folder / VIEWS
            views.mkdir(parents=True, exist_ok=True)
            self._lock = _locked(views)
            parent = multiprocessing.parent_process()
            if parent is None or not parent.is_alive():  # killed meanwhile: its successor may be past `await_writers`
                os._exit(1)

    def shard_of(self, number: int) -> ShardWriter:
        self.hold()
        if self.shard is None or self.shard.number != number:
            self.shard = ShardWriter(self.folder, self.views, number, self.context)
        return self.shard


_PROCESS: list[_Process] = []


def _begin(folder: Path, views: Sequence[Format]) -> None:
    begin_process()
    _PROCESS[:] = [_Process(folder, views)]


def _begin_views(packed: bytes) -> None:
    _PROCESS[0].context = _CONTEXT.decode(packed)


def _write_packed(number: int, packed: bytes) -> None:
    for job in _PROCESS[0].shard_of(number).jobs(unpack(packed)):
        job()


def _finish_shard() -> WrittenShard:
    shard, _PROCESS[0].shard = _PROCESS[0].shard, None
    return shard.close() if shard else WrittenShard()


def _conclude(packed: bytes) -> ViewFiles:
    process = _PROCESS[0]
    process.hold()
    return _concluded(process.folder, process.views, _MANIFEST.decode(packed))


def _concluded(folder: Path, views: Sequence[Format], manifest: Manifest) -> ViewFiles:
    files: ViewFiles = {}
    for view in views:
        (folder / VIEWS / view).mkdir(parents=True, exist_ok=True)
        files[view] = finish_export(view, folder / VIEWS / view, manifest)
    return files


def _adopted(folder: Path, made: ViewFiles) -> list[ShardFile]:
    return [file for view, files in made.items() for file in adopt(folder, view, files)]


def _result(running: Future[T]) -> T:
    try:
        return running.result()
    except BrokenProcessPool as error:
        raise ArenaError("V2087", str(error)) from error


def _locked(folder: Path) -> int:
    """A descriptor that holds a folder against others; waits for whoever does."""
    descriptor = os.open(folder, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    return descriptor
