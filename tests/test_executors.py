"""Every executor keeps the port's promise: order, laziness, errors as they are, and lost jobs run again."""

from __future__ import annotations

import functools
import operator
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from xmlrpc.client import Fault

import pytest

from foundation.errors import ArenaError, Failure
from foundation.executors import HERE, TRIES_MAX, Executor, ProcessExecutor

DIED = "V2052"


def squared(job: int) -> int:
    return job * job


def wants_42(job: int) -> int:
    if job != 42:
        raise ArenaError("V2120", f"job {job}")
    return job


def breaks(error: Callable[[], BaseException]) -> int:
    raise error()


def dies_once(folder: Path, job: int) -> int:
    """Job 7 ends its process, the first `folder/left` times that it is run."""
    left = folder / "left"
    if job == 7 and (times := int(left.read_text())):
        left.write_text(str(times - 1))
        os._exit(9)
    return -job


def answers_much(job: int) -> tuple[int, int]:
    return os.getpid(), 1 << (8 * job)


@pytest.fixture(params=["here", "processes"])
def executor(request: pytest.FixtureRequest) -> Executor:
    return HERE if request.param == "here" else ProcessExecutor(2)


def test_results_come_in_the_order_of_the_jobs(executor: Executor) -> None:
    for jobs in (range(50), range(9, 10), range(0)):
        assert list(executor.map(squared, jobs, died=DIED)) == [job * job for job in jobs]


def test_jobs_are_taken_as_they_are_needed(executor: Executor) -> None:
    jobs = iter(range(1_000))
    coming = executor.map(squared, jobs, died=DIED)
    for number in range(5):
        assert next(coming) == number**2
        assert 1_000 - operator.length_hint(jobs) <= number + 1 + 2 * max(1, executor.slots)


def test_an_error_with_a_code_is_raised_as_it_is_behind_the_results_before_it(executor: Executor) -> None:
    coming = executor.map(wants_42, [42, 42, 3, 42], died=DIED)
    assert [next(coming), next(coming)] == [42, 42]
    with pytest.raises(ArenaError) as caught:
        next(coming)
    assert caught.value.failure == Failure(code="V2120", detail="job 3")


@pytest.mark.parametrize("error", [OSError, SystemExit, StopIteration, functools.partial(Fault, 1, "not unpickled")])
def test_any_other_error_is_raised_too(executor: Executor, error: Callable[[], BaseException]) -> None:
    with pytest.raises((type(error()), RuntimeError)):  # the second where the first can't be
        list(executor.map(breaks, [error] * 2, died=DIED))


def test_jobs_that_were_lost_with_their_process_are_run_again(tmp_path: Path) -> None:
    (tmp_path / "left").write_text(str(TRIES_MAX - 1))
    lost: list[int] = []
    found = list(ProcessExecutor(2, lost.append).map(functools.partial(dies_once, tmp_path), range(20), died=DIED))
    assert found == [-job for job in range(20)]
    assert len(lost) >= 1 and all(1 <= count <= 4 for count in lost)


def test_a_job_that_always_ends_its_process_ends_the_work_with_the_callers_code(tmp_path: Path) -> None:
    (tmp_path / "left").write_text("1000")
    with pytest.raises(ArenaError, match="V2052"):
        list(ProcessExecutor(2).map(functools.partial(dies_once, tmp_path), range(20), died="V2052"))


def test_a_process_that_cant_be_started_ends_the_work_with_the_callers_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("multiprocessing.context.SpawnProcess.start", lambda _: breaks(OSError))
    with pytest.raises(ArenaError, match=r"V2052.*no process can be started"):
        list(ProcessExecutor(2).map(squared, range(20), died="V2052"))


def test_a_command_ends_while_results_are_still_asked_for() -> None:
    held = "from foundation.executors import *; held = ProcessExecutor(2).map(abs, range(9), died=''); next(held)"
    subprocess.run([sys.executable, "-c", held], check=True, timeout=60)


def test_a_process_may_die_while_another_starts(tmp_path: Path) -> None:
    (tmp_path / "left").write_text("1000")
    slow_to_arrive = functools.partial(dies_once, tmp_path)
    slow_to_arrive.__dict__["held"] = b"x" * (1 << 20)
    with pytest.raises(ArenaError, match=f"lost {TRIES_MAX} times: its process ended with status 9"):
        list(ProcessExecutor(3).map(slow_to_arrive, [7, *range(7)], died=DIED))


def test_a_process_may_die_in_the_middle_of_an_answer() -> None:
    lost: list[int] = []
    coming = ProcessExecutor(2, lost.append).map(answers_much, [0, *[1 << 20] * 4], died=DIED)
    pid, _ = next(coming)
    time.sleep(0.5)  # it sends the next one, of a megabyte, and nobody reads
    os.kill(pid, signal.SIGKILL)
    assert [answer.bit_length() for _, answer in coming] == [(8 << 20) + 1] * 4
    assert lost in ([1], [2])  # with what it was given ahead
