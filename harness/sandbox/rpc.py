"""Frames and messages between host and guest, seen from the host, which trusts none of them.

What `FrameInbox` yields is well formed: one JSON object per frame, a known method, ids that grow, no reply
that was never asked for. Everything else is a `BreachError` that names the cap or rule. JSON is read by orjson, which
refuses NaN, infinities, lone surrogates and deep nesting; of duplicate keys the last wins, so parsed values are always
serialised again before they go anywhere. Nothing is executed here. The first messages to a guest are built here for all
adapters, so that a limit of the policy means the same at every level.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Literal

import msgspec
import orjson

from harness.limits import EpisodeLimits
from harness.sandbox.port import GuestJob

_HEADER = struct.Struct(">I")
_REQUEST_KEYS = {"jsonrpc", "id", "method", "params"}
_NOTICE_KEYS = {"jsonrpc", "method", "params"}
_ID_MAX = 2**53 - 1
_ERROR_NUMBER = -32000  # JSON-RPC's range for errors of the implementation; the registry's code travels as `data`

REQUESTS = ("tool.call", "llm.chat")
OPEN_FILES = 256


class BreachError(Exception):
    """The guest broke a cap or the protocol. `end` is the reason as `GuestExit` names it."""

    def __init__(self, end: Literal["frame", "protocol", "output"], detail: str) -> None:
        self.end, self.detail = end, detail
        super().__init__(detail)


class GuestReady(msgspec.Struct, frozen=True, kw_only=True):
    """The runner waits for its job; the agent is not loaded yet."""

    python: str


class GuestRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A call to be answered."""

    request_id: int
    method: str
    params: dict[str, object]


class Final(msgspec.Struct, frozen=True, kw_only=True):
    """The guest's last word: a claim, or an error with its kind."""

    claim: object = None
    error: str = ""
    kind: Literal["", "load", "raise", "not_json"] = ""


Message = GuestReady | GuestRequest | Final


class FrameInbox:
    """Cuts the guest's byte stream into messages, enforcing `frame_bytes` and `rpc_bytes` before it reads on."""

    def __init__(self, limits: EpisodeLimits) -> None:
        self._limits = limits
        self._buffer = bytearray()
        self._total_bytes = 0
        self._last_id = 0
        self._is_ready = False

    def feed(self, chunk: bytes) -> None:
        """Take bytes as they came. Raises BreachError when the episode's byte cap is passed."""
        self._total_bytes += len(chunk)
        if self._total_bytes > self._limits.rpc_bytes:
            raise BreachError("frame", f"more than {self._limits.rpc_bytes} bytes sent in all")
        self._buffer += chunk

    def messages(self) -> Iterator[Message]:
        """The complete messages so far. Raises BreachError at the first bad one."""
        while len(self._buffer) >= _HEADER.size:
            (length,) = _HEADER.unpack_from(self._buffer)
            if length > self._limits.frame_bytes:
                raise BreachError("frame", f"a frame of {length} bytes; the limit is {self._limits.frame_bytes}")
            end = _HEADER.size + length
            if len(self._buffer) < end:
                return
            frame = bytes(self._buffer[_HEADER.size : end])
            del self._buffer[:end]
            yield self._read(frame)

    def _read(self, frame: bytes) -> Message:
        try:
            message = orjson.loads(frame)
        except orjson.JSONDecodeError as error:
            raise BreachError("protocol", "a frame that is not JSON") from error
        if not isinstance(message, dict) or message.get("jsonrpc") != "2.0":
            raise BreachError("protocol", "a frame that is not a JSON-RPC 2.0 object")
        params = message.get("params")
        if not isinstance(params, dict):
            raise BreachError("protocol", "a frame without a params object")
        try:
            orjson.dumps(params)  # reading allows deeper nesting than writing: refuse here what cannot be recorded
        except orjson.JSONEncodeError as error:
            raise BreachError("protocol", "a frame that is nested too deeply") from error
        method = message.get("method")
        if message.keys() == _REQUEST_KEYS:
            request_id = message["id"]
            if not self._is_ready or not isinstance(method, str) or method not in REQUESTS:
                raise BreachError("protocol", "a request with an unknown method")
            if type(request_id) is not int or not self._last_id < request_id <= _ID_MAX:
                raise BreachError("protocol", "a request whose id does not grow")
            self._last_id = request_id
            return GuestRequest(request_id=request_id, method=method, params=params)
        if message.keys() != _NOTICE_KEYS:
            raise BreachError("protocol", "a frame with missing or unknown keys")
        try:
            if method == "ready" and not self._is_ready:
                self._is_ready = True
                return msgspec.convert(params, GuestReady, strict=True)
            if method == "final" and self._is_ready:
                return msgspec.convert(params, Final, strict=True)
        except msgspec.ValidationError as error:
            raise BreachError("protocol", f"a malformed {method} notice") from error
        raise BreachError("protocol", "a notice with an unknown method")


def build_bounds(
    limits: EpisodeLimits,
    *,
    identity: int | None,
    is_alone_with_uid: bool,
    is_host_watched: bool,
    seccomp_filter: bytes = b"",
) -> bytes:
    """The frame of the host's first message: what the runner sets on itself before it is told anything of an episode.

    `identity` is the uid the runner takes; `is_alone_with_uid` says that counting the uid's processes counts the jail's
    alone; `is_host_watched` makes the runner end itself when the host's pipe closes; `seccomp_filter` is what it puts
    on itself, where the level did not do so before.
    """
    rlimits = {  # by name, soft and hard
        "CORE": [0, 0],
        "FSIZE": [limits.disk_bytes, limits.disk_bytes],
        "NOFILE": [OPEN_FILES, OPEN_FILES],
        # One second between the soft limit, which tells the process, and the hard one, which ends it.
        "CPU": [limits.cpu_time_s, limits.cpu_time_s + 1],
        "AS": [limits.memory_bytes, limits.memory_bytes],
        # Counted by user, who may have several guests: one could read off it what another takes.
        "SIGPENDING": [0, 0],
    }
    if is_alone_with_uid:
        rlimits["NPROC"] = [limits.processes, limits.processes]
    params = {
        "identity": identity,
        "rlimits": rlimits,
        "frame_bytes": limits.frame_bytes,
        "filter": seccomp_filter.hex(),
        "watch_host": is_host_watched,
    }
    return _frame({"jsonrpc": "2.0", "method": "bounds", "params": params})


def build_init(job: GuestJob) -> bytes:
    """The frame of the host's second message: the job."""
    params = {"source": job.source, "problem": job.problem, "schemas": job.tools, "models": list(job.models)}
    return _frame({"jsonrpc": "2.0", "method": "init", "params": params})


def encode_result(request_id: int, result: object) -> bytes:
    """The frame that answers a request."""
    return _frame({"jsonrpc": "2.0", "id": request_id, "result": result})


def encode_error(request_id: int, code: str, message: str) -> bytes:
    """The frame that refuses a request with a code of the registry."""
    return _frame(
        {"jsonrpc": "2.0", "id": request_id, "error": {"code": _ERROR_NUMBER, "message": message, "data": code}}
    )


def _frame(message: dict[str, object]) -> bytes:
    body = orjson.dumps(message)
    return _HEADER.pack(len(body)) + body
