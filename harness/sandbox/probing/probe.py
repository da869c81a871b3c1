"""Which sandbox level this host reaches, found by trying, and what to do when it is not the best one.

Promise: `open_sandbox` returns a sandbox whose jail has just withstood the self-test, or `reference-agents-only`,
loudly labelled; it never falls through to running foreign code without a jail. Levels are tried in this order:
bubblewrap, Landlock, docker (where an image is set). `diagnose` explains each attempt in words with the exact fix.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal, get_args

import msgspec
import structlog

from foundation.errors import ArenaError
from harness.sandbox.confinement.cgroup import Cgroups
from harness.sandbox.guest_root.rootfs import GuestRoot, open_guest_root
from harness.sandbox.jails.docker import is_pinned
from harness.sandbox.jails.landlock import landlock_abi
from harness.sandbox.jails.reference import ReferenceSandbox
from harness.sandbox.port import NOTHING_CHOSEN, GuestChoice, Sandbox, SandboxLevel
from harness.sandbox.probing.attempts import (
    Attempt,
    LevelName,
    try_bubblewrap,
    try_docker,
    try_landlock,
    usable_cgroups,
)

Wanted = Literal["auto", "bubblewrap", "landlock", "docker", "reference-agents-only"]
_LEVELS: tuple[LevelName, ...] = ("bubblewrap", "landlock", "docker")
_SHARED_STATE = Path("/var/lib/agent-arena")  # where a guest with a uid of its own can reach its interpreter
_LOG = structlog.get_logger(__name__)


class LevelFinding(msgspec.Struct, frozen=True, kw_only=True):
    """One line of `arena doctor`: what was looked at, whether it is well, and the fix when it is not."""

    subject: str
    is_ok: bool
    detail: str
    fix: str = ""


def open_sandbox(
    state_dir: Path,
    *,
    reference_sha256s: frozenset[str],
    slots: int,
    wanted: str = "auto",
    choice: GuestChoice = NOTHING_CHOSEN,
) -> Sandbox:
    """The best level this host reaches, self-tested. At most `slots` guests run at once.

    `wanted` forces a level: a jail's name fails with V2001 instead of falling back, `reference-agents-only` skips the
    jail. Raises ArenaError V2030 for an unknown level or an image without digest, V2060 when no guest root can be
    built.
    """
    if wanted not in get_args(Wanted):
        raise ArenaError("V2030", f"sandbox level {wanted!r}: use one of {', '.join(get_args(Wanted))}")
    _check_choice(wanted, choice)
    root = open_guest_root(state_dir, packages=choice.packages)
    reasons: list[str] = []
    for attempt in _attempts(root, slots, wanted, choice):
        if attempt.sandbox is not None:
            return attempt.sandbox
        reasons.append(f"{attempt.subject}: {attempt.reason}")
    if wanted in _LEVELS:
        raise ArenaError("V2001", "; ".join(reasons))
    _LOG.warning("sandbox.reference_agents_only", detail="no jail: only shipped agents run here", reasons=reasons)
    level = SandboxLevel(
        name="reference-agents-only",
        layers=("rlimits", "memory-watchdog"),
        degraded=tuple(reasons) or ("jail: not wanted by the settings",),
        guest_sha256=root.content_sha256,
        python_version=root.minor_version,
        may_race=False,
    )
    return ReferenceSandbox(root, level, reference_sha256s=reference_sha256s, slots=slots, clock=time.monotonic)


def diagnose(state_dir: Path, wanted: str = "auto", choice: GuestChoice = NOTHING_CHOSEN) -> tuple[LevelFinding, ...]:
    """What `arena doctor` prints about the sandbox, up to the first level that holds. Tries the real thing; writes only
    the guest root."""
    try:
        root = open_guest_root(state_dir, packages=choice.packages)
    except ArenaError as error:
        return (
            LevelFinding(subject="guest root", is_ok=False, detail=str(error.failure.detail), fix=error.entry.remedy),
        )
    detail = f"Python {root.python_version}, sha256 {root.content_sha256[:12]}, {root.path}"
    findings = [LevelFinding(subject="guest root", is_ok=True, detail=detail)]
    has_tried_landlock = False
    for attempt in _attempts(root, 1, "auto" if wanted == "reference-agents-only" else wanted, choice):
        is_ok = attempt.sandbox is not None
        has_tried_landlock = has_tried_landlock or attempt.level == "landlock"
        detail = "self-test passed" if is_ok else attempt.reason
        findings.append(LevelFinding(subject=attempt.subject, is_ok=is_ok, detail=detail, fix=attempt.fix))
        if is_ok:
            break
    if not has_tried_landlock:
        detail = f"kernel ABI {landlock_abi()}; next in line, not needed here"
        findings.append(LevelFinding(subject="landlock", is_ok=True, detail=detail))
    findings.append(_diagnose_cgroups())
    return tuple(findings)


def _check_choice(wanted: str, choice: GuestChoice) -> None:
    if wanted == "docker" and not choice.docker_image:
        raise ArenaError("V2030", "sandbox level docker needs docker_image, by digest")
    if choice.docker_image and not is_pinned(choice.docker_image):
        raise ArenaError("V2030", f"docker_image {choice.docker_image!r}: pin it by digest, name@sha256:...")


def _attempts(root: GuestRoot, slots: int, wanted: str, choice: GuestChoice) -> Iterator[Attempt]:
    """Ways into a jail in the order of preference; none for `reference-agents-only`."""
    if wanted in ("auto", "bubblewrap"):
        yield from try_bubblewrap(root, slots)
    if wanted in ("auto", "landlock"):
        yield from try_landlock(root, slots, lambda: _shared_root(choice.packages))
    if wanted in ("auto", "docker") and choice.docker_image:
        yield from try_docker(root, slots, choice.docker_image, choice.docker_runtime)


def _shared_root(packages: Sequence[str]) -> GuestRoot:
    return open_guest_root(_SHARED_STATE, packages=packages)


def _diagnose_cgroups() -> LevelFinding:
    found = usable_cgroups()
    if isinstance(found, Cgroups):
        return LevelFinding(subject="cgroup", is_ok=True, detail=f"{found.version} at {found.memory}")
    return LevelFinding(
        subject="cgroup",
        is_ok=True,
        detail=f"none ({found}); a watchdog bounds the memory of a jail instead",
        fix="optional: run as root, or under systemd with Delegate=yes",
    )
