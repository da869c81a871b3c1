"""One function over many jobs: the port behind which processes, or the machines of a cluster, run them.

Promise, of every adapter: results come in the order of the jobs, the same wherever they ran; jobs are taken as they are
needed, so that neither jobs nor results pile up; a job that was lost with its process or machine is run again, and one
that is lost `TRIES_MAX` times ends the work with the code that the caller named. An ArenaError of the work is raised
as it is. The function travels whatever it holds, and has to be picklable, as jobs and results have to be.
"""

from __future__ import annotations

import contextlib
import itertools
import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.process import BaseProcess
from typing import Any, Protocol, TypeVar

from foundation.errors import ArenaError, Failure
from foundation.long_work import look_rarely

TRIES_MAX = 3

Job = TypeVar("Job")
Result = TypeVar("Result")
OnLost = Callable[[int], None]  # so many jobs were lost and are run again


class Executor(Protocol):
    """Runs jobs. `slots`: how many at once beside this process; 0 where they run in it."""

    @property
    def slots(self) -> int: ...

    def map(
        self, work: Callable[[Job], Result], jobs: Iterable[Job], *, died: str, memory_bytes: int = 0
    ) -> Iterator[Result]:
        """The results of `work`, in order. Raises what it raises, and ArenaError `died` for a job that is lost again
        and again. `memory_bytes`: what a job may need at most, for an executor that chooses machines (0: not counted).
        """
        ...


def in_order(
    submit: Callable[[Job], Future[Result | Failure]],
    jobs: Iterable[Job],
    *,
    depth: int,
    lost: tuple[type[BaseException], ...],
    died: str,
    on_lost: OnLost,
) -> Iterator[Result]:
    """The promise above for an adapter that can `submit` a job: at most `depth` are under way or wait to be fetched.

    `lost` are the exceptions that say that a job has no answer because its process or machine is gone. `on_lost` hears
    how often that was mended.
    """
    coming = iter(jobs)
    under_way: deque[tuple[Job, Future[Result | Failure], int]] = deque()  # with how often it was submitted
    while True:
        under_way.extend((job, submit(job), 1) for job in itertools.islice(coming, depth - len(under_way)))
        if not under_way:
            return
        try:
            result = under_way[0][1].result()
        except lost as error:
            gone = 0
            for place, (job, future, tries) in enumerate(under_way):
                if future.done() and isinstance(future.exception(), lost):
                    if tries == TRIES_MAX:
                        raise ArenaError(died, f"lost {TRIES_MAX} times: {error}") from error
                    under_way[place], gone = (job, submit(job), tries + 1), gone + 1
            on_lost(gone)
            continue
        under_way.popleft()
        if isinstance(result, Failure):
            raise ArenaError(result.code, result.detail)
        yield result


def answered(work: Callable[[Job], Result], job: Job) -> Result | Failure:
    """What the work gives; an error with a code as the failure it is, since an exception may not survive the way."""
    try:
        return work(job)
    except ArenaError as error:
        return error.failure


_work: Callable[[Any], Any] | None = None  # of a process that `ProcessExecutor` started


class ProcessExecutor:
    """`Executor` of so many processes; of 0, each job runs here when its result is asked for. The function travels once
    to each process, and a job each time."""

    def __init__(self, processes: int, on_lost: OnLost = lambda lost: None) -> None:
        self.slots = processes
        self._on_lost = on_lost

    def map(
        self, work: Callable[[Job], Result], jobs: Iterable[Job], *, died: str, memory_bytes: int = 0
    ) -> Iterator[Result]:
        """The results of `work`, in order. A single job is run here: starting a process would not pay. A process that
        dies takes the others with it, and the next job starts new ones."""
        coming = iter(jobs)
        first = list(itertools.islice(coming, 2 if self.slots else 0))
        jobs = itertools.chain(first, coming)
        if len(first) <= 1:
            yield from map(work, jobs)
            return
        pool = self._start(work)

        def submit(job: Job) -> Future[Result | Failure]:
            nonlocal pool
            try:
                return pool.submit(_run, job)
            except BrokenProcessPool:
                pool = self._start(work)
                return pool.submit(_run, job)

        try:
            lost = (BrokenProcessPool,)
            yield from in_order(submit, jobs, depth=2 * self.slots, lost=lost, died=died, on_lost=self._on_lost)
        finally:
            pool.shutdown(cancel_futures=True)

    def _start(self, work: Callable[[Any], Any]) -> ProcessPoolExecutor:
        context = multiprocessing.get_context("spawn")  # a fork would copy the caller's threads and locks
        return ProcessPoolExecutor(self.slots, context, initializer=_begin, initargs=(work,))


HERE: Executor = ProcessExecutor(0)


def begin_process() -> None:
    """Leave an interrupt to the parent, which ends the pool; end with the parent when it is killed. Jobs are of values,
    so circles of garbage are looked for rarely, and a process that wakes up interrupts no other: not the database that
    it reads from, which wakes it at each 8 kB."""
    look_rarely()
    if os.sched_getscheduler(0) == os.SCHED_OTHER:  # else somebody chose
        with contextlib.suppress(OSError):  # where even that is forbidden
            os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
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
