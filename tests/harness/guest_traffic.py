"""Generated guests: byte streams as a jail's process could send them, with the ways in which it can end.

`traffic(seed)` is the same for the same seed. Half of a stream is well-formed frames whose values are hostile (depth,
size, encodings, numbers, call texts); the rest breaks the frames themselves. `PipeSandbox` plays one through the real
host loop, over real pipes, and reads its death as the adapters do.
"""

from __future__ import annotations

import fcntl
import json
import os
import random
import signal
import struct
import time
from collections.abc import Callable
from typing import NamedTuple

from harness.sandbox.host_loop import GuestConversation, Pipes, encode_result
from harness.sandbox.jail import explain_death
from harness.sandbox.port import GuestExit, GuestJob, Host, SandboxLevel
from harness.tools.registry import profile_tools

PIPE_BYTES = 1 << 20
TOOLS = tuple(profile_tools("sn15"))
PARAMETERS = tuple(dict.fromkeys(one.name for tool in profile_tools("sn15").values() for one in tool.parameters))


class Traffic(NamedTuple):
    """What one guest sends, and how its process ends: an exit status as a supervisor reports it."""

    stream: bytes
    status: int
    was_out_of_memory: bool


def traffic(seed: int) -> Traffic:
    """The guest of that seed."""
    rng = random.Random(seed)
    frames: list[bytes] = []
    for request_id in range(1, rng.choice((1, 2, 2, 3, 5, 9))):
        frames.append(_broken(rng) if rng.random() < 0.08 else frame(_request(rng, request_id)))
    if rng.random() < 0.6:
        frames.append(frame({"jsonrpc": "2.0", "method": "final", "params": _last_word(rng)}))
    stream = b"".join(frames)
    if rng.random() < 0.05:
        stream = stream[: rng.randrange(len(stream) + 1)]
    return Traffic((READY + stream)[:PIPE_BYTES], _status(rng), rng.random() < 0.02)


def frame(message: object) -> bytes:
    """A frame of the guest's protocol; `message` is a value or JSON text."""
    text = message if isinstance(message, str) else json.dumps(message, ensure_ascii=False)
    body = text.encode("utf-8", "surrogatepass")
    return struct.pack(">I", len(body)) + body


# Sent by the runner before the agent is loaded: what goes wrong until then is no agent's doing.
READY = frame({"jsonrpc": "2.0", "method": "ready", "params": {"python": "3.11"}})


def _status(rng: random.Random) -> int:
    return rng.choice((rng.randrange(256), -rng.choice(sorted(signal.valid_signals())), rng.randrange(-70, 400)))


def _request(rng: random.Random, request_id: int) -> object:
    if rng.random() < 0.4:
        return {"jsonrpc": "2.0", "id": request_id} | _plain_request(rng)
    if rng.random() < 0.55:
        method, params = "tool.call", {"name": _name(rng), "arguments": _arguments(rng)}
    else:
        method, params = "llm.chat", _chat(rng)
    if rng.random() < 0.03:
        params = rng.choice(({}, {"name": None, "arguments": {}}, {"messages": None}, {"name": "", "extra": 1}))
    request = {"jsonrpc": "2.0", "id": request_id, "method": method, "params": params}
    if rng.random() < 0.03:
        request[rng.choice(("id", "method", "params", "jsonrpc"))] = _value(rng)
    return request


def _plain_request(rng: random.Random) -> dict[str, object]:
    """A call that reaches a tool or the model, whatever its text says."""
    text = _text(rng).encode("utf-8", "replace").decode()
    if rng.random() < 0.5:
        return {"method": "llm.chat", "params": {"messages": [{"role": "user", "content": text or "?"}]}}
    arguments = rng.choice(({"q": text}, {"q": "red lamp", "price": text}, {"q": text, "page": rng.choice((1, 2, 9))}))
    return {"method": "tool.call", "params": {"name": "find_product", "arguments": arguments}}


def _name(rng: random.Random) -> str:
    return rng.choice((*TOOLS, *TOOLS, _text(rng), "find_", "terminate ", "llm.chat"))


def _arguments(rng: random.Random) -> object:
    shape = rng.random()
    if shape < 0.6:
        return {rng.choice(PARAMETERS): _value(rng) for _ in range(rng.randrange(5))}
    if shape < 0.8:
        return json.dumps({rng.choice(PARAMETERS): _value(rng) for _ in range(rng.randrange(4))}, ensure_ascii=False)
    return _value(rng)


def _chat(rng: random.Random) -> dict[str, object]:
    roles = ("system", "user", "user", "assistant", "tool", "developer", _text(rng))
    messages: list[object] = []
    for _ in range(rng.randrange(1, 5)):
        message: dict[str, object] = {"role": rng.choice(roles), "content": _content(rng)}
        if rng.random() < 0.15:
            message["tool_calls"] = [{"id": "c", "type": "function", "function": _function(rng)}]
        if rng.random() < 0.1:
            message["tool_call_id"] = _value(rng)
        messages.append(message)
    messages.append({"role": "user", "content": _content(rng)})
    chat: dict[str, object] = {"messages": messages}
    for field in ("model", "temperature", "max_tokens", "tools", "seed", "tool_choice", "n", "stream", "stop"):
        if rng.random() < 0.06:
            chat[field] = _value(rng)
    return chat


def _function(rng: random.Random) -> dict[str, object]:
    return {"name": rng.choice(TOOLS), "arguments": rng.choice((_text(rng), json.dumps(_value(rng)), _value(rng)))}


def _content(rng: random.Random) -> object:
    if rng.random() < 0.1:
        return rng.choice(([{"type": "text", "text": _text(rng)}], [], None, _value(rng)))
    return _text(rng)


def _last_word(rng: random.Random) -> dict[str, object]:
    if rng.random() < 0.5:
        return {"claim": _value(rng)}
    kind = rng.choice(("", "load", "raise", "not_json", "other"))
    errors = (_text(rng), "MemoryError: ", "OSError: [Errno 28] x", "RecursionError: deep", "")
    return {"claim": _value(rng), "error": rng.choice(errors), "kind": kind}


def _value(rng: random.Random) -> object:
    return rng.choice((_text, _number, _deep, _flat, lambda _: None, lambda _: True))(rng)


def _number(rng: random.Random) -> object:
    return rng.choice((0, 1, -1, 2, 2.5, 1e308, -0.0, 1e-320, 2**53, 2**63, 2**64, 10**30, -(2**63), 99999))


def _deep(rng: random.Random) -> object:
    value: object = rng.choice((1, "x", {}, []))
    for level in range(rng.choice((3, 40, 120, 240))):
        value = [value] if rng.random() < 0.5 else {rng.choice(("q", "a", "name", "arguments")): value}
        if level % 50 == 49:
            value = [value, level]
    return value


def _flat(rng: random.Random) -> object:
    items = [rng.choice(("a", 1, None, 2.5, True, "1000000001")) for _ in range(rng.randrange(30))]
    return rng.choice((items, {str(place): item for place, item in enumerate(items)}))


def _text(rng: random.Random) -> str:
    return rng.choice(_TEXTS)(rng)


def _call_text(rng: random.Random) -> str:
    name, value = rng.choice(TOOLS), rng.choice(("1000000001", "red lamp", "x" * 300, "\u202e", "1e99", "0x1"))
    arguments = json.dumps({rng.choice(PARAMETERS): value})
    return rng.choice(
        (
            f'<tool_call>[{json.dumps({"name": name})[:-1]}, "arguments": {arguments}}}]</tool_call>',
            f"Action: {name}\nAction Input: {arguments}",
            f"{name}(q={value!r}, page=1)",
            f"{name}({'(' * 300}",
            f"<{name}><q>{value}</q></{name}>",
            f"name: {name}\narguments:\n  q: {value}\n",
            f"<tool_call>{name}" * 30,
            f"<think>{name}" * 30,
            json.dumps(json.dumps({"name": name, "arguments": arguments})),
        )
    )


_TEXTS: tuple[Callable[[random.Random], str], ...] = (
    lambda rng: rng.choice(("red lamp", "1000000001", "1000000001, 1000000002", "", " ", "0-100", "order", "COD")),
    lambda rng: rng.choice(
        ("\x00", "\x1f\x7f", "\ufeff", "\u2028", "\udcff", "é" * 50, "ﷺ" * 40, "\U0001f9ff", "٣", "²")
    ),
    lambda rng: (
        rng.choice(("[", "{", '{"a":', "(", '"', "\\", "<tool_call>", "find_product(")) * rng.choice((9, 990, 4000))
    ),
    lambda rng: ("[" * (depth := rng.choice((100, 500, 990, 1100)))) + "1" + "]" * depth,
    lambda rng: '{"name": "find_product", "arguments": ' * (depth := rng.choice((9, 300, 990))) + "{}" + "}" * depth,
    lambda rng: "find_product" + '{"q":' * (depth := rng.choice((9, 300, 990))) + "1" + "}" * depth,
    lambda rng: "9" * rng.choice((20, 400, 4301, 9000)),
    lambda rng: f'{{"price": {"9" * rng.choice((400, 4301, 9000))}}}',
    lambda rng: f"find_product(page={'9' * 5000})",
    lambda rng: f"{rng.random()}e{rng.randrange(-9999, 9999)}",
    lambda rng: "".join(chr(rng.choice((rng.randrange(32, 127), rng.randrange(0x3000)))) for _ in range(60)),
    lambda rng: "a" * rng.choice((254, 255, 256, 3000)),
    lambda rng: " ".join(rng.choice(("lamp", "red", "AND", "*:*", "~2", "^9")) for _ in range(rng.choice((5, 1100)))),
    _call_text,
    _call_text,
)


def _broken(rng: random.Random) -> bytes:
    return rng.choice(
        (
            struct.pack(">I", rng.choice((0, 1, 5, 2**31, 2**32 - 1))) + b"{}",
            frame('{"jsonrpc": "2.0", "id": NaN, "method": "tool.call", "params": {}}'),
            frame('{"jsonrpc":"2.0","id":1,"method":"tool.call","params":{"name":"\\ud800","arguments":{}}}'),
            frame("[" * 1500),
            frame('{"a":' * 1500),
            frame("null"),
            struct.pack(">I", 4) + b"\xff\xfe\x00\x01",
            rng.randbytes(rng.randrange(1, 40)),
            frame({"jsonrpc": "2.0", "method": "ready", "params": {}}),
        )
    )


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
