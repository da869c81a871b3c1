"""Real sandboxes for the tests: one guest root for a whole run, the best jail of this host, and the level without."""

from __future__ import annotations

import atexit
import functools
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from foundation.canonical import text_hash
from harness.limits import EpisodeLimits
from harness.sandbox.bubblewrap import Bubblewrap, BubblewrapSandbox
from harness.sandbox.guest_files import GuestRoot, open_guest_root
from harness.sandbox.port import GuestCallError, GuestExit, GuestJob, Sandbox, SandboxLevel
from harness.sandbox.probe import open_sandbox
from harness.sandbox.reference import ReferenceSandbox
from harness.sandbox.seccomp import build_filter, native_architecture


@functools.cache
def state_dir() -> Path:
    """A state directory that other uids cannot enter, as under root's home."""
    path = Path(tempfile.mkdtemp(prefix="arena-tests-"))
    atexit.register(shutil.rmtree, path, ignore_errors=True)
    return path


@functools.cache
def guest_root() -> GuestRoot:
    return open_guest_root(state_dir())


@functools.cache
def best_sandbox() -> Sandbox:
    return open_sandbox(state_dir(), reference_sha256s=frozenset(), slots=4)


def has_jail() -> bool:
    return best_sandbox().level.name == "bubblewrap"


WHY_NO_JAIL = "namespaces are not allowed here: no jail can be tested"


def reference_sandbox(*sources: str) -> ReferenceSandbox:
    level = SandboxLevel(
        name="reference-agents-only",
        layers=(),
        guest_sha256=guest_root().content_sha256,
        python_version=guest_root().minor_version,
        may_race=False,
    )
    admitted = frozenset(text_hash(source) for source in sources)
    return ReferenceSandbox(guest_root(), level, reference_sha256s=admitted, slots=4, clock=time.monotonic)


def jail_without_cgroup() -> BubblewrapSandbox:
    """The best jail with the memory watchdog in place of a cgroup."""
    best = best_sandbox()
    assert isinstance(best, BubblewrapSandbox)
    how = best.bubblewrap
    bare = Bubblewrap(binary=how.binary, entry=how.entry, cgroups=None)
    program = build_filter(native_architecture())
    return BubblewrapSandbox(bare, guest_root(), program, best.level, slots=4, clock=time.monotonic)


class CallHost:
    """Answers every call with `answer`, and remembers what was asked."""

    def __init__(self, answer: Callable[[str, dict[str, object]], object] | None = None) -> None:
        self.calls: list[tuple[str, dict[str, object]]] = []
        self._answer = answer or (lambda method, params: {"result": "[]", "failure": None})

    def call(self, method: str, params: dict[str, object]) -> object:
        self.calls.append((method, params))
        if params.get("name") == "refuse":
            raise GuestCallError("A1050", "no such tool")
        return self._answer(method, params)


def job(source: str, **limits: int) -> GuestJob:
    return GuestJob(
        source=source,
        problem='{"problem_id": "p", "category": "product", "query": "q"}',
        limits=EpisodeLimits(**{"agent_time_ms": 20_000, **limits}),
        tools="[]",
        models=("m1", "m2"),
    )


def run(source: str, host: CallHost | None = None, sandbox: Sandbox | None = None, **limits: int) -> GuestExit:
    return (sandbox or best_sandbox()).run(job(source, **limits), host or CallHost())
