"""Jails that wait for their agent: who gets one, what is in it, and that none is left."""

from __future__ import annotations

import contextlib
import gc
import itertools
import json
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from foundation.errors import ArenaError
from harness.limits import EpisodeLimits
from harness.sandbox.bubblewrap import BubblewrapSandbox, JailsAhead, host_mark
from harness.sandbox.processes import descendants
from harness.sandbox.seccomp import build_filter, native_architecture
from tests.harness.jail_stand import WHY_NO_JAIL, CallHost, best_sandbox, guest_root, has_jail, run
from tests.harness.test_sandbox_orphans import marked, wait_for

LIMITS, OTHERS = EpisodeLimits(), EpisodeLimits(processes=7)
needs_jail = pytest.mark.skipif(not has_jail(), reason=WHY_NO_JAIL)


class Jail:
    """What is done to a jail."""

    def __init__(self, limits: EpisodeLimits, confine: Callable[[], None]) -> None:
        self.limits, self._confine = limits, confine
        self.done: list[str] = []
        self.thread = threading.current_thread()
        self.is_well = True

    def await_runner(self) -> None:
        self.done.append("awaited")

    def confine(self) -> None:
        self._confine()
        self.done.append("confined")

    def is_alive(self) -> bool:
        return self.is_well

    def close(self) -> None:
        self.done.append("closed")


class Yard:
    """Opens jails of the kind above, and knows all of them."""

    def __init__(self) -> None:
        self.jails: list[Jail] = []
        self.refusal: ArenaError | None = None
        self.confine: Callable[[], None] = lambda: None

    def open(self, limits: EpisodeLimits) -> Jail:
        if self.refusal is not None:
            raise self.refusal
        self.jails.append(Jail(limits, self.confine))
        return self.jails[-1]


def test_a_job_gets_the_jail_that_waits_confined_and_opened_by_a_thread_that_stays():
    yard = Yard()
    ahead = JailsAhead(yard.open, 1)
    one = threading.Thread(target=ahead.prepare, args=(LIMITS,))
    one.start()
    one.join()
    jail = ahead.take(LIMITS)
    assert (yard.jails, jail.done) == ([jail], ["awaited", "confined"])
    assert jail.thread is not threading.current_thread() and jail.thread.is_alive()


def test_no_more_wait_than_may_and_none_is_used_twice():
    yard = Yard()
    ahead = JailsAhead(yard.open, 2)
    for _ in range(5):
        ahead.prepare(LIMITS)
    first, second, third = (ahead.take(LIMITS) for _ in range(3))
    assert len({id(first), id(second), id(third)}) == len(yard.jails) == 3
    assert third.done == []


@pytest.mark.parametrize("why", ["limits", "ended"])
def test_a_jail_of_other_limits_or_that_has_ended_is_closed_and_a_fresh_one_used(why):
    yard = Yard()
    ahead = JailsAhead(yard.open, 1)
    ahead.prepare(OTHERS if why == "limits" else LIMITS)
    wait_for(lambda: yard.jails and yard.jails[0].done == ["awaited", "confined"])
    yard.jails[0].is_well = why != "ended"
    jail = ahead.take(LIMITS)
    assert yard.jails[0].done == ["awaited", "confined", "closed"]
    assert (jail.limits, jail.done) == (LIMITS, [])


def test_jails_that_wait_are_closed_when_nobody_can_ask_for_them():
    yard = Yard()
    ahead = JailsAhead(yard.open, 3)
    for _ in range(3):
        ahead.prepare(LIMITS)
    wait_for(lambda: len(yard.jails) == 3)
    del ahead
    gc.collect()
    assert [jail.done[-1] for jail in yard.jails] == ["closed"] * 3


def jails_ahead() -> BubblewrapSandbox:
    best = best_sandbox()
    assert isinstance(best, BubblewrapSandbox)
    program = build_filter(native_architecture())
    return BubblewrapSandbox(best.bubblewrap, guest_root(), program, best.level, slots=2, clock=time.monotonic, ahead=1)


class Below:
    """Processes of the jails below this process. Jails that were there before are those of other tests' sandboxes."""

    def __init__(self) -> None:
        self._others: set[int] = set()
        self._others = self.bubblewraps() | self.runners()

    def bubblewraps(self) -> set[int]:
        """Of a jail with a runner two: bubblewrap, and the first process in the jail."""
        return set(marked(host_mark(os.getpid()))) - self._others

    def runners(self) -> set[int]:
        found = set()
        for pid in descendants(os.getpid()):
            with contextlib.suppress(OSError):
                words = Path("/proc", str(pid), "cmdline").read_bytes().split(b"\0")
                if b"/arena/runner.py" in words and host_mark(os.getpid()).encode() not in words:
                    found.add(pid)
        return found - self._others

    def one_waits(self) -> bool:
        return (len(self.bubblewraps()), len(self.runners())) == (2, 1)


@pytest.fixture
def below() -> Below:
    return Below()


LOOKS = """
import os, threading
from arena_sdk import tools
def agent_main(p):
    found = sorted(os.listdir("/tmp") + os.listdir("/dev/shm"))
    open("/tmp/mine", "w").close(), open("/dev/shm/mine", "w").close()
    tools.execute("terminate", "{}")
    return [found, os.getuid(), len(threading.enumerate()), sorted(os.environ)]
"""


@needs_jail
def test_the_jail_that_waited_is_used_once_and_holds_nothing_of_an_earlier_agent(below):
    sandbox = jails_ahead()
    seen: list[set[int]] = []
    host = CallHost(lambda method, params: seen.append(below.bubblewraps()) or {"result": "[]", "failure": None})
    claims = []
    for _ in range(3):
        ended = run(LOOKS, host, sandbox)
        assert ended.end == "final", ended
        claims.append(json.loads(ended.claim))
        assert wait_for(below.one_waits)
        seen.append(below.bubblewraps())
    assert [claim[0] for claim in claims] == [[], [], []]
    assert [claim[2:] for claim in claims] == [[1, ["TMPDIR"]]] * 3
    after_first, in_second, after_second, in_third = seen[1:5]
    assert after_first <= in_second and not after_first & after_second
    assert after_second <= in_third
    if sandbox.bubblewrap.entry != "user":
        assert all(one[1] != two[1] for one, two in itertools.pairwise(claims))
    del sandbox
    gc.collect()
    assert below.bubblewraps() == set()


@needs_jail
def test_a_runner_that_waits_is_confined_already(below):
    sandbox = jails_ahead()
    run(LOOKS, None, sandbox)

    def status() -> dict[str, str]:
        (runner,) = below.runners() or {0}
        lines = Path("/proc", str(runner), "status").read_text().splitlines() if runner else ()
        return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}

    identity = str(os.getuid() if sandbox.bubblewrap.entry == "user" else 0)
    bounded = {"CapEff": "0" * 16, "CapPrm": "0" * 16, "NoNewPrivs": "1", "Seccomp": "2"}
    assert wait_for(lambda: bounded.items() <= status().items()), status()
    assert (status()["Uid"].split()[0] == identity) == (sandbox.bubblewrap.entry == "user")
    (runner,) = below.runners()
    limits = Path("/proc", str(runner), "limits").read_text()
    assert f"Max address space         {LIMITS.memory_bytes}" in limits
    if sandbox.bubblewrap.cgroups is not None:
        assert "/arena-jail-" in Path("/proc", str(runner), "cgroup").read_text()


@needs_jail
def test_a_jail_that_waits_is_bounded_as_one_that_runs():
    """A fork bomb and a full disk meet the limits of the job that the jail was opened for."""
    bomb = """
import os
def agent_main(p):
    count = 0
    try:
        while count < 100:
            if os.fork() == 0:
                os.read(0, 1), __import__("time").sleep(30)
            count += 1
    except OSError:
        pass
    size = 0
    try:
        with open("/tmp/fill", "wb", buffering=0) as file:
            while size < 64 << 20:
                size += file.write(bytes(1 << 20))
    except OSError:
        pass
    return [count, size]
"""
    sandbox = jails_ahead()
    for _ in range(2):
        ended = run(bomb, None, sandbox, processes=9, disk_bytes=4 << 20)
        count, size = json.loads(ended.claim)
        assert count < 9 and size <= 4 << 20


@needs_jail
def test_a_jail_that_waits_ends_with_its_host(tmp_path: Path):
    host = os.fork()
    if host == 0:
        try:
            below, sandbox = Below(), jails_ahead()
            run(LOOKS, None, sandbox)
            if wait_for(below.one_waits):
                (tmp_path / "waits").write_text(str(len(marked(host_mark(os.getpid())))))
            time.sleep(60)
        finally:
            os._exit(0)
    try:
        assert wait_for(lambda: (tmp_path / "waits").exists() and (tmp_path / "waits").read_text() == "2")
        mark = host_mark(host)
        assert len(marked(mark)) == 2
    finally:
        os.kill(host, signal.SIGKILL)
        os.waitpid(host, 0)
    assert wait_for(lambda: not marked(mark))
