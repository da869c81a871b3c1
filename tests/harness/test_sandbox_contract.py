"""The contract of every jail: what any level must do for honest agents and against hostile ones.

Payloads are harmless, and each bomb runs only behind the limit under test. Verdicts come from the host where it can see
the effect.
"""

from __future__ import annotations

import json
import struct
import time

import pytest

from foundation.errors import ArenaError
from harness.sandbox.port import EpisodeOver, GuestExit, GuestJob, Host
from harness.sandbox.seccomp import DENIED, native_architecture
from tests.harness.jail_stand import CallHost, reference_sandbox, run, sandbox_of


class AnySource:
    """The level without a jail, for whatever source it is given."""

    def run(self, job: GuestJob, host: Host) -> GuestExit:
        return reference_sandbox(job.source).run(job, host)


@pytest.fixture(params=["bubblewrap", "landlock"])
def sandbox(request):
    return sandbox_of(request.param)


@pytest.fixture(params=["bubblewrap", "landlock", "reference"])
def level(request):
    return AnySource() if request.param == "reference" else sandbox_of(request.param)


CALLING = "from arena_sdk import tools\ndef agent_main(p): return tools.call('x')"
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

# What hostile code does with the runner's own descriptors: 3 is the pipe to it, 4 the pipe from it.
FORGED = """
import json, os, struct, time
def frame(body): return struct.pack(">I", len(body)) + body
def agent_main(p):
    {statement}
    time.sleep(30)
"""
CALL = b'{"jsonrpc":"2.0","id":%d,"method":"tool.call","params":{"name":"x","arguments":"{}"}}'
FORGERIES = {
    "an announced frame of 4 GB": (b"\xff\xff\xff\xff", "frame"),
    "an id twice": ((CALL % 5, CALL % 5), "protocol"),
}  # fmt: skip


class TestEndings:
    """How guests end: stopped by the protocol and the host loop, so every level agrees on it, without a jail too."""

    @pytest.mark.parametrize("case", ENDINGS)
    def test_every_ending_is_told_apart(self, level, case):
        source, end, kind, error = ENDINGS[case]
        ended = run(source, None, level, agent_time_ms=500 if end == "wall_clock" else 20_000)
        assert (ended.end, ended.error_kind) == (end, kind), ended
        assert error in ended.error

    @pytest.mark.parametrize("case", FORGERIES)
    def test_a_forged_frame_ends_the_episode(self, level, case):
        body, end = FORGERIES[case]
        bodies = body if isinstance(body, tuple) else (body,)
        raw = b"".join(b if b[:1] in (b"\xff", b"\x00") else struct.pack(">I", len(b)) + b for b in bodies)
        assert run(FORGED.format(statement=f"os.write(4, {raw!r})"), None, level).end == end

    def test_an_agent_that_asks_without_reading_cannot_block_the_host(self, level):
        source = FORGED.format(
            statement="i = 0\n    while True:\n        i += 1\n        os.write(4, frame(json.dumps("
            '{"jsonrpc": "2.0", "id": i, "method": "tool.call", "params": {}}).encode()))'
        )
        host = CallHost(lambda method, params: {"result": "x" * 50_000, "failure": None})
        assert run(source, host, level).end == "protocol"

    def test_what_does_not_fit_into_a_frame_costs_an_exception_or_nothing(self, level):
        source = """
from arena_sdk import ToolError, tools
def agent_main(p):
    try:
        tools.find_product(q="x" * 5000)
    except ToolError as error:
        return error.code
"""
        assert run(source, None, level, frame_bytes=4096).claim == '"A1029"'
        ended = run("def agent_main(p): return 'x' * 100000", None, level, frame_bytes=50_000)
        assert ended.end == "final" and json.loads(ended.claim)["oversized_bytes"] > 100_000

    def test_agent_time_stands_still_while_the_host_works(self, level):
        def slow(method, params):
            time.sleep(1.5)
            return {"result": "1", "failure": None}

        source = "from arena_sdk import tools\ndef agent_main(p): return [tools.call('x') for _ in range(3)]"
        ended = run(source, CallHost(slow), level, agent_time_ms=3_000)
        assert ended.end == "final" and ended.agent_time_ms < 3_000

    def test_an_honest_agent_has_threads_asyncio_subprocesses_and_files(self, level):
        def answer(method, params):
            return {"result": "[]", "failure": None} if method == "tool.call" else {"content": "hello"}

        host = CallHost(answer)
        ended = run(HONEST, host, level)
        assert ended.end == "final", (ended, ended.output_tail)
        refused = ["A1050", "no such tool"]
        assert json.loads(ended.claim) == ["p", 4, 4, "7\n", refused, ["m1", "m2"], "hello", "hello", "q"]
        assert [method for method, _ in host.calls].count("tool.call") == 9

    def test_a_stop_by_the_host_ends_the_guest(self, level):
        def stop(method, params):
            raise EpisodeOver("enough")

        assert run(CALLING, CallHost(stop), level).end == "stopped"

    def test_a_fault_of_ours_passes_through_and_is_not_the_agents(self, level):
        def fail(method, params):
            raise ArenaError("U3010", "catalogue down")

        with pytest.raises(ArenaError, match="U3010"):
            run(CALLING, CallHost(fail), level)

    def test_sets_are_ordered_alike_in_every_run(self, level):
        source = "def agent_main(p): return list({str(i) for i in range(50)})"
        assert run(source, None, level).claim == run(source, None, level).claim


def test_an_honest_agent_has_processes_pipes_copies_and_a_database_in_memory(sandbox):
    source = """
import asyncio, multiprocessing, os, shutil, sqlite3, sys, tempfile
async def echo():
    pipes = dict(stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE)
    child = await asyncio.create_subprocess_exec(sys.executable, "-c", "print(input())", **pipes)
    return (await child.communicate(b"told"))[0].decode()
def square(number): return number * number
def pool():
    with multiprocessing.Pool(2) as workers: return workers.map(square, [1, 2])
def agent_main(p):
    here, there = multiprocessing.Pipe()
    child = multiprocessing.Process(target=there.send, args=(5,))
    child.start()
    sent = here.recv()
    child.join()
    with tempfile.TemporaryDirectory() as folder:
        open(folder + "/a", "w").write("x" * 100_000)
        shutil.copy(folder + "/a", folder + "/b")
        size = os.path.getsize(folder + "/b")
        tables = []
        for name in (":memory:", f"file:{folder}/db?nolock=1"):
            database = sqlite3.connect(name, uri=True)
            database.execute("create table t(a)")
            database.execute("insert into t values(7)")
            database.commit()
            tables += database.execute("select a from t").fetchone()
    return [asyncio.run(echo()), sent, size, tables, pool(), os.cpu_count() > 0]
"""
    squares = [1, 4]
    if sandbox.level.name == "landlock":  # no /dev/shm: no locks of multiprocessing, and no pools
        source, squares = source.replace("pool(), os", "[], os"), []
    ended = run(source, None, sandbox)
    assert ended.claim and json.loads(ended.claim) == ["told\n", 5, 100_000, [7, 7], squares, True], ended


def test_no_disk_of_the_host_is_measured_or_synced(sandbox):
    numbers = [DENIED[name][native_architecture().column] for name in ("sync", "syncfs", "sync_file_range")]
    source = f"""
import ctypes, os, shutil
def agent_main(p):
    libc, passed = ctypes.CDLL(None, use_errno=True), []
    for number in {numbers}:
        if libc.syscall(number, -1, 0, 0, 0) != -1 or ctypes.get_errno() != 1: passed.append(number)
    for path in ("/", "/dev/null", os.path.dirname(os.__file__), os.getcwd()):
        for look in (os.statvfs, shutil.disk_usage, lambda path: os.fstatvfs(os.open(path, os.O_RDONLY))):
            try: passed.append([path, str(look(path))])
            except PermissionError: pass
    return passed
"""
    assert run(source, None, sandbox).claim == "[]"
