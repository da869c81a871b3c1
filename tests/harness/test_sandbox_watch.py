"""The watch over a guest: it looks while its host works, and it counts what no process shows as its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from foundation.errors import ArenaError
from harness.sandbox.processes import (
    counted_bytes,
    descendants,
    held_bytes,
    memory_of,
    socket_bytes,
)
from harness.sandbox.supervision import JailWatch
from harness.sandbox.workdir import FILES_AT_MOST
from tests.harness.jail_stand import WHY_NO_JAIL, CallHost, best_sandbox, has_jail, jail_without_cgroup, run
from tests.harness.landlock_stand import best_landlock, older
from tests.harness.sandbox_contract import is_alive, newborn

ENOUGH = 1 << 40


def sandbox_of(name: str):
    if name.startswith("bubblewrap") and not has_jail():
        pytest.skip(WHY_NO_JAIL)
    makers = {
        "bubblewrap": best_sandbox,
        "bubblewrap without cgroup": jail_without_cgroup,
        "landlock": best_landlock,
        "landlock without cgroup": lambda: older(99),
    }
    return makers[name]()


EVERY = pytest.mark.parametrize(
    "name", ["bubblewrap", "bubblewrap without cgroup", "landlock", "landlock without cgroup"]
)
UNGROUPED = pytest.mark.parametrize("name", ["bubblewrap without cgroup", "landlock without cgroup"])

BEHIND_THE_HOST = """
import os, threading, time
from arena_sdk import tools
def busy():
    while True: pass
def greedy():
    blocks = [bytearray(b"x" * (20 << 20)) for _ in range(30)]
    time.sleep(60)
def agent_main(p):
    for _ in range(3):
        if os.fork() == 0:
            {work}()
    tools.call("work")
"""


class TestWhileTheHostWorks:
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
            deadline = time.monotonic() + 60
            while any(map(is_alive, guests)) and time.monotonic() < deadline:
                time.sleep(0.01)
            was_ended.append(not any(map(is_alive, guests)))
            return {"result": "1", "failure": None}

        ended = run(BEHIND_THE_HOST.format(work=work), CallHost(long_work), sandbox_of(name), **limits)
        assert was_ended == [True]
        assert ended.end == next(iter(limits)).partition("_")[0]

    @EVERY
    def test_a_silent_guest_is_looked_at_too(self, name):
        source = BEHIND_THE_HOST.format(work="busy").replace('tools.call("work")', "time.sleep(60)")
        assert run(source, None, sandbox_of(name), cpu_time_s=1).end == "cpu"


class TestTheWatch:
    def test_the_first_broken_limit_is_told_and_the_guest_is_ended_once(self):
        looks, ends, clock = iter([False, False, True]), [], lambda: 0.0
        with JailWatch(
            {"cpu": lambda: False, "disk": lambda: next(looks)}, lambda: ends.append("ended"), clock
        ) as watch:
            for _ in range(3):
                assert watch.broken() is None
                watch.look()
        assert (watch.broken(), ends) == ("disk", ["ended"])

    def test_what_keeps_it_from_looking_is_raised_to_whoever_asks_and_ends_the_guest(self):
        ended = threading.Event()

        def fail() -> bool:
            raise OSError("the group is gone")

        with JailWatch({"memory": fail}, ended.set, time.monotonic) as watch:
            watch.start()
            assert ended.wait(20)
            with pytest.raises(OSError, match="the group is gone"):
                watch.broken()

    @EVERY
    def test_no_watch_is_left_when_a_fault_of_ours_ends_an_episode(self, name):
        def fault(method, params):
            raise ArenaError("U3010", "catalogue down")

        with pytest.raises(ArenaError):
            run(BEHIND_THE_HOST.format(work="threading.Event().wait"), CallHost(fault), sandbox_of(name))
        assert not [thread for thread in threading.enumerate() if thread.name == "jail-watch"]


class TestWhatIsCounted:
    def test_a_socket_pair_counts_with_all_that_it_may_hold_and_once_for_those_that_share_it(self):
        program = "import os, socket\nx = [socket.socketpair() for _ in range(50)]\n{fork}\nprint(flush=True)\ninput()"
        sizes = []
        for fork in ("", "os.fork()"):
            command = [sys.executable, "-c", program.format(fork=fork)]
            with subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
            ) as top:
                assert top.stdout is not None and top.stdin is not None
                for _ in range(2 if fork else 1):
                    top.stdout.readline()
                family = descendants(top.pid)
                sizes.append(held_bytes(family, 0) - counted_bytes(family))
                assert held_bytes(family, ENOUGH) >= held_bytes(family, 0)  # cheap first: never less
                top.stdin.close()
                top.stdin = None
                for pid in family:
                    os.kill(pid, 9)
        assert all(100 * socket_bytes() <= size < 130 * socket_bytes() for size in sizes), sizes

    def test_a_process_behind_a_dead_first_thread_is_seen_with_its_memory(self):
        program = """
import ctypes, os, threading, time
def hold():
    block = bytearray(b"x" * (64 << 20))
    print(flush=True)
    time.sleep(60)
threading.Thread(target=hold).start()
ctypes.CDLL(None).syscall({"x86_64": 60, "aarch64": 93}[os.uname().machine], 0)
"""
        with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as top:
            assert top.stdout is not None
            top.stdout.readline()
            deadline = time.monotonic() + 20
            while is_alive(top.pid) and time.monotonic() < deadline:
                time.sleep(0.01)
            assert not is_alive(top.pid)  # by its own number it is a zombie
            assert (memory_of(top.pid) or 0) > 64 << 20
            top.kill()

    @UNGROUPED
    def test_mappings_without_end_are_more_memory_than_a_jail_may(self, name):
        source = """
import ctypes, mmap, time
def agent_main(p):
    block = mmap.mmap(-1, 60 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    libc, start = ctypes.CDLL(None), ctypes.addressof(ctypes.c_char.from_buffer(block))
    for number in range(0, 14_000, 2):
        libc.mprotect(ctypes.c_void_p(start + 4096 * number), ctypes.c_size_t(4096), 1)
    time.sleep(20)
"""
        assert run(source, None, sandbox_of(name)).end == "memory"

    @pytest.mark.parametrize("name", ["bubblewrap", "bubblewrap without cgroup"])
    def test_names_without_content_have_a_limit_though_they_take_no_space(self, name):
        source = """
import os, time
def agent_main(p):
    for number in range({count}):
        os.close(os.open("/tmp/" + str(number), os.O_CREAT | os.O_WRONLY))
    time.sleep({rest})
"""
        sandbox = sandbox_of(name)
        assert run(source.format(count=FILES_AT_MOST - 1_000, rest=0.3), None, sandbox).end == "final"
        assert run(source.format(count=FILES_AT_MOST + 1_000, rest=20), None, sandbox).end == "disk"


LOOK_AROUND = """
import ctypes, os
def attempt(action):
    try:
        return str(action())
    except OSError as error:
        return type(error).__name__
def read(path):
    with open(path, "rb") as file: return file.read(4000)
def agent_main(p):
    pid = {pid}
    names = ("cmdline", "environ", "maps", "mountinfo")
    looks = {{name: attempt(lambda: read(f"/proc/{{pid}}/{{name}}")) for name in names}}
    looks["memory"] = attempt(lambda: os.close(os.open(f"/proc/{{pid}}/mem", os.O_RDWR)))
    looks["root"] = attempt(lambda: os.listdir(f"/proc/{{pid}}/root"))
    looks["self"] = attempt(lambda: read("/proc/self/mountinfo"))
    return looks
"""


class TestTheFirstProcess:
    @EVERY
    def test_a_guest_sees_neither_the_memory_nor_the_paths_of_what_started_it(self, name):
        for pid in ("1", "os.getppid()"):
            looks = json.loads(run(LOOK_AROUND.format(pid=pid), None, sandbox_of(name)).claim)
            assert set(looks.values()) <= {"FileNotFoundError", "PermissionError"}, looks

    def test_the_same_look_without_a_jail_finds_all_of_it(self):
        program = LOOK_AROUND.format(pid="os.getpid()") + "\nprint(__import__('json').dumps(agent_main(None)))"
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
        looks = json.loads(done.stdout)
        assert not {"FileNotFoundError", "PermissionError"} & set(looks.values()), looks
        assert str(Path(sys.executable).name) in looks["cmdline"]
