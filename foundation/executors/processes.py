"""Jobs in fresh processes of this machine. They end with their parent, however it ends."""

from __future__ import annotations

import itertools
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.process import BaseProcess
from typing import Any

from foundation.errors import Failure
from foundation.executors.port import HERE, Executor, Job, Result, Told, answered, in_order
from foundation.long_work import look_rarely

_work: Callable[[Any], Any] | None = None  # of a process that `ProcessExecutor` started


class ProcessExecutor:
    """`Executor` of so many processes. The function travels once to each of them, and a job each time."""

    def __init__(self, processes: int, told: Told = lambda lost: None) -> None:
        self.slots = processes
        self._told = told

    def map(
        self, work: Callable[[Job], Result], jobs: Iterable[Job], *, died: str, memory_bytes: int = 0
    ) -> Iterator[Result]:
        """The results of `work`, in order. A single job is run here: starting a process would not pay. A process that
        dies takes the others with it, and the next job starts new ones."""
        coming = iter(jobs)
        first = list(itertools.islice(coming, 2))
        if len(first) <= 1:
            yield from map(work, first)
            return
        pool = self._start(work)

        def submit(job: Job) -> Future[Result | Failure]:
            nonlocal pool
            try:
                return pool.submit(_run, job)
            except BrokenProcessPool:
                pool = self._start(work)
                return pool.submit(_run, job)

        jobs = itertools.chain(first, coming)
        try:
            lost = (BrokenProcessPool,)
            yield from in_order(submit, jobs, depth=2 * self.slots, lost=lost, died=died, told=self._told)
        finally:
            pool.shutdown(cancel_futures=True)

    def _start(self, work: Callable[[Any], Any]) -> ProcessPoolExecutor:
        context = multiprocessing.get_context("spawn")  # a fork would copy the caller's threads and locks
        return ProcessPoolExecutor(self.slots, context, initializer=_begin, initargs=(work,))


def executor_of(processes: int, told: Told = lambda lost: None) -> Executor:
    """So many processes, or this one where that is 0."""
    return ProcessExecutor(processes, told) if processes > 0 else HERE


def begin_process() -> None:
    """Leave an interrupt to the parent, which ends the pool; end with the parent when it is killed. Jobs are of values,
    so circles of garbage are looked for rarely."""
    look_rarely()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_end_with, args=(parent,), daemon=True).start()


def _end_with(parent: BaseProcess) -> None:
    parent.join()
    os._exit(1)


def _begin(work: Callable[[Any], Any]) -> None:
    global _work
    begin_process()
    _work = work


def _run(job: Any) -> Any | Failure:
    assert _work is not None, "this process was started without its work"
    return answered(_work, job)
