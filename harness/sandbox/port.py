"""The sandbox port, and its conversation: run one untrusted agent on one problem, with the host behind a pipe.

An adapter starts a fresh jail per call, kills everything at the end, and reports how the guest ended. It decides
nothing about scores and records nothing: the session does. Whatever the guest does, `GuestConversation.run` returns
how it ended (or raises a fault of ours) within the agent's time and byte caps. Agent time stands still while the host
executes a call, so a slow host costs nobody a score; it runs while the host waits for the guest and while it reads
what the guest sends, or bytes sent one by one would keep the host busy for nothing.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import struct
import subprocess
from collections.abc import Callable, Iterator
from typing import IO, Annotated, Literal, Protocol

import msgspec
import orjson

from foundation.canonical import foreign_text
from foundation.errors import ArenaError
from harness.limits import EpisodeLimits
from harness.trace import SandboxEnd

# `final`: the guest sent its last frame; `stopped`: the host ended it through Host.call raising EpisodeOver.
GuestEnd = Literal["final", "stopped", SandboxEnd]


class SandboxLevel(msgspec.Struct, frozen=True, kw_only=True):
    """The level actually reached on this host; stands in every record's provenance."""

    name: Literal["bubblewrap", "landlock", "reference-agents-only"]
    layers: tuple[str, ...]  # e.g. user-namespace, network-namespace, seccomp, cgroup-v2, own-uid
    degraded: tuple[str, ...] = ()  # layers that are missing, each with its reason
    guest_sha256: str  # of the guest root and runner
    python_version: str  # minor version of the guest's Python
    may_race: bool


class GuestJob(msgspec.Struct, frozen=True, kw_only=True):
    """What enters the jail: source and problem view (JSON text), nothing else."""

    source: str
    problem: str
    limits: EpisodeLimits
    tools: str  # canonical tool schemas, JSON text, for arena_sdk.tools.schemas()
    models: tuple[str, ...]  # for arena_sdk.llm.models()


class GuestExit(msgspec.Struct, frozen=True, kw_only=True):
    """How the guest ended. `claim` and `error` come from the guest and are claims."""

    end: GuestEnd
    claim: str = ""  # JSON text of the return value
    error: str = ""  # exception type and message, as the guest tells it
    error_kind: Literal["", "load", "raise", "not_json"] = ""
    output_tail: str = ""  # last bytes of stdout and stderr; never in the body
    start_ms: int = 0  # until the guest was ready to run the agent
    agent_time_ms: int = 0


class EpisodeOver(Exception):  # noqa: N818 - it ends an episode as planned; it is no error
    """Raised by `Host.call` to end the episode at once (a limit was reached, or terminate was called)."""


class Host(Protocol):
    """The host side of the RPC, given to the sandbox by the session."""

    def call(self, method: str, params: dict[str, object]) -> object:
        """Answer `tool.call` or `llm.chat`. Returns a JSON-able value.

        Raises `GuestCallError` for what the guest gets as an error, `EpisodeOver` to stop, ArenaError for a fault
        of ours (the adapter kills the jail and lets it pass through).
        """
        ...


class GuestCallError(Exception):
    """An error answer to one guest call: `code` from the registry and a sentence for the agent."""

    def __init__(self, code: str, message: str) -> None:
        self.code, self.message = code, message
        super().__init__(message)


class Sandbox(Protocol):
    """One way to run agents. Thread-safe: several episodes may run at once."""

    @property
    def level(self) -> SandboxLevel: ...

    def run(self, job: GuestJob, host: Host) -> GuestExit:
        """Run one agent to its end in a fresh jail. Raises ArenaError V2002 when the jail cannot start, V2001 when the
        level does not admit this source."""
        ...


_CHUNK_BYTES = 1 << 16
_TAIL_BYTES = 4_000
_ERROR_CHARS = 500  # of what a guest says of its own error: the runner keeps to it, a forger need not
START_MS = 20_000  # host backstop for a jail that never becomes ready; a fault of ours, not agent time
_TICK_S = 0.1  # the longest wait before the limits are asked about again


class Pipes(msgspec.Struct, frozen=True, kw_only=True):
    """The host's ends of a guest's three standard descriptors."""

    to_guest: IO[bytes]
    from_guest: IO[bytes]
    output: IO[bytes]

    @staticmethod
    def of(process: subprocess.Popen[bytes]) -> Pipes:
        """Those of a process that was started with a pipe for each."""
        assert process.stdin is not None and process.stdout is not None and process.stderr is not None
        return Pipes(to_guest=process.stdin, from_guest=process.stdout, output=process.stderr)

    def close(self) -> None:
        """Close the host's ends; what could not be written any more is dropped."""
        for pipe in (self.to_guest, self.from_guest, self.output):
            with contextlib.suppress(BrokenPipeError):
                pipe.close()


class GuestConversation:
    """One run of the protocol between a guest and a `Host`."""

    def __init__(
        self,
        pipes: Pipes,
        limits: EpisodeLimits,
        host: Host,
        clock: Callable[[], float],
        *,
        on_ready: Callable[[], bytes],
        broken_limit: Callable[[], GuestEnd | None] = lambda: None,
    ) -> None:
        """`clock` gives seconds, monotonic; `on_ready` confines the runner and gives the init frame; `broken_limit` is
        asked ten times a second for a limit that the guest has passed."""
        self._pipes, self._limits, self._host, self._clock = pipes, limits, host, clock
        self._on_ready, self._broken_limit = on_ready, broken_limit
        self._inbox = FrameInbox(limits)
        self._outgoing = memoryview(b"")
        self._is_started = False
        self._start_s = 0.0  # until the guest was ready
        self._agent_s = 0.0
        self._host_s = 0.0  # spent on calls since time was last accounted
        self._output_bytes = 0
        self._tail = b""
        self._final: Final | None = None

    def run(self) -> GuestExit:
        """Converse until the guest ends or breaches. `died` is reported as such: the adapter knows the exit status.

        Raises ArenaError V2002 when the guest never became ready, and whatever ArenaError the host's call raised.
        """
        with selectors.DefaultSelector() as selector:
            for pipe in (self._pipes.to_guest, self._pipes.from_guest, self._pipes.output):
                os.set_blocking(pipe.fileno(), False)
            selector.register(self._pipes.from_guest, selectors.EVENT_READ)
            selector.register(self._pipes.output, selectors.EVENT_READ)
            try:
                end = self._serve(selector)
            except BreachError as breach:
                return self._exit(breach.end, error=breach.detail)
            except EpisodeOver:
                return self._exit("stopped")
            # What is already in the pipe: the traceback of an agent that ended a moment ago.
            with contextlib.suppress(BlockingIOError):
                while self._output_bytes <= self._limits.output_bytes and self._keep_output():
                    continue
        if not self._is_started and end == "died":
            last_line = self._tail.decode(errors="replace").strip().rpartition("\n")[2]
            raise ArenaError("V2002", last_line or "the guest ended before it was ready")
        return self._exit(end)

    def _serve(self, selector: selectors.BaseSelector) -> GuestEnd:
        before = self._clock()
        while True:
            if self._is_started:
                patience_s = min(max(0.0, self._limits.agent_time_ms / 1000 - self._agent_s), _TICK_S)
            else:
                patience_s = max(0.0, START_MS / 1000 - self._start_s)
            ready = selector.select(patience_s)
            now = self._clock()
            elapsed_s = now - before - self._host_s
            before, self._host_s = now, 0.0
            if self._is_started:
                self._agent_s += elapsed_s
                if self._agent_s * 1000 >= self._limits.agent_time_ms:
                    return "wall_clock"
                if limit := self._broken_limit():
                    return limit
            else:
                self._start_s += elapsed_s
                if self._start_s * 1000 >= START_MS:
                    raise ArenaError("V2002", f"the guest was not ready after {START_MS} ms")
            for key, _ in ready:
                if key.fileobj is self._pipes.output:
                    if not self._keep_output():
                        selector.unregister(self._pipes.output)
                    elif self._output_bytes > self._limits.output_bytes:
                        raise BreachError("output", f"more than {self._limits.output_bytes} bytes printed")
                elif key.fileobj is self._pipes.to_guest:
                    self._write()
                    if not self._outgoing:
                        selector.unregister(self._pipes.to_guest)
                elif not self._read_messages(selector):
                    return "final" if self._final is not None else "died"

    def _read_messages(self, selector: selectors.BaseSelector) -> bool:
        """Take what the guest sent. False when it has said its last word or closed its end."""
        chunk = os.read(self._pipes.from_guest.fileno(), _CHUNK_BYTES)
        if not chunk:
            return False
        self._inbox.feed(chunk)
        for message in self._inbox.messages():
            if isinstance(message, Final):
                self._final = message
                return False
            started = self._clock()
            if message.method == "ready":
                frame = self._on_ready()
                self._is_started = True
            else:
                try:
                    frame = encode_result(message.id, self._host.call(message.method, message.params))
                except GuestCallError as error:
                    refusal = {"code": _ERROR_NUMBER, "message": error.message, "data": error.code}
                    frame = _frame({"jsonrpc": "2.0", "id": message.id, "error": refusal})
            if self._outgoing:
                # Answers wait for the guest to read; one that asks on without reading is not speaking the protocol.
                raise BreachError("protocol", "a request was sent before the last answer was read")
            self._outgoing = memoryview(frame)
            self._write()
            if self._outgoing:
                selector.register(self._pipes.to_guest, selectors.EVENT_WRITE)
            self._host_s += self._clock() - started
        return True

    def _write(self) -> None:
        try:
            while self._outgoing:
                self._outgoing = self._outgoing[os.write(self._pipes.to_guest.fileno(), self._outgoing) :]
        except BlockingIOError:
            return
        except BrokenPipeError:
            self._outgoing = memoryview(b"")  # the guest closed its end; reading on tells how it ended

    def _keep_output(self) -> bool:
        """Take what the guest printed. False when it has closed its end."""
        chunk = os.read(self._pipes.output.fileno(), _CHUNK_BYTES)
        self._output_bytes += len(chunk)
        self._tail = (self._tail + chunk)[-_TAIL_BYTES:]
        return bool(chunk)

    def _exit(self, end: GuestEnd, error: str = "") -> GuestExit:
        final = self._final if end == "final" else None
        return GuestExit(
            end=end,
            claim=foreign_text(final.claim) if final and not final.kind else "",
            error=final.error[:_ERROR_CHARS] if final else error,
            error_kind=final.kind if final else "",
            output_tail=self._tail.decode(errors="replace"),
            start_ms=int(self._start_s * 1000),
            agent_time_ms=int(self._agent_s * 1000),
        )


_HEADER = struct.Struct(">I")
_ID_MAX = 2**53 - 1
_ERROR_NUMBER = -32000  # JSON-RPC's range for errors of the implementation; the registry's code travels as `data`

OPEN_FILES = 256


class BreachError(Exception):
    """The guest broke a cap or the protocol. `end` is the reason as `GuestExit` names it."""

    def __init__(self, end: Literal["frame", "protocol", "output"], detail: str) -> None:
        self.end, self.detail = end, detail
        super().__init__(detail)


class GuestRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a guest may send: a call to be answered, which has an id, or a notice. `ready` asks for the job: the agent
    is not loaded yet."""

    jsonrpc: Literal["2.0"]
    id: Annotated[int, msgspec.Meta(ge=1, le=_ID_MAX)] = 0  # 0: a notice
    method: Literal["ready", "tool.call", "llm.chat", "final"]
    params: dict[str, object]


class Final(msgspec.Struct, frozen=True, kw_only=True):
    """The guest's last word: a claim, or an error with its kind."""

    claim: object = None
    error: str = ""
    kind: Literal["", "load", "raise", "not_json"] = ""


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

    def messages(self) -> Iterator[GuestRequest | Final]:
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

    def _read(self, frame: bytes) -> GuestRequest | Final:
        try:
            message = orjson.loads(frame)
            orjson.dumps(message)  # reading allows deeper nesting than writing: refuse here what cannot be recorded
            found = msgspec.convert(message, GuestRequest, strict=True)
            if found.method == "final" and self._is_ready and not found.id:
                return msgspec.convert(found.params, Final, strict=True)
        except (orjson.JSONDecodeError, orjson.JSONEncodeError, msgspec.ValidationError) as error:
            raise BreachError("protocol", "a malformed frame") from error
        is_ready = found.method == "ready" and not found.id
        is_call = found.method in ("tool.call", "llm.chat") and found.id > self._last_id
        if not (is_call if self._is_ready else is_ready):
            raise BreachError("protocol", "a frame out of turn")
        self._is_ready, self._last_id = True, found.id
        return found


def build_bounds(limits: EpisodeLimits, *, identity: int | None, is_alone_with_uid: bool) -> bytes:
    """The frame of the host's first message: what the runner sets on itself before it learns anything of an episode.

    `identity` is the uid the runner takes; `is_alone_with_uid` says that counting the uid's processes counts the jail's
    alone.
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
    params = {"identity": identity, "rlimits": rlimits, "frame_bytes": limits.frame_bytes}
    return _frame({"jsonrpc": "2.0", "method": "bounds", "params": params})


def build_init(job: GuestJob) -> bytes:
    """The frame of the host's second message: the job."""
    params = {"source": job.source, "problem": job.problem, "schemas": job.tools, "models": list(job.models)}
    return _frame({"jsonrpc": "2.0", "method": "init", "params": params})


def encode_result(request_id: int, result: object) -> bytes:
    """The frame that answers a request."""
    return _frame({"jsonrpc": "2.0", "id": request_id, "result": result})


def _frame(message: dict[str, object]) -> bytes:
    body = orjson.dumps(message)
    return _HEADER.pack(len(body)) + body
