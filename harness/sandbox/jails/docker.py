"""The jail as a container: `docker run`, plain or with `--runtime=runsc`, and the same protocol over standard pipes.

Every run is a fresh container of an image pinned by digest, without network, capabilities, writable root or
log on the host's disk, bounded in memory and processes; it is removed when `run` returns. No bridge, no proxy, no port
and no mount of the host is involved. Whoever may talk to the engine rules the host: keep the engine away from the
process that holds the hotkey.
"""

from __future__ import annotations

import itertools
import os
import queue
import re
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal, TypeVar

import msgspec

from foundation.errors import ArenaError
from harness.limits import EpisodeLimits
from harness.sandbox.confinement.seccomp import build_filter, native_architecture
from harness.sandbox.confinement.uids import FIRST_UID
from harness.sandbox.guest_root.rootfs import guest_command, guest_environment
from harness.sandbox.guest_root.workdir import FILES_AT_MOST
from harness.sandbox.host_loop import GuestConversation, Pipes
from harness.sandbox.jails.supervision import explain_death
from harness.sandbox.port import GuestExit, GuestJob, Host, SandboxLevel
from harness.sandbox.rpc import build_bounds, build_init

Runtime = Literal["runsc", "runc"]

GUEST_LABEL = "agent-arena.guest-sha256"  # of the image: what it was built from
_HOST_LABEL = "agent-arena.host"  # of a container: the process that started it
_IMAGE = re.compile(r"[\w.:/-]+@sha256:[0-9a-f]{64}")
_SHM_BYTES = 1 << 20
_ENGINE_TIMEOUT_S = 30.0
_REAP_S = 10.0


_Answer = TypeVar("_Answer")


class Container(msgspec.Struct, frozen=True, kw_only=True):
    """Which image runs guests, and how. `command` is the engine's client."""

    image: str
    runtime: Runtime
    command: str = "docker"


class EngineFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What the engine and its copy of the image say: version, known runtimes, and the image's guest."""

    version: str
    runtimes: tuple[str, ...]
    guest_sha256: str


class _Info(msgspec.Struct, frozen=True, rename="pascal"):
    server_version: str = ""
    runtimes: dict[str, msgspec.Raw] = {}
    server_errors: tuple[str, ...] = ()


class _ImageConfig(msgspec.Struct, frozen=True, rename="pascal"):
    labels: dict[str, str] | None = None


class _Image(msgspec.Struct, frozen=True, rename="pascal"):
    config: _ImageConfig = _ImageConfig()


def is_pinned(image: str) -> bool:
    """True for `name@sha256:<64 digits>`: a tag can be moved to other content, a digest cannot."""
    return _IMAGE.fullmatch(image) is not None


def run_arguments(container: Container, limits: EpisodeLimits, *, name: str, uid: int, host_pid: int) -> list[str]:
    """The whole command line of one guest. `name` is the container's, `uid` the guest's; no shell reads it.

    Raises ArenaError V2030 when the image is not pinned by digest.
    """
    if not is_pinned(container.image):
        raise ArenaError("V2030", f"docker_image {container.image!r}: pin it by digest, name@sha256:...")
    command = [container.command, "run", "--rm", "--interactive", "--name", name]
    command += ["--label", f"{_HOST_LABEL}={host_pid}", "--pull", "never", "--log-driver", "none"]
    command += ["--network", "none", "--read-only", "--cap-drop", "ALL", "--security-opt", "no-new-privileges"]
    command += ["--pids-limit", str(limits.processes)]
    command += ["--memory", str(limits.memory_bytes), "--memory-swap", str(limits.memory_bytes)]
    command += ["--user", f"{uid}:{uid}", "--hostname", "guest", "--workdir", "/tmp"]
    command += ["--tmpfs", f"/tmp:rw,noexec,nosuid,nodev,mode=1777,size={limits.disk_bytes},nr_inodes={FILES_AT_MOST}"]
    command += ["--shm-size", str(_SHM_BYTES)]
    for variable, value in guest_environment().items():
        command += ["--env", f"{variable}={value}"]
    if container.runtime == "runsc":
        command.append("--runtime=runsc")
    return [*command, container.image, *guest_command()]


def ask_engine(command: str, image: str) -> EngineFacts:
    """What the engine says of itself and of `image`. Raises ArenaError V2002 in words when it does not answer, or does
    not have the image, or the image does not say which guest root it was built from."""
    info = _decode(_ask(command, "info", "--format", "{{json .}}"), _Info)
    if info.server_errors or not info.server_version:
        raise ArenaError("V2002", "; ".join(info.server_errors) or "the docker engine does not tell its version")
    found = _decode(_ask(command, "image", "inspect", "--format", "{{json .}}", image), _Image)
    guest_sha256 = (found.config.labels or {}).get(GUEST_LABEL, "")
    if not guest_sha256:
        raise ArenaError("V2002", f"image {image} has no label {GUEST_LABEL}: build it from docker/guest.Dockerfile")
    return EngineFacts(version=info.server_version, runtimes=tuple(sorted(info.runtimes)), guest_sha256=guest_sha256)


def sweep_containers(command: str) -> None:
    """Remove containers of ours whose host process is gone. Raises ArenaError V2002 when the engine does not answer."""
    template = f'{{{{.ID}}}} {{{{.Label "{_HOST_LABEL}"}}}}'
    listed = _ask(command, "ps", "--all", "--filter", f"label={_HOST_LABEL}", "--format", template)
    for line in listed.decode().splitlines():
        identity, _, host_pid = line.partition(" ")
        if host_pid.isdigit() and not Path("/proc", host_pid).exists():
            _ask(command, "rm", "--force", identity)


class DockerSandbox:
    """A `Sandbox` at level `docker`."""

    def __init__(self, container: Container, level: SandboxLevel, *, slots: int, clock: Callable[[], float]) -> None:
        """At most `slots` containers run at once, each with a uid of its own. `clock` gives seconds, monotonic."""
        self._container, self.level = container, level
        self._filter = build_filter(native_architecture())
        self._uids: queue.SimpleQueue[int] = queue.SimpleQueue()
        for slot in range(slots):
            self._uids.put(FIRST_UID + slot)
        self._serials = itertools.count(1)
        self._clock = clock

    def run(self, job: GuestJob, host: Host) -> GuestExit:
        """Run one agent in a fresh container. Raises ArenaError V2002 when it cannot start or cannot be removed."""
        limits, uid = job.limits, self._uids.get()
        name = f"arena-jail-{os.getpid()}-{next(self._serials)}"

        def confine() -> bytes:
            # Containers share the uid's count of processes; --pids-limit counts each by itself.
            bounds = build_bounds(
                limits, identity=None, is_alone_with_uid=False, is_host_watched=True, seccomp_filter=self._filter
            )
            return bounds + build_init(job)

        try:
            command = run_arguments(self._container, limits, name=name, uid=uid, host_pid=os.getpid())
            try:
                process = subprocess.Popen(
                    command,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    start_new_session=True,
                )
            except OSError as error:
                raise ArenaError("V2002", f"{self._container.command} cannot be started: {error}") from error
            pipes = Pipes.of(process)
            try:
                ended = GuestConversation(pipes, limits, host, self._clock, on_ready=confine).run()
                if ended.end != "died":
                    return ended
                return explain_death(ended, process.wait(timeout=_REAP_S), was_out_of_memory=False)
            finally:
                # Returns when no process of the container is left. One that ended by itself is gone already.
                try:
                    done = _run((self._container.command, "rm", "--force", "--volumes", name))
                finally:
                    process.kill()
                    process.wait()
                    pipes.close()
                if done.returncode != 0 and b"no such container" not in done.stderr.lower():
                    raise ArenaError("V2002", f"container {name} cannot be removed: {_last_line(done.stderr)}")
        finally:
            self._uids.put(uid)


def _ask(command: str, *arguments: str) -> bytes:
    done = _run((command, *arguments))
    if done.returncode != 0:
        raise ArenaError("V2002", f"{Path(command).name} {arguments[0]}: {_last_line(done.stderr)}")
    return done.stdout


def _run(command: Sequence[str]) -> subprocess.CompletedProcess[bytes]:
    try:
        return subprocess.run(command, capture_output=True, check=False, timeout=_ENGINE_TIMEOUT_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ArenaError("V2002", f"{command[0]} does not answer: {error}") from error


def _decode(content: bytes, kind: type[_Answer]) -> _Answer:
    try:
        return msgspec.json.decode(content, type=kind)
    except msgspec.DecodeError as error:
        raise ArenaError("V2002", f"the docker engine's answer cannot be read: {error}") from error


def _last_line(text: bytes) -> str:
    return text.decode(errors="replace").strip().rpartition("\n")[2]
