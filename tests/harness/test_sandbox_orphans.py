"""A jail ends with its host, whenever that is killed: what bubblewrap leaves behind is found and ended."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import time
from pathlib import Path

import pytest

from harness.sandbox.bubblewrap import BubblewrapSandbox, host_mark, sweep_jails
from tests.harness.jail_stand import WHY_NO_JAIL, best_sandbox, has_jail, run

pytestmark = pytest.mark.skipif(not has_jail(), reason=WHY_NO_JAIL)
KILLS = 30
SOURCE = "import time\ndef agent_main(p):\n    time.sleep(60)\n"


def marked(mark: str | bytes) -> list[int]:
    """Living processes that name this host."""
    found = []
    wanted = mark.encode() if isinstance(mark, str) else mark
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and wanted in (entry / "cmdline").read_bytes().split(b"\0"):
                found.append(int(entry.name))
    return found


def wait_for(is_so, seconds: float = 20.0) -> bool:
    deadline = time.monotonic() + seconds
    while not is_so() and time.monotonic() < deadline:
        time.sleep(0.0005)
    return is_so()


def test_a_jail_whose_host_is_gone_is_ended_and_no_other() -> None:
    sandbox = best_sandbox()
    assert isinstance(sandbox, BubblewrapSandbox)
    with subprocess.Popen(["/bin/sleep", "60"]) as host:
        gone = host_mark(host.pid)
        host.kill()
    elsewhere = gone.rpartition(":")[0] + ":[1]"  # the same number in another namespace: nothing is known of it
    # what any process may say of itself, which must neither end it nor stop the sweep
    odd = (b"\xff", "", ":", "9" * 5_000 + gone[gone.index(":") :], "\u0661" + gone[gone.index(":") :])
    running: dict[str | bytes, subprocess.Popen[bytes]] = {}
    for mark in (*odd, gone, elsewhere, host_mark(os.getpid())):
        words = [
            sandbox.bubblewrap.binary,
            "--setenv",
            "ARENA_JAIL_OF",
            mark,
            "--dev-bind",
            "/",
            "/",
            "/bin/sleep",
            "60",
        ]
        running[mark] = subprocess.Popen(words)
    try:
        assert wait_for(lambda: all(marked(mark) for mark in running))
        sweep_jails()
        assert running[gone].wait(timeout=20) == -signal.SIGKILL
        assert [one.poll() for mark, one in running.items() if mark != gone] == [None] * (2 + len(odd))
    finally:
        for one in running.values():
            one.kill()
            one.wait()


def test_hosts_killed_at_any_moment_of_a_jails_start_leave_none_of_its_processes() -> None:
    dice, left = random.Random(7), 0
    for _ in range(KILLS):
        host = os.fork()
        if host == 0:
            try:
                run(SOURCE, None, best_sandbox())
            finally:
                os._exit(0)
        mark = host_mark(host)
        wait_for(lambda name=mark: bool(marked(name)))
        time.sleep(dice.choice((0.0, 0.001, 0.01)))
        os.kill(host, signal.SIGKILL)
        os.waitpid(host, 0)
        wait_for(lambda name=mark: not marked(name), 0.5)
        left += len(marked(mark))
        sweep_jails()
        assert wait_for(lambda name=mark: not marked(name)), "a jail outlived its host and the sweep"
    print(f"{left} processes of {KILLS} killed hosts were ended by the sweep")
