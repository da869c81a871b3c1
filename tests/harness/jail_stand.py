"""Real sandboxes for the tests: one guest root for a whole run, the best jail of each level, and the level without."""

from __future__ import annotations

import atexit
import functools
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from foundation.canonical import text_hash
from foundation.errors import ArenaError
from harness.limits import EpisodeLimits
from harness.sandbox.guest_files import GuestRoot, open_guest_root
from harness.sandbox.jail import Bubblewrap, JailSandbox, open_unjailed
from harness.sandbox.landlock import Landlock
from harness.sandbox.port import GuestCallError, GuestExit, GuestJob, Sandbox, SandboxLevel
from harness.sandbox.probe import open_sandbox

IS_ROOT = os.geteuid() == 0
WHY_NO_JAIL = "namespaces are not allowed here: no jail can be tested"
EVERY_JAIL = ("bubblewrap", "bubblewrap without cgroup", "landlock", "landlock without cgroup")


@functools.cache
def state_dir() -> Path:
    """A state directory that other uids cannot enter, as under root's home."""
    return _folder(0o700)


@functools.cache
def open_state_dir() -> Path:
    """Where a guest with a uid of its own can reach its interpreter."""
    return _folder(0o755)


def _folder(mode: int) -> Path:
    path = Path(tempfile.mkdtemp(prefix="arena-tests-"))
    path.chmod(mode)
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


needs_jail = pytest.mark.skipif(not has_jail(), reason=WHY_NO_JAIL)


@functools.cache
def landlock_or_reason() -> Sandbox | str:
    try:
        return open_sandbox(open_state_dir(), reference_sha256s=frozenset(), slots=4, wanted="landlock")
    except ArenaError as error:
        return error.failure.detail


def best_landlock() -> Sandbox:
    found = landlock_or_reason()
    if isinstance(found, str):
        pytest.skip(f"Landlock does not hold here: {found}")
    return found


def made_by(sandbox: Sandbox) -> Bubblewrap | Landlock:
    """How a sandbox starts its jails."""
    assert isinstance(sandbox, JailSandbox)
    return sandbox.open_jail.__self__  # type: ignore[attr-defined]


def remade(sandbox: Sandbox, *, ahead: int = 0, **changes: object) -> JailSandbox:
    """The same kind of jail with some of its parts replaced."""
    how = msgspec.structs.replace(made_by(sandbox), **changes)
    return JailSandbox(how.open, sandbox.level, slots=4, ahead=ahead)


def sandbox_of(name: str) -> Sandbox:
    """One of `EVERY_JAIL`; the test is skipped where it does not hold."""
    if name.startswith("bubblewrap") and not has_jail():
        pytest.skip(WHY_NO_JAIL)
    best = best_sandbox() if name.startswith("bubblewrap") else best_landlock()
    return remade(best, cgroups=None) if "without" in name else best


def reference_sandbox(*sources: str) -> JailSandbox:
    level = SandboxLevel(
        name="reference-agents-only",
        layers=(),
        guest_sha256=guest_root().content_sha256,
        python_version=guest_root().minor_version,
        may_race=False,
    )
    admitted = frozenset(text_hash(source) for source in sources)
    return JailSandbox(functools.partial(open_unjailed, guest_root()), level, slots=4, admitted=admitted)


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
