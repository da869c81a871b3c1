"""The guest runner: loads one agent inside the jail and speaks with the host over descriptors 0 and 1.

From the host's point of view everything in this process is untrusted once the agent is loaded: it can change this
module, forge frames, or write to the descriptors itself. The host therefore executes, numbers and records every call,
and what is sent at the end is a claim. The identity and the limits set here bind, because they are taken before the
agent is loaded and cannot be given back.

Frame     4-byte big-endian length, then one UTF-8 JSON object (JSON-RPC 2.0).
guest ->  ready      {"python": "3.11.7"}                                  no id; the host may now confine the process
host  ->  bounds     {"identity", "rlimits", "frame_bytes"}
host  ->  init       {"source", "problem", "schemas", "models"}            at once, or when there is an episode
guest ->  tool.call  {"name", "arguments"}                                 id, answered
guest ->  llm.chat   {"model", "messages", ...}                            id, answered
guest ->  final      {"claim": any} or {"error": str, "kind": str}         no id, ends the run
"""

from __future__ import annotations

import gc
import json
import os
import resource
import sys
from _thread import allocate_lock
from types import ModuleType

import sn15
from arena_sdk import _link

_EXIT_HOST_GONE = 3
_ERROR_CHARS = 500
_ENVELOPE_BYTES = 1024


class MissingAgentMainError(Exception):
    """The agent's file has no entry point."""


class _Channel:
    """The framed pipe. One request at a time: threads of the agent queue here."""

    def __init__(self, fd_in: int, fd_out: int) -> None:
        self._in, self._out = fd_in, fd_out
        self._lock = allocate_lock()
        self._last_id = 0
        self._owner_pid = os.getpid()
        self.frame_bytes = 1 << 20

    def receive(self) -> dict[str, object]:
        length = int.from_bytes(self._read(4), "big")
        message: dict[str, object] = json.loads(self._read(length))
        return message

    def send(self, message: dict[str, object]) -> None:
        self._write(_encode(message))

    def request(self, method: str, params: dict[str, object]) -> object:
        if os.getpid() != self._owner_pid:
            raise _link.ToolError("A1027", "only the agent's first process may call tools or models")
        with self._lock:
            message: dict[str, object] = {"jsonrpc": "2.0", "id": self._last_id + 1, "method": method, "params": params}
            # An honest mistake (no JSON, half a surrogate pair, a huge message) fails here, as an exception the agent
            # can read; the host would end the run.
            body = _encode(message)
            if len(body) > self.frame_bytes:
                raise _link.ToolError("A1029", f"request of {len(body)} bytes is over the limit of {self.frame_bytes}")
            self._last_id += 1
            self._write(body)
            reply = self.receive()
        error = reply.get("error")
        if isinstance(error, dict):
            raise _link.ToolError(str(error["data"]), str(error["message"]))
        return reply["result"]

    def _write(self, body: bytes) -> None:
        view = memoryview(len(body).to_bytes(4, "big") + body)
        while view:
            view = view[os.write(self._out, view) :]

    def _read(self, count: int) -> bytes:
        parts = []
        while count:
            chunk = os.read(self._in, min(count, 1 << 16))
            if not chunk:
                os._exit(_EXIT_HOST_GONE)
            parts.append(chunk)
            count -= len(chunk)
        return b"".join(parts)


def _encode(message: dict[str, object]) -> bytes:
    """UTF-8 JSON. Raises TypeError or ValueError for what JSON or UTF-8 cannot hold."""
    return json.dumps(message, allow_nan=False, ensure_ascii=False).encode()


def _open_channel() -> _Channel:
    """Move the pipes away from 0 and 1; what an agent prints then goes to stderr, which the host caps."""
    channel = _Channel(os.dup(0), os.dup(1))
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(2, 1)
    os.close(null)
    return channel


def _confine(identity: int | None, rlimits: dict[str, list[int]]) -> None:
    """Become `identity` (when the jail was set up by root), then set hard limits that the agent cannot raise."""
    if identity is not None:
        os.setgroups([])
        os.setresgid(identity, identity, identity)
        os.setresuid(identity, identity, identity)
    for name, (soft, hard) in rlimits.items():
        which = getattr(resource, "RLIMIT_" + name)
        ceiling = resource.getrlimit(which)[1]
        if ceiling != resource.RLIM_INFINITY:
            soft, hard = min(soft, ceiling), min(hard, ceiling)
        resource.setrlimit(which, (soft, hard))


class _Source:
    """The agent's loader, for those who quote its lines: tracebacks and `inspect`."""

    def __init__(self, source: str) -> None:
        self._source = source

    def get_source(self, name: str) -> str:
        """The file as it was handed over."""
        return self._source


def _load(source: str) -> ModuleType:
    """The agent as a module. `source` is compiled as text, so an encoding cookie means nothing."""
    module = ModuleType("agent")
    module.__file__ = "agent.py"
    module.__dict__["__loader__"] = _Source(source)
    sys.modules["agent"] = module  # before exec: dataclasses and pickle look their module up by name
    exec(compile(source, "agent.py", "exec", dont_inherit=True), module.__dict__)
    if not callable(getattr(module, "agent_main", None)):
        raise MissingAgentMainError("define agent_main(problem) at module level")
    return module


def _describe(error: BaseException) -> str:
    try:
        text = str(error)
    except BaseException:  # noqa: BLE001 - the agent's own class may raise anything from __str__
        text = "(its message cannot be read)"
    shown = f"{type(error).__name__}: {text}"[:_ERROR_CHARS]
    return shown.encode(errors="replace").decode()


def _final(init: dict[str, object], frame_bytes: int) -> dict[str, object]:
    """Load and run the agent. Everything it raises, SystemExit included, becomes its claim of an error."""
    sn15.install()
    kind = "load"
    try:
        module = _load(str(init["source"]))
        kind = "raise"
        problem = json.loads(str(init["problem"]))
        sn15.open_problem(problem)
        claim = module.agent_main(problem)
        if sn15.is_used():
            sn15.settle(claim)
    except BaseException as error:  # noqa: BLE001 - whatever it is, it is the agent's and it is reported
        import contextlib
        import traceback

        with contextlib.suppress(OSError, ValueError, AttributeError):
            traceback.print_exc()
        return {"error": _describe(error), "kind": kind}
    try:
        size = len(_encode({"claim": claim}))
    except BaseException as error:  # noqa: BLE001 - the claim is the agent's object and may do anything when walked
        return {"error": _describe(error), "kind": "not_json"}
    if size > frame_bytes - _ENVELOPE_BYTES:
        return {"claim": {"oversized_bytes": size}}  # a claim is no evidence: its size costs the agent nothing
    return {"claim": claim}


def main() -> None:
    """Serve one run, then wait for the host to end it."""
    channel = _open_channel()
    gc.freeze()
    gc.enable()
    channel.send({"jsonrpc": "2.0", "method": "ready", "params": {"python": sys.version.split()[0]}})
    bounds = channel.receive()["params"]
    assert isinstance(bounds, dict)
    channel.frame_bytes = bounds["frame_bytes"]
    _confine(bounds["identity"], bounds["rlimits"])
    init = channel.receive()["params"]
    assert isinstance(init, dict)
    _link.transport, _link.schemas, _link.models = channel.request, init["schemas"], tuple(init["models"])
    params = _final(init, channel.frame_bytes)
    try:
        sys.stdout.flush()  # before the last frame: the host stops reading after it
        sys.stderr.flush()
    except (OSError, ValueError, AttributeError):
        pass
    channel.send({"jsonrpc": "2.0", "method": "final", "params": params})
    channel.receive()  # the host kills a jail in an order that leaves nothing behind; an own exit would forestall it
