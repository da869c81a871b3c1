"""Where views are written: on threads of this process, or in one process beside it.

Promise: both hand the same trajectories in the same order to the same writers, so the bytes are equal. A process that
dies ends the pass with V2087 and leaves nothing that counts. It holds the folder of its views while it lives: whoever
goes on with an export whose exporter was killed waits until its process has ended too.
"""

from __future__ import annotations

import contextlib
import fcntl
import multiprocessing
import os
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Protocol, TypeVar

import msgspec

from arena.export.model import Format, ShardFile, Trajectory
from arena.export.views import ViewWriter, open_view
from arena.records.workers import begin_process
from problems.errors import ArenaError

AHEAD = 3  # batches that may wait for the process: enough that neither waits for the other, a few megabytes each

ViewFiles = dict[Format, tuple[ShardFile, ...]]
T = TypeVar("T")
_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(list[Trajectory])


class Viewing(Protocol):
    """Writes the views of one shard after the other."""

    def write(self, shard_number: int, rows: Sequence[Trajectory]) -> None:
        """Add trajectories to a shard, in log order; the first begin it. May return before they are written."""
        ...

    def finish(self) -> ViewFiles:
        """Complete the shard begun last: its files by view, paths relative to the view's folder. None: no files."""
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

    def finish(self) -> ViewFiles:
        """Complete the shard."""
        shard, self._shard = self._shard, None
        writers = shard.writers if shard else {}
        running = {view: self._threads.submit(writer.finish) for view, writer in writers.items()}
        return {view: done.result() for view, done in running.items()}


class ProcessViewing:
    """Writes in another process; what was handed over waits there in order."""

    def __init__(self, pool: ProcessPoolExecutor) -> None:
        self._pool = pool
        self._running: deque[Future[None]] = deque()

    def write(self, shard_number: int, rows: Sequence[Trajectory]) -> None:
        """Add trajectories to a shard. Raises ArenaError V2087."""
        try:
            self._running.append(self._pool.submit(_write_packed, shard_number, _ENCODER.encode(rows)))
        except BrokenProcessPool as error:
            raise ArenaError("V2087", str(error)) from error
        while len(self._running) > AHEAD:
            _result(self._running.popleft())

    def finish(self) -> ViewFiles:
        """Complete the shard. Raises ArenaError V2087."""
        while self._running:
            _result(self._running.popleft())
        try:
            return _result(self._pool.submit(_finish_shard))
        except BrokenProcessPool as error:
            raise ArenaError("V2087", str(error)) from error


@contextlib.contextmanager
def open_viewing(folder: Path, views: Sequence[Format], *, in_process: bool = False) -> Iterator[Viewing]:
    """What writes `views` under `folder`, which is made where missing, for the length of the block."""
    if not in_process or not views:
        with ThreadPoolExecutor(max_workers=max(1, len(views))) as threads:
            yield ThreadViewing(folder, views, threads)
        return
    folder.mkdir(parents=True, exist_ok=True)
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
        self._folder, self._views = folder, views
        self._lock = _locked(folder)
        self.shard: _Shard | None = None

    def shard_of(self, number: int) -> _Shard:
        if self.shard is None or self.shard.number != number:
            self.shard = _Shard(self._folder, self._views, number)
        return self.shard


_PROCESS: list[_Process] = []


def _begin(folder: Path, views: Sequence[Format]) -> None:
    begin_process()
    _PROCESS[:] = [_Process(folder, views)]
    parent = multiprocessing.parent_process()
    if parent is None or not parent.is_alive():  # killed meanwhile: its successor may have passed `await_writers`
        os._exit(1)


def _write_packed(number: int, packed: bytes) -> None:
    rows = _DECODER.decode(packed)
    for writer in _PROCESS[0].shard_of(number).writers.values():
        writer.write(rows)


def _finish_shard() -> ViewFiles:
    shard, _PROCESS[0].shard = _PROCESS[0].shard, None
    return {view: writer.finish() for view, writer in shard.writers.items()} if shard else {}


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
