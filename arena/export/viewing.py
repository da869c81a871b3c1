"""Where views are written: on threads of this process, or in one process beside it.

Promise: both hand the same trajectories in the same order to the same writers, so the bytes are equal. A process that
dies ends the pass with V2087 and leaves nothing that counts. It holds the folder of its views from before the first
byte there until it ends: whoever goes on with an export whose exporter was killed waits until then. It alone loads
the modules of the formats, while the first records are read.
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

from arena.export.model import Format, Manifest, ShardFile, Trajectory
from arena.export.views import ViewWriter, finish_export, open_view, require_views
from arena.records.workers import begin_process
from problems.errors import ArenaError

AHEAD = 8  # batches that may wait for the process, a few megabytes each: enough that its start holds nobody up

ViewFiles = dict[Format, tuple[ShardFile, ...]]
Finished = Callable[[], ViewFiles]  # waits for what it gives
T = TypeVar("T")
_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(list[Trajectory])
_MANIFEST = msgspec.msgpack.Decoder(Manifest)


class Viewing(Protocol):
    """Writes the views of one shard after the other."""

    def write(self, shard_number: int, rows: Sequence[Trajectory]) -> None:
        """Add trajectories to a shard, in log order; the first begin it. May return before they are written."""
        ...

    def finish(self) -> Finished:
        """Complete the shard begun last: its files by view, paths relative to the view's folder. None: no files.

        May return before they are complete, and the next shard may begin then: what it returns waits, if called.
        """
        ...

    def conclude(self, manifest: Manifest) -> ViewFiles:
        """Write each view's files about the whole export, a function of `manifest` without those files."""
        ...


class _Shard:
    """The writers of one shard."""

    def __init__(self, folder: Path, views: Sequence[Format], number: int) -> None:
        self.number, self.writers = number, dict[Format, ViewWriter]()
        for view in views:
            (folder / view).mkdir(parents=True, exist_ok=True)
            self.writers[view] = open_view(view, folder / view, number)


class ThreadViewing:
    """Writes on a thread a view, and returns when all are done."""

    def __init__(self, folder: Path, views: Sequence[Format], threads: ThreadPoolExecutor) -> None:
        self._folder, self._views, self._threads = folder, views, threads
        self._shard: _Shard | None = None

    def write(self, shard_number: int, rows: Sequence[Trajectory]) -> None:
        """Add trajectories to a shard."""
        if self._shard is None or self._shard.number != shard_number:
            self._shard = _Shard(self._folder, self._views, shard_number)
        for done in [self._threads.submit(writer.write, rows) for writer in self._shard.writers.values()]:
            done.result()

    def finish(self) -> Finished:
        """Complete the shard."""
        shard, self._shard = self._shard, None
        writers = shard.writers if shard else {}
        running = {view: self._threads.submit(writer.finish) for view, writer in writers.items()}
        return lambda: {view: done.result() for view, done in running.items()}

    def conclude(self, manifest: Manifest) -> ViewFiles:
        """Write the files about the whole export."""
        return _concluded(self._folder, self._views, manifest)


class ProcessViewing:
    """Writes in another process; what was handed over waits there in order."""

    def __init__(self, pool: ProcessPoolExecutor) -> None:
        self._pool = pool
        self._running = deque[Future[Any]]([pool.submit(_load)])

    def write(self, shard_number: int, rows: Sequence[Trajectory]) -> None:
        """Add trajectories to a shard. Raises ArenaError V2087, and V2073 for a format that can't be loaded."""
        self._running.append(self._submit(_write_packed, shard_number, _ENCODER.encode(rows)))
        while len(self._running) > AHEAD:
            _result(self._running.popleft())

    def finish(self) -> Finished:
        """Complete the shard. Raises as `write`, when waited for."""
        finishing = self._submit(_finish_shard)
        self._running.append(finishing)
        return lambda: _result(finishing)

    def conclude(self, manifest: Manifest) -> ViewFiles:
        """Write the files about the whole export. Raises as `write`."""
        while self._running:
            _result(self._running.popleft())
        return _result(self._submit(_conclude, _ENCODER.encode(manifest)))

    def _submit(self, work: Callable[..., T], *values: object) -> Future[T]:
        try:
            return self._pool.submit(work, *values)
        except BrokenProcessPool as error:
            raise ArenaError("V2087", str(error)) from error


@contextlib.contextmanager
def open_viewing(folder: Path, views: Sequence[Format], *, in_process: bool = False) -> Iterator[Viewing]:
    """What writes `views` under `folder`, made where missing by the first that writes, for the length of the block.

    Raises ArenaError V2073 for a format that can't be loaded; a process says so when it is first handed something.
    """
    if not in_process or not views:
        require_views(views)
        with ThreadPoolExecutor(max_workers=max(1, len(views))) as threads:
            yield ThreadViewing(folder, views, threads)
        return
    spawn = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(1, spawn, initializer=_begin, initargs=(folder, tuple(views)))
    try:
        yield ProcessViewing(pool)
    finally:
        pool.shutdown(cancel_futures=True)


def await_writers(folder: Path) -> None:
    """Wait until no process writes views under `folder`: one whose exporter was killed ends a moment later."""
    if folder.is_dir():
        os.close(_locked(folder))


class _Process:
    """What the process that writes views holds between calls."""

    def __init__(self, folder: Path, views: Sequence[Format]) -> None:
        self.folder, self.views = folder, views
        self._lock: int | None = None
        self.shard: _Shard | None = None

    def hold(self) -> None:
        """Hold the folder of the views; to be called before anything is written there."""
        if self._lock is None:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._lock = _locked(self.folder)
            parent = multiprocessing.parent_process()
            if parent is None or not parent.is_alive():  # killed meanwhile: its successor may be past `await_writers`
                os._exit(1)

    def shard_of(self, number: int) -> _Shard:
        self.hold()
        if self.shard is None or self.shard.number != number:
            self.shard = _Shard(self.folder, self.views, number)
        return self.shard


_PROCESS: list[_Process] = []


def _begin(folder: Path, views: Sequence[Format]) -> None:
    begin_process()
    _PROCESS[:] = [_Process(folder, views)]


def _load() -> None:
    require_views(_PROCESS[0].views)


def _write_packed(number: int, packed: bytes) -> None:
    rows = _DECODER.decode(packed)
    for writer in _PROCESS[0].shard_of(number).writers.values():
        writer.write(rows)


def _finish_shard() -> ViewFiles:
    shard, _PROCESS[0].shard = _PROCESS[0].shard, None
    return {view: writer.finish() for view, writer in shard.writers.items()} if shard else {}


def _conclude(packed: bytes) -> ViewFiles:
    process = _PROCESS[0]
    process.hold()
    return _concluded(process.folder, process.views, _MANIFEST.decode(packed))


def _concluded(folder: Path, views: Sequence[Format], manifest: Manifest) -> ViewFiles:
    files: ViewFiles = {}
    for view in views:
        (folder / view).mkdir(parents=True, exist_ok=True)
        files[view] = finish_export(view, folder / view, manifest)
    return files


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
