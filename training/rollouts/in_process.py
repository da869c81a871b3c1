"""Running a shipped agent inside this process, and the endpoint that such a run believes.

Only sources given by their sha256 run here, none of them a miner's; everything else of an episode (recorder, gateway,
tools, limits counted in steps, scoring) is the arena's own, so a rollout is an evaluation. There is no wall clock.
Results carry the level `reference-agents-only` and may never race. When a run's own endpoint refuses a request, that
call fails and no second endpoint is asked: here no agent could profit from a refusal.
"""

from __future__ import annotations

import builtins
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from types import ModuleType, SimpleNamespace
from typing import Any, TypeVar

import msgspec

from foundation.canonical import text_hash
from foundation.codes.names import BAD_REQUEST
from foundation.errors import ArenaError, Failure
from harness.inference.port import ModelReply, Upstream
from harness.sandbox.port import EpisodeOver, GuestCallError, GuestExit, GuestJob, Host, SandboxLevel

_Item = TypeVar("_Item")
_Value = TypeVar("_Value")


def for_each(items: Iterable[_Item], work: Callable[[_Item], _Value], parallel: int) -> Iterator[_Value]:
    """What `work` makes of each item, in their order; memory holds a few at a time. After an error nothing more is
    begun."""
    running: deque[Future[_Value]] = deque()
    with ThreadPoolExecutor(parallel) as pool:
        try:
            for item in items:
                running.append(pool.submit(work, item))
                if len(running) > 2 * parallel:
                    yield running.popleft().result()
            while running:
                yield running.popleft().result()
        finally:
            for future in running:
                future.cancel()


class OwnEndpoint:
    """`inner`, believed. As thread-safe as that is."""

    def __init__(self, inner: Upstream) -> None:
        self._inner = inner

    @property
    def name(self) -> str:
        """The endpoint's."""
        return self._inner.name

    def complete(self, request: str) -> ModelReply:
        """One attempt. Raises GuestCallError A1040 for a request the endpoint calls malformed, else what it raises."""
        try:
            return self._inner.complete(request)
        except ArenaError as error:
            if error.failure.code != BAD_REQUEST:
                raise
            detail = f"the model endpoint refused the request: {error.failure.detail}"
            raise GuestCallError(BAD_REQUEST, detail) from error

    def probe(self, request: str) -> Failure | None:
        """Never answered: a failure of the endpoint is an outage of the run, whatever else it would answer."""
        return Failure(code="U3002")


LEVEL = SandboxLevel(
    name="reference-agents-only",
    layers=(),
    degraded=("in-process: shipped agents only",),
    guest_sha256="",
    python_version=f"{sys.version_info.major}.{sys.version_info.minor}",
    may_race=False,
)


class InProcessSandbox:
    """A `Sandbox` for sources of ours. Thread-safe: each run has a namespace of its own."""

    def __init__(self, admitted_sha256s: frozenset[str]) -> None:
        self._admitted = admitted_sha256s

    @property
    def level(self) -> SandboxLevel:
        """No confinement at all."""
        return LEVEL

    def run(self, job: GuestJob, host: Host) -> GuestExit:
        """Run an admitted source to its end. Raises ArenaError V2003 for any other."""
        if text_hash(job.source) not in self._admitted:
            raise ArenaError("V2003", f"source {text_hash(job.source)[:12]} is not one of training's own agents")
        sdk = _sdk(job, host)

        def find(name: str, *rest: Any) -> Any:
            return sdk if name == "arena_sdk" else builtins.__import__(name, *rest)

        namespace: dict[str, Any] = {"__name__": "agent", "__builtins__": {**vars(builtins), "__import__": find}}
        exec(compile(job.source, "agent.py", "exec"), namespace)
        try:
            namespace["agent_main"](msgspec.json.decode(job.problem))
        except EpisodeOver:
            return GuestExit(end="stopped")
        except GuestCallError as error:  # what a guest that does not catch it would end with
            return GuestExit(end="final", error=f"{error.code} {error.message}", error_kind="raise")
        return GuestExit(end="final", claim="null")


def _sdk(job: GuestJob, host: Host) -> ModuleType:
    """`arena_sdk` over `host`, with what these agents use of it."""

    def chat(messages: Sequence[Mapping[str, Any]], **options: Any) -> Any:
        return host.call("llm.chat", {"messages": list(messages), **options})

    def execute(name: str, arguments: object) -> Any:
        answer: Any = host.call("tool.call", {"name": name, "arguments": arguments})
        return answer["result"]

    sdk = ModuleType("arena_sdk")
    sdk.llm = SimpleNamespace(models=lambda: list(job.models), chat=chat)  # type: ignore[attr-defined]
    schemas = msgspec.json.decode(job.tools, type=list[dict[str, Any]])
    named = {name: _named(execute, name) for name in (schema["function"]["name"] for schema in schemas)}
    sdk.tools = SimpleNamespace(schemas=lambda: list(schemas), execute=execute, **named)  # type: ignore[attr-defined]
    return sdk


def _named(execute: Callable[[str, object], Any], name: str) -> Callable[..., Any]:
    """A tool as a function of its arguments; the answer is its decoded JSON, as the SDK's own functions give it."""

    def call(**arguments: object) -> Any:
        return msgspec.json.decode(execute(name, msgspec.json.encode(arguments).decode()))

    return call
