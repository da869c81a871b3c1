"""Generated guests: byte streams as a jail's process could send them, with the ways in which it can end.

`traffic(seed)` is the same for the same seed: well-formed frames whose values are hostile (depth, size, encodings,
numbers, call texts), and some that break the frames themselves. `PipeSandbox` plays one through the real host loop,
over real pipes, and reads its death as the adapters do.
"""

from __future__ import annotations

import fcntl
import json
import os
import random
import signal
import struct
import time
from typing import NamedTuple

from harness.sandbox.jail import explain_death
from harness.sandbox.port import GuestConversation, GuestExit, GuestJob, Host, Pipes, SandboxLevel, encode_result
from harness.tools.registry import profile_tools

PIPE_BYTES = 1 << 20
TOOLS = tuple(profile_tools("sn15"))
PARAMETERS = tuple(dict.fromkeys(one.name for tool in profile_tools("sn15").values() for one in tool.parameters))
ROLES = ("system", "user", "user", "assistant", "tool", "developer", "\ufeff")
FIELDS = ("model", "temperature", "max_tokens", "tools", "seed", "tool_choice", "n", "stream", "stop", "tool_calls")
NUMBERS = (0, 1, -1, 2, 2.5, 1e308, -0.0, 1e-320, 2**53, 2**63, 2**64, 10**30, -(2**63), 99999)
CALL = '{"name": "find_product", "arguments": {"q": "red lamp"}}'
TEXTS = (
    *("red lamp", "1000000001", "1000000001, 1000000002", "", " ", "0-100", "order", "COD", "a" * 256, "9" * 4301),
    *("\x00", "\x1f\x7f", "\ufeff", "\u2028", "\udcff", "é" * 50, "ﷺ" * 40, "\U0001f9ff", "٣", "²", "\u202e"),
    *(opening * 4000 for opening in ("[", "{", '{"a":', "(", '"', "\\", "<tool_call>", "find_product(")),
    *("[" * depth + "1" + "]" * depth for depth in (100, 500, 1100)),
    '{"name": "find_product", "arguments": ' * 300 + "{}" + "}" * 300,
    f"find_product(page={'9' * 5000})",
    f'{{"price": {"9" * 9000}}}',
    "lamp AND *:* ~2 ^9 " * 300,
    f"<tool_call>{CALL}</tool_call>",
    "Action: find_product\nAction Input: " + CALL,
    "find_product(q='red lamp', page=1)",
    "<find_product><q>red lamp</q></find_product>" * 30,
    "name: find_product\narguments:\n  q: red lamp\n",
    json.dumps(CALL),
)
BROKEN = (
    *(struct.pack(">I", length) + b"{}" for length in (0, 1, 5, 2**31, 2**32 - 1)),
    struct.pack(">I", 4) + b"\xff\xfe\x00\x01",
    *(
        struct.pack(">I", len(body)) + body
        for body in (
            b'{"jsonrpc": "2.0", "id": NaN, "method": "tool.call", "params": {}}',
            b'{"jsonrpc":"2.0","id":1,"method":"tool.call","params":{"name":"\\ud800","arguments":{}}}',
            b"[" * 1500,
            b"null",
            b'{"jsonrpc":"2.0","method":"ready","params":{}}',
        )
    ),
)


class Traffic(NamedTuple):
    """What one guest sends, and how its process ends: an exit status as a supervisor reports it."""

    stream: bytes
    status: int
    was_out_of_memory: bool


def traffic(seed: int) -> Traffic:
    """The guest of that seed."""
    rng = random.Random(seed)
    frames = [_request(rng, number) for number in range(1, rng.choice((1, 2, 2, 3, 5, 9)))]
    if rng.random() < 0.6:
        kind = rng.choice(("", "load", "raise", "not_json", "other"))
        error = rng.choice((rng.choice(TEXTS), "MemoryError: ", "OSError: [Errno 28] x", "RecursionError: deep", ""))
        last = {"claim": _value(rng)} if rng.random() < 0.5 else {"error": error, "kind": kind}
        frames.append(frame({"jsonrpc": "2.0", "method": "final", "params": last}))
    stream = b"".join(frames)
    if rng.random() < 0.05:
        stream = stream[: rng.randrange(len(stream) + 1)]
    status = rng.choice((rng.randrange(256), -rng.choice(sorted(signal.valid_signals())), rng.randrange(-70, 400)))
    # "ready" is sent before the agent is loaded: what goes wrong until then is no agent's doing
    ready = frame({"jsonrpc": "2.0", "method": "ready", "params": {"python": "3.11"}})
    return Traffic((ready + stream)[:PIPE_BYTES], status, rng.random() < 0.02)


def frame(message: object) -> bytes:
    """A frame of the guest's protocol."""
    body = json.dumps(message, ensure_ascii=False).encode("utf-8", "surrogatepass")
    return struct.pack(">I", len(body)) + body


def _request(rng: random.Random, request_id: int) -> bytes:
    if rng.random() < 0.08:
        return rng.choice(BROKEN)
    request = {"jsonrpc": "2.0", "id": request_id, "method": "tool.call"}
    text = rng.choice(TEXTS).encode("utf-8", "replace").decode()
    if rng.random() < 0.4:  # a call that reaches a tool or the model, whatever its text says
        arguments: object = rng.choice(({"q": text}, {"q": "red lamp", "price": text}, {"q": text, "page": 2}))
        request["params"] = {"name": "find_product", "arguments": arguments}
    elif rng.random() < 0.5:
        arguments = {rng.choice(PARAMETERS): _value(rng) for _ in range(rng.randrange(5))}
        arguments = rng.choice((arguments, json.dumps(arguments, ensure_ascii=False), _value(rng)))
        request["params"] = {"name": rng.choice((*TOOLS, *TOOLS, text, "terminate ")), "arguments": arguments}
    else:
        contents = (_value(rng) if rng.random() < 0.2 else rng.choice(TEXTS) for _ in range(rng.randrange(1, 5)))
        chat: dict[str, object] = {"messages": [{"role": rng.choice(ROLES), "content": one} for one in contents]}
        chat["messages"] += [{"role": "user", "content": text or "?"}]  # type: ignore[operator]
        chat |= {field: _value(rng) for field in FIELDS if rng.random() < 0.04}
        request |= {"method": "llm.chat", "params": chat}
    if rng.random() < 0.03:
        request[rng.choice(("id", "method", "params", "jsonrpc"))] = _value(rng)
    return frame(request)


def _value(rng: random.Random) -> object:
    value: object = rng.choice((rng.choice(TEXTS), rng.choice(NUMBERS), None, True, ["a", 1, None], {"1": 2.5}))
    for _ in range(rng.choice((0, 0, 0, 1, 40, 240))):
        value = [value] if rng.random() < 0.5 else {rng.choice(PARAMETERS): value}
    return value


class PipeSandbox:
    """A `Sandbox` whose guest is a traffic: all it ever sends is in the pipe before the host begins to read."""

    level = SandboxLevel(
        name="reference-agents-only", layers=(), guest_sha256="0" * 64, python_version="3.11", may_race=False
    )

    def __init__(self, guest: Traffic) -> None:
        self._guest = guest

    def run(self, job: GuestJob, host: Host) -> GuestExit:
        host_in, guest_out = os.pipe()
        guest_in, host_out = os.pipe()
        output, printing = os.pipe()
        for end in (guest_out, host_out):
            fcntl.fcntl(end, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
        os.write(guest_out, self._guest.stream)
        os.close(guest_out)
        os.write(printing, b"a traceback\n")
        os.close(printing)
        with (
            os.fdopen(host_out, "wb", 0) as to_guest,
            os.fdopen(host_in, "rb", 0) as from_guest,
            os.fdopen(output, "rb", 0) as said,
        ):
            pipes = Pipes(to_guest=to_guest, from_guest=from_guest, output=said)
            try:
                first = encode_result(0, {})
                ended = GuestConversation(pipes, job.limits, host, time.monotonic, on_ready=lambda: first).run()
            finally:
                os.close(guest_in)
        if ended.end != "died":
            return ended
        return explain_death(ended, self._guest.status, was_out_of_memory=self._guest.was_out_of_memory)
