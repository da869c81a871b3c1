"""One function over many jobs, in this process or in several fresh ones.

Promise: results come in the order of the jobs, the same on any number of processes. Jobs are taken as they are needed,
and at most two a process are under way or waiting to be fetched, so results do not pile up. The function travels once
to each process, whatever it holds (a catalogue's ids, a guard), and a job each time. A process that dies ends the work
with V2145; processes end with their parent.
"""

from __future__ import annotations

import itertools
import multiprocessing
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any, TypeVar

from arena.records.verify.workers import begin_process
from foundation.errors import ArenaError, Failure

_Job = TypeVar("_Job")
_Result = TypeVar("_Result")

_work: Callable[[Any], Any] | None = None  # of a process that `spread` started


def spread(work: Callable[[_Job], _Result], jobs: Iterable[_Job], workers: int) -> Iterator[_Result]:
    """The results of `work`, which has to be picklable for more than one worker. Raises what it raises, or V2145."""
    coming = iter(jobs)
    first = list(itertools.islice(coming, 2))
    if workers <= 1 or len(first) <= 1:
        yield from map(work, itertools.chain(first, coming))
        return
    context = multiprocessing.get_context("spawn")  # a fork would copy the threads and locks of whoever calls
    under_way: deque[Future[_Result | Failure]] = deque()
    try:
        with ProcessPoolExecutor(workers, context, initializer=_begin, initargs=(work,)) as pool:
            try:
                for job in itertools.chain(first, coming):
                    under_way.append(pool.submit(_run, job))
                    if len(under_way) == 2 * workers:
                        yield _checked(under_way.popleft().result())
                while under_way:
                    yield _checked(under_way.popleft().result())
            finally:
                pool.shutdown(cancel_futures=True)
    except BrokenProcessPool as error:
        raise ArenaError("V2145", str(error)) from error


def _checked(result: _Result | Failure) -> _Result:
    if isinstance(result, Failure):
        raise ArenaError(result.code, result.detail)
    return result


def _begin(work: Callable[[Any], Any]) -> None:
    global _work
    begin_process()
    _work = work


def _run(job: Any) -> Any:
    """What the work gives; an error with a code as the failure it is, since an exception may not survive the way."""
    if _work is None:
        raise RuntimeError("this process was started without its work")
    try:
        return _work(job)
    except ArenaError as error:
        return error.failure
