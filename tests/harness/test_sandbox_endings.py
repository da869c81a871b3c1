"""How agents end, in a jail and without one: honest ones work, hostile ones end as what they are.

Everything here is stopped by the protocol and the host loop, so both levels must agree on it.
"""

from __future__ import annotations

import json
import struct
import time

import pytest

from foundation.errors import ArenaError
from harness.sandbox.port import EpisodeOver
from tests.harness.jail_stand import (
    WHY_NO_JAIL,
    CallHost,
    best_sandbox,
    has_jail,
    reference_sandbox,
    run,
)


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
    assert ended.end == "final" and json.loads(ended.claim)["oversized_bytes"] > 100_000


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
