"""One function over many jobs: the port behind which processes, or the machines of a cluster, run them.

Promise, of every adapter: results come in the order of the jobs, the same wherever they ran; jobs are taken as they are
needed, so that neither jobs nor results pile up; a job that was lost with its process or machine is run again, and one
that is lost `TRIES_MAX` times ends the work with the code that the caller named. An ArenaError of the work is raised
as it is. The function travels whatever it holds, and has to be picklable, as jobs and results have to be.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import pickle
import signal
import threading
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from multiprocessing import get_context, parent_process, util
from multiprocessing.connection import Connection, wait
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
    look: Callable[[], None] | None = None,
) -> Iterator[Result]:
    """The promise above for an adapter that can `submit` a job: at most `depth` are under way or wait to be fetched.

    `lost` are the exceptions that say that a job has no answer because its process or machine is gone. `on_lost` hears
    how often that was mended. `look` waits for any answer, where no thread does.
    """
    coming = iter(jobs)
    under_way: deque[tuple[Job, Future[Result | Failure], int]] = deque()  # with how often it was submitted
    while True:
        under_way.extend((job, submit(job), 1) for job in itertools.islice(coming, depth - len(under_way)))
        if not under_way:
            return
        while look and not under_way[0][1].done():
            look()
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


class ProcessExecutor:
    """`Executor` of so many processes; of 0, each job runs here when its result is asked for. The function travels once
    to each process, and a job each time."""

    def __init__(self, processes: int, on_lost: OnLost = lambda lost: None) -> None:
        self.slots = processes
        self._on_lost = on_lost

    def map(
        self, work: Callable[[Job], Result], jobs: Iterable[Job], *, died: str, memory_bytes: int = 0
    ) -> Iterator[Result]:
        """The results of `work`, in order. A single job is run here: starting a process would not pay. With a process
        that dies, its jobs alone are lost."""
        coming = iter(jobs)
        first = list(itertools.islice(coming, 2 if self.slots else 0))
        jobs = itertools.chain(first, coming)
        if len(first) <= 1:
            yield from (work(job) for job in jobs)  # `map` would take a StopIteration of the work for the end
            return
        with contextlib.closing(_Processes(work, self.slots, died)) as processes:
            yield from in_order(
                processes.submit,
                jobs,
                depth=2 * self.slots,
                lost=(ProcessLostError,),
                died=died,
                on_lost=self._on_lost,
                look=processes.look,
            )


_AHEAD_BYTES = 32 << 10  # fits into the pipe of a process that does not read yet


class ProcessLostError(Exception):
    """A process ended with jobs that it had not answered."""


class _Processes:
    """So many processes, started as there is work, each at a pipe of its own whose other end nobody else has: one that
    ends is noticed whatever it was doing. `concurrent.futures` of Python 3.11 waits for ever for one that was starting
    when another ended, and for the rest of an answer in the middle of which a process ended."""

    def __init__(self, work: Callable[[Any], Any], count: int, died: str) -> None:
        self._packed, self._count, self._died = pickle.dumps(work), count, died
        self._waiting: deque[tuple[bytes, Future[Any]]] = deque()  # jobs that no process has
        self._processes: dict[Connection, tuple[BaseProcess, deque[Future[Any]]]] = {}  # with the jobs that each has
        self._at_exit = util.Finalize(None, self.close, exitpriority=0)  # else joined while they wait for us

    def submit(self, job: Any) -> Future[Any]:
        """Hand a job to a process, now or when one is free."""
        answer = Future[Any]()
        self._waiting.append((pickle.dumps(job), answer))
        self._hand_out()
        return answer

    def close(self) -> None:
        """End each process, once it has done the job that it is at."""
        for connection in self._processes:
            connection.close()
        while self._processes:
            self._processes.popitem()[1][0].join()
        self._at_exit.cancel()

    def _hand_out(self) -> None:
        """Give jobs to processes that have none, and a small one to each that has one, so that none waits for us."""
        while self._waiting:
            loads = {connection: len(answers) for connection, (_, answers) in self._processes.items()}
            if len(loads) < self._count and 0 not in loads.values():
                loads[self._start()] = 0
            connection = min(loads, key=loads.__getitem__)
            packed, answer = self._waiting[0]
            if loads[connection] > (1 if len(packed) <= _AHEAD_BYTES else 0):
                return
            self._waiting.popleft()
            self._processes[connection][1].append(answer)
            with contextlib.suppress(OSError):  # it has ended: looking at it says so
                connection.send_bytes(packed)

    def _start(self) -> Connection:
        context = get_context("spawn")  # a fork would copy the caller's threads and locks
        try:
            ours, theirs = context.Pipe()
            with theirs:
                process = context.Process(target=_serve, args=(theirs,))
                process.start()
        except OSError as error:
            raise ArenaError(self._died, f"no process can be started: {error}") from error
        self._processes[ours] = process, deque()
        with contextlib.suppress(OSError):
            ours.send_bytes(self._packed)
        return ours

    def look(self) -> None:
        """Wait until a process answers or ends."""
        for connection in wait(self._processes):
            assert isinstance(connection, Connection)
            process, answers = self._processes[connection]
            try:
                packed = connection.recv_bytes()
            except (EOFError, OSError):
                del self._processes[connection]
                connection.close()
                process.join()
                for answer in answers:
                    answer.set_exception(ProcessLostError(f"its process ended with status {process.exitcode}"))
                continue
            is_done, found = pickle.loads(packed)
            if is_done:
                answers.popleft().set_result(found)
            else:
                answers.popleft().set_exception(found)
        self._hand_out()


HERE: Executor = ProcessExecutor(0)


def _serve(connection: Connection) -> None:
    """In a process: answer jobs until nobody asks any more. An interrupt is left to the parent, which ends us; when it
    is killed we end with it. Jobs are of values, so circles of garbage are looked for rarely."""
    look_rarely()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    end_with_parent()
    with contextlib.suppress(EOFError, OSError):
        work = functools.cache(functools.partial(pickle.loads, connection.recv_bytes()))
        while True:
            connection.send_bytes(_answered(work, connection.recv_bytes()))


def end_with_parent() -> None:
    """End this process when the one that started it, if that was Python's `multiprocessing`, is gone."""
    parent = parent_process()
    if parent is not None:
        threading.Thread(target=_end_with, args=(parent,), daemon=True).start()


def _end_with(parent: BaseProcess) -> None:
    parent.join()
    os._exit(1)


def _answered(work: Callable[[], Callable[[Any], Any]], packed: bytes) -> bytes:
    try:
        return pickle.dumps((True, answered(work(), pickle.loads(packed))))
    except BaseException as error:  # noqa: BLE001 - raised where its result is asked for
        told = traceback.format_exc()
        error.add_note(told)
        with contextlib.suppress(Exception):  # of an error that can't travel its text does
            pickle.loads(packed := pickle.dumps((False, error)))
            return packed
        return pickle.dumps((False, RuntimeError(told)))
