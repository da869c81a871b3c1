"""The disk of a guest without a tmpfs of its own: bounded however it is filled, and gone afterwards."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from harness.sandbox import workdir
from harness.sandbox.workdir import UNMEASURABLE, make_work_directory, measure, remove
from tests.harness.jail_stand import run
from tests.harness.landlock_stand import IS_ROOT, best_landlock

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


@pytest.mark.parametrize("way", FILL)
def test_the_disk_is_bounded_however_it_is_filled(way):
    source = f"import mmap, os, time\ndef agent_main(p):{FILL[way]}\n    time.sleep(10)\n    return 'unbounded'"
    ended = run(source, None, best_landlock(), disk_bytes=8 << 20)
    assert ended.end == "disk", ended
    assert not list(Path(tempfile.gettempdir()).glob(f"arena-work-{os.getpid()}-*"))


def test_an_honest_agent_that_starts_and_renames_much_is_not_taken_for_a_hoarder():
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
    assert ended.end == "final" and json.loads(ended.claim) > 1, ended


def test_no_file_can_be_sent_away_in_a_message_where_nobody_could_measure_it():
    source = """
import array, os, socket
def agent_main(p):
    left, right = socket.socketpair()
    with open("f", "wb") as file:
        socket.send_fds(left, [b"x"], [file.fileno()])
"""
    assert run(source, None, best_landlock()).error.startswith("PermissionError")


def test_any_tree_can_be_measured_and_removed(tmp_path):
    work = make_work_directory(None)
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


HOLDING = """
import os, sys
with open(sys.argv[1], "wb") as file:
    file.write(b"x" * 1_000_000)
    file.flush()
    os.unlink(sys.argv[1])
    print("held", flush=True)
    input()
print("let go", flush=True)
sys.stdin.read()
"""


def test_deleted_files_count_while_somebody_holds_them():
    """In a process of its own: this one may hold deleted files of other tests."""
    work = make_work_directory(None)
    command = [sys.executable, "-c", HOLDING, str(work.path / "file")]
    try:
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
            assert holder.stdin is not None and holder.stdout is not None
            assert holder.stdout.readline() == "held\n"
            assert measure(work, (holder.pid,), 1 << 20) >= 1_000_000
            print(file=holder.stdin, flush=True)
            assert holder.stdout.readline() == "let go\n"
            assert measure(work, (holder.pid,), 1 << 20) < 100_000
    finally:
        remove(work.path)


def test_directories_of_dead_hosts_are_swept_and_others_stay():
    parent = Path(tempfile.gettempdir())
    dead, living = parent / "arena-work-999999999-abc", parent / f"arena-work-{os.getpid()}-abc"
    for path in (dead, living):
        path.mkdir()
    try:
        workdir.sweep_work_directories()
        assert not dead.exists() and living.exists()
    finally:
        living.rmdir()
