"""Agents in real jails: honest ones must work, hostile ones must end as what they are.

Payloads are harmless, and each bomb runs only behind the limit under test (sandbox notes, section 12). Verdicts come
from the host's side where the host can see the effect.
"""

from __future__ import annotations

import json
import os
import socket
import struct
import threading
import time
from pathlib import Path

import pytest

from harness.sandbox.port import EpisodeOver
from harness.sandbox.processes import descendants
from problems.errors import ArenaError
from tests.harness.jail_stand import (
    WHY_NO_JAIL,
    CallHost,
    best_sandbox,
    guest_root,
    has_jail,
    jail_without_cgroup,
    reference_sandbox,
    run,
)


@pytest.fixture
def jail() -> None:
    if not has_jail():
        pytest.skip(WHY_NO_JAIL)


needs_jail = pytest.mark.usefixtures("jail")


def run_at(level: str, source: str, host: CallHost | None = None, **limits: int):
    """The same protocol at both levels: agents that end by themselves must end alike."""
    if level == "jail" and not has_jail():
        pytest.skip(WHY_NO_JAIL)
    sandbox = best_sandbox() if level == "jail" else reference_sandbox(source)
    return run(source, host, sandbox, **limits)


LEVELS = pytest.mark.parametrize("level", ["jail", "reference"])

HONEST = """
from __future__ import annotations
import asyncio, dataclasses, os, queue, subprocess, sys, threading
from arena_sdk import ToolError, llm, tools

@dataclasses.dataclass
class Pick:
    product_id: str

async def gather():
    return await asyncio.gather(*(asyncio.to_thread(tools.find_product, q=str(i)) for i in range(4)))

def agent_main(problem):
    results = queue.Queue()
    threads = [threading.Thread(target=lambda: results.put(tools.find_product(q="t"))) for _ in range(4)]
    [t.start() for t in threads], [t.join() for t in threads]
    child = subprocess.run([sys.executable, "-c", "import json; print(json.dumps(7))"], capture_output=True, text=True)
    try:
        tools.call("refuse")
        refused = None
    except ToolError as error:
        refused = [error.code, error.message]
    with open(os.path.join(os.environ["TMPDIR"], "note"), "w") as file:
        file.write("mine")
    reply = llm.chat([{"role": "user", "content": "hi"}])
    return [Pick("p").product_id, results.qsize(), len(asyncio.run(gather())), child.stdout, refused, llm.models(),
            reply.content, reply["content"], problem["query"]]
"""


@LEVELS
def test_an_honest_agent_has_threads_asyncio_subprocesses_and_files(level):
    def answer(method, params):
        return {"result": "[]", "failure": None} if method == "tool.call" else {"content": "hello"}

    host = CallHost(answer)
    ended = run_at(level, HONEST, host)
    assert ended.end == "final", (ended, ended.output_tail)
    assert json.loads(ended.claim) == [
        "p", 4, 4, "7\n", ["A1050", "no such tool"], ["m1", "m2"], "hello", "hello", "q",
    ]  # fmt: skip
    assert [method for method, _ in host.calls].count("tool.call") == 9


ENDINGS = {
    "returns nothing": ("def agent_main(p): pass", "final", "", ""),
    "raises": ("def agent_main(p): raise KeyError('x')", "final", "raise", "KeyError: 'x'"),
    "exits": ("def agent_main(p): raise SystemExit(3)", "final", "raise", "SystemExit: 3"),
    "does not parse": ("def def", "final", "load", "SyntaxError"),
    "fails on import": ("import numpy", "final", "load", "ModuleNotFoundError"),
    "has no agent_main": ("x = 1", "final", "load", "MissingAgentMainError"),
    "agent_main is no function": ("agent_main = 3", "final", "load", "MissingAgentMainError"),
    "returns an object": ("def agent_main(p): return object()", "final", "not_json", "TypeError"),
    "returns NaN": ("def agent_main(p): return float('nan')", "final", "not_json", "ValueError"),
    "returns itself": ("def agent_main(p):\n l = []\n l.append(l)\n return l", "final", "not_json", "ValueError"),
    "leaves by os._exit": ("import os\ndef agent_main(p): os._exit(9)", "died", "", "9"),
    "loops for ever": ("def agent_main(p):\n while True: pass", "wall_clock", "", ""),
    "ignores signals": (
        "import signal\nfor s in set(signal.Signals) - {9, 19}: signal.signal(s, signal.SIG_IGN)\n"
        "def agent_main(p):\n while True: pass",
        "wall_clock", "", "",
    ),
    "floods stdout": ("def agent_main(p):\n while True: print('x' * 10000)", "output", "", ""),
    "floods stderr": ("import sys\ndef agent_main(p):\n while True: sys.stderr.write('x' * 10000)", "output", "", ""),
}  # fmt: skip


@LEVELS
@pytest.mark.parametrize("case", ENDINGS)
def test_every_ending_is_told_apart(level, case):
    source, end, kind, error = ENDINGS[case]
    ended = run_at(level, source, agent_time_ms=500 if end == "wall_clock" else 20_000)
    assert (ended.end, ended.error_kind) == (end, kind), ended
    assert error in ended.error


# What hostile code does with the runner's own descriptors: 3 is the pipe to it, 4 the pipe from it.
FORGED = """
import json, os, struct, time
def frame(body): return struct.pack(">I", len(body)) + body
def agent_main(p):
    {statement}
    time.sleep(30)
"""
DEEP = b"[" * 9000 + b"]" * 9000
CALL = b'{"jsonrpc":"2.0","id":%d,"method":"tool.call","params":{"name":"x","arguments":"{}"}}'
FORGERIES = {
    "an announced frame of 4 GB": (b"\xff\xff\xff\xff", "frame"),
    "garbage": (b"\x00\x00\x00\x04\xff\xfe\xfd\xfc", "protocol"),
    "a reply never asked for": (b'{"jsonrpc":"2.0","id":1,"result":{}}', "protocol"),
    "an id twice": ((CALL % 5, CALL % 5), "protocol"),
    "an unknown method": (b'{"jsonrpc":"2.0","id":1,"method":"record.append","params":{}}', "protocol"),
    "a deep frame": (b'{"jsonrpc":"2.0","id":1,"method":"tool.call","params":{"x":' + DEEP + b"}}", "protocol"),
    "NaN": (b'{"jsonrpc":"2.0","id":1,"method":"tool.call","params":{"x":NaN}}', "protocol"),
}  # fmt: skip


@LEVELS
@pytest.mark.parametrize("case", FORGERIES)
def test_a_forged_frame_ends_the_episode(level, case):
    body, end = FORGERIES[case]
    bodies = body if isinstance(body, tuple) else (body,)
    raw = b"".join(b if b[:1] in (b"\xff", b"\x00") else struct.pack(">I", len(b)) + b for b in bodies)
    ended = run_at(level, FORGED.format(statement=f"os.write(4, {raw!r})"))
    assert ended.end == end, ended


@LEVELS
def test_an_agent_that_asks_without_reading_cannot_block_the_host(level):
    source = FORGED.format(
        statement="i = 0\n    while True:\n        i += 1\n        os.write(4, frame(json.dumps("
        '{"jsonrpc": "2.0", "id": i, "method": "tool.call", "params": {}}).encode()))'
    )
    ended = run_at(level, source, CallHost(lambda method, params: {"result": "x" * 50_000, "failure": None}))
    assert ended.end == "protocol"


@LEVELS
def test_a_request_over_the_frame_limit_is_an_exception_the_agent_can_read(level):
    source = """
from arena_sdk import ToolError, tools
def agent_main(p):
    try:
        tools.find_product(q="x" * 5000)
    except ToolError as error:
        return error.code
"""
    assert run_at(level, source, frame_bytes=4096).claim == '"A1029"'


@LEVELS
def test_a_huge_return_value_costs_nothing_since_it_is_no_evidence(level):
    ended = run_at(level, "def agent_main(p): return 'x' * 100000", frame_bytes=50_000)
    assert (ended.end, ended.claim) == ("final", '{"oversized_bytes":100002}')


@LEVELS
def test_a_stop_by_the_host_ends_the_guest_at_once(level):
    def stop(method, params):
        raise EpisodeOver("enough")

    started = time.monotonic()
    ended = run_at(level, "from arena_sdk import tools\ndef agent_main(p): tools.call('x')", CallHost(stop))
    assert ended.end == "stopped" and time.monotonic() - started < 15


@LEVELS
def test_a_fault_of_ours_passes_through_and_is_not_the_agents(level):
    def fail(method, params):
        raise ArenaError("U3010", "catalogue down")

    with pytest.raises(ArenaError) as caught:
        run_at(level, "from arena_sdk import tools\ndef agent_main(p): tools.call('x')", CallHost(fail))
    assert caught.value.failure.code == "U3010"


@LEVELS
def test_agent_time_stands_still_while_the_host_works(level):
    def slow(method, params):
        time.sleep(0.4)
        return {"result": "1", "failure": None}

    source = "from arena_sdk import tools\ndef agent_main(p): return [tools.call('x') for _ in range(3)]"
    ended = run_at(level, source, CallHost(slow), agent_time_ms=900)
    assert ended.end == "final" and ended.agent_time_ms < 900


@LEVELS
def test_sets_are_ordered_alike_in_every_run(level):
    source = "def agent_main(p): return list({str(i) for i in range(50)})"
    assert run_at(level, source).claim == run_at(level, source).claim


# -- what only a jail can promise


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
    assert ended.end == "resources" or ended.error.startswith("MemoryError"), ended


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
    assert ended.end == "resources", ended


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
    writable = [m.split()[1] for m in open("/proc/self/mounts") if os.access(m.split()[1], os.W_OK)]
    return {directory: fill(directory) for directory in writable}
"""
    filled = json.loads(run(source, disk_bytes=8 << 20).claim)
    assert filled["/tmp"] and sum(filled.values()) <= 9 << 20, filled


@needs_jail
def test_cpu_time_is_bounded_whatever_the_clock_says():
    source = "import signal\nsignal.signal(signal.SIGXCPU, signal.SIG_IGN)\ndef agent_main(p):\n while True: pass"
    assert run(source, cpu_time_s=1).end == "resources"


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

    def look(method, params):
        seen.extend(descendants(os.getpid())[1:])
        return {"result": "1", "failure": None}

    assert run(source, CallHost(look)).end == "final"
    assert len(seen) >= 4  # bubblewrap twice, the agent, its daemon
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
