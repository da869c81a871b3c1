"""What only a jail can promise: agents that reach for the host, its memory, its processes or the next problem.

Payloads are harmless, and each bomb runs only behind the limit under test. Verdicts come from the host's side where the
host can see the effect.
"""

from __future__ import annotations

import json
import os
import socket
import threading
from pathlib import Path

import pytest

from harness.sandbox.processes import descendants
from tests.harness.jail_stand import (
    WHY_NO_JAIL,
    CallHost,
    best_sandbox,
    guest_root,
    has_jail,
    jail_without_cgroup,
    run,
)


@pytest.fixture
def jail() -> None:
    if not has_jail():
        pytest.skip(WHY_NO_JAIL)


needs_jail = pytest.mark.usefixtures("jail")


@needs_jail
def test_the_host_cannot_be_seen_from_inside(tmp_path):
    secret = tmp_path / "answers.json"
    secret.write_text("42")
    secret.chmod(0o644)
    os.environ["ARENA_TEST_SECRET"] = "hunter2"
    with socket.create_server(("127.0.0.1", 0)) as server:
        source = f"""
import glob, os, socket
def attempt(action):
    try:
        action()
    except OSError as error:
        return type(error).__name__
    return "reached"
def agent_main(p):
    return {{
        "file": attempt(lambda: open({str(secret)!r}).read()),
        "passwd": attempt(lambda: open("/etc/passwd").read()),
        "root": attempt(lambda: os.listdir("/root")),
        "home": attempt(lambda: os.listdir("/home")),
        "guest roots": attempt(lambda: os.listdir({str(guest_root().path)!r})),
        "port": attempt(lambda: socket.create_connection(("127.0.0.1", {server.getsockname()[1]}), 2)),
        "dns": attempt(lambda: socket.getaddrinfo("example.org", 80)),
        "kill": attempt(lambda: os.kill({os.getpid()}, 0)),
        "setuid": attempt(lambda: os.setuid(0)),
        "write": attempt(lambda: open("/arena/runner.py", "a").write("")),
        "environment": "reached" if "hunter2" in str(dict(os.environ)) else "no",
        "command lines": "reached" if "pytest" in str([open(f).read() for f in glob.glob("/proc/*/cmdline")]) else "no",
    }}
"""
        try:
            claim = json.loads(run(source).claim)
        finally:
            del os.environ["ARENA_TEST_SECRET"]
        server.setblocking(False)
        with pytest.raises(BlockingIOError):  # the host's side of the attempt
            server.accept()
    assert "reached" not in claim.values(), claim
    assert secret.read_text() == "42"


@needs_jail
def test_thirty_threads_fit_into_the_memory_limit():
    source = """
import threading, time
def agent_main(p):
    threads = [threading.Thread(target=lambda: [bytearray(10000), time.sleep(0.2)]) for _ in range(30)]
    [t.start() for t in threads]
    return len([t.join() for t in threads])
"""
    assert run(source).claim == "30"


@needs_jail
def test_nothing_is_left_for_the_next_problem():
    write = "def agent_main(p):\n open('/tmp/note', 'w').write('x')\n open('/dev/shm/note', 'w').write('x')"
    look = "import os\ndef agent_main(p): return [os.listdir('/tmp'), os.listdir('/dev/shm')]"
    assert run(write).end == "final"
    assert json.loads(run(look).claim) == [[], []]


@needs_jail
@pytest.mark.parametrize("sandbox", ["best", "without cgroup"])
def test_one_process_cannot_take_more_memory_than_its_limit(sandbox):
    source = "def agent_main(p):\n b = bytearray(400 << 20)\n return len(b)"
    chosen = best_sandbox() if sandbox == "best" else jail_without_cgroup()
    ended = run(source, sandbox=chosen, memory_bytes=200 << 20)
    assert ended.end == "memory" or ended.error.startswith("MemoryError"), ended


@needs_jail
@pytest.mark.parametrize("sandbox", ["best", "without cgroup"])
def test_many_processes_cannot_take_more_memory_than_one_jail_may(sandbox):
    source = """
import os, time
def agent_main(p):
    for _ in range(6):
        if os.fork() == 0:
            block = bytearray(60 << 20)
            for i in range(0, len(block), 4096): block[i] = 1
            time.sleep(60)
    time.sleep(5)
    return "unbounded"
"""
    chosen = best_sandbox() if sandbox == "best" else jail_without_cgroup()
    ended = run(source, sandbox=chosen, memory_bytes=150 << 20)
    assert ended.end == "memory", ended


@needs_jail
def test_forks_end_at_the_limit_inside_the_jail():
    source = """
import os, time
def agent_main(p):
    count = 0
    try:
        for _ in range(60):
            if os.fork() == 0:
                time.sleep(30)
            count += 1
    except OSError as error:
        return [count, type(error).__name__]
    return [count, ""]
"""
    count, error = json.loads(run(source, processes=20).claim)
    assert count < 20 and error == "BlockingIOError"


@needs_jail
def test_limits_cannot_be_raised_again():
    source = """
import resource
def agent_main(p):
    refused = []
    for name in ("AS", "NPROC", "NOFILE", "CPU", "FSIZE", "CORE"):
        which = getattr(resource, "RLIMIT_" + name)
        soft, hard = resource.getrlimit(which)
        try:
            resource.setrlimit(which, (hard + 1, hard + 1))
        except (ValueError, OSError):
            refused.append(name)
    return refused
"""
    assert len(json.loads(run(source).claim)) == 6


@needs_jail
def test_the_disk_is_small_on_every_writable_mount():
    source = """
import os
from arena_sdk import tools
def fill(directory):
    written = 0
    try:
        for i in range(64):
            with open(os.path.join(directory, f"f{i}"), "wb") as file:
                written += file.write(b"x" * (1 << 20))
    except OSError:
        pass
    return written
def agent_main(p):
    tools.call("look")
    writable = [d for d, _, _ in os.walk("/") if os.access(d, os.W_OK)]
    return {directory: fill(directory) for directory in writable}
"""
    mounted: set[str] = set()
    before = set(descendants(os.getpid()))

    def look(method, params):
        (*_, guest) = [pid for pid in descendants(os.getpid()) if pid not in before]
        lines = Path("/proc", str(guest), "mounts").read_text().splitlines()
        mounted.update(line.split()[1] for line in lines if line.split()[3].startswith("rw"))
        return {"result": "1", "failure": None}

    filled = json.loads(run(source, CallHost(look), disk_bytes=8 << 20).claim)
    # Devices are bind mounts of one file each: nothing can be put there.
    assert {place for place in mounted if not place.startswith("/dev/")} | {"/dev/shm"} == set(filled)
    assert filled["/tmp"] and sum(filled.values()) <= 9 << 20, filled


@needs_jail
def test_cpu_time_is_bounded_whatever_the_clock_says():
    source = "import signal\nsignal.signal(signal.SIGXCPU, signal.SIG_IGN)\ndef agent_main(p):\n while True: pass"
    assert run(source, cpu_time_s=1).end == "cpu"


@needs_jail
@pytest.mark.parametrize("sandbox", ["best", "without cgroup"])
def test_cpu_time_is_that_of_all_processes_together(sandbox):
    source = """
import os, time
def agent_main(p):
    for _ in range(30):
        if os.fork() == 0:
            end = time.process_time() + 0.4
            while time.process_time() < end: pass
            os._exit(0)
        os.wait()
"""
    chosen = best_sandbox() if sandbox == "best" else jail_without_cgroup()
    assert run(source, sandbox=chosen, cpu_time_s=2).end == "cpu"


@needs_jail
def test_a_daemon_does_not_outlive_its_episode():
    source = """
import os, time
from arena_sdk import tools
def agent_main(p):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.closerange(0, 99)
            time.sleep(300)
        os._exit(0)
    time.sleep(0.3)
    tools.call("look")
"""
    seen: list[int] = []

    before = set(descendants(os.getpid()))

    def look(method, params):
        seen.extend(pid for pid in descendants(os.getpid()) if pid not in before)
        return {"result": "1", "failure": None}

    assert run(source, CallHost(look)).end == "final"
    assert len(seen) >= 4  # bubblewrap twice, the agent, its daemon
    assert seen
    assert not set(seen) & set(descendants(os.getpid()))
    assert not [pid for pid in seen if _is_alive(pid)]


@needs_jail
def test_jails_run_side_by_side_with_uids_of_their_own():
    barrier = threading.Barrier(3)
    claims: list[int] = []

    def meet(method, params):
        barrier.wait(timeout=20)
        return {"result": "1", "failure": None}

    source = "import os\nfrom arena_sdk import tools\ndef agent_main(p):\n tools.call('meet')\n return os.getuid()"
    threads = [threading.Thread(target=lambda: claims.append(int(run(source, CallHost(meet)).claim))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(claims) == 3
    assert len(set(claims)) == (3 if "own-uid" in best_sandbox().level.layers else 1)
    assert os.getuid() not in claims or "own-uid" not in best_sandbox().level.layers


@needs_jail
@pytest.mark.parametrize(
    "attempt",
    [
        "ctypes.CDLL(None, use_errno=True).unshare(0x10000000)",
        "ctypes.CDLL(None, use_errno=True).ptrace(-1, 0, 0, 0)",
        "ctypes.CDLL(None, use_errno=True).mount(None, None, None, 0, None)",
        "ctypes.CDLL(None, use_errno=True).memfd_create(None, 0)",
        "ctypes.CDLL(None, use_errno=True).keyctl(-1, 0, 0, 0, 0)",
        "ctypes.CDLL(None, use_errno=True).syscall(321, -1, 0, 0) if os.uname().machine == 'x86_64' else -1",
    ],
)
def test_dangerous_system_calls_are_refused(attempt):
    source = f"import ctypes, os\ndef agent_main(p):\n try: return {attempt}\n except AttributeError: return -1"
    assert run(source).claim == "-1"


def _is_alive(pid: int) -> bool:
    try:
        return Path("/proc", str(pid), "stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
