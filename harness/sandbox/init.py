"""The first message to a guest: its job, and the limits the runner sets on itself before the agent is loaded.

One place for all adapters, so that a limit of the policy means the same at every level.
"""

from __future__ import annotations

from harness.limits import EpisodeLimits
from harness.sandbox.port import GuestJob
from harness.sandbox.rpc import encode_init

OPEN_FILES = 256


def build_init(
    job: GuestJob,
    *,
    identity: int | None,
    is_alone_with_uid: bool,
    is_host_watched: bool,
    seccomp_filter: bytes = b"",
) -> bytes:
    """The frame. `identity` is the uid the runner takes; `is_alone_with_uid` says that counting the uid's processes
    counts the jail's alone; `is_host_watched` makes the runner end itself when the host's pipe closes;
    `seccomp_filter` is what it puts on itself, where the level did not do so before."""
    return encode_init(
        {
            "source": job.source,
            "problem": job.problem,
            "schemas": job.tools,
            "models": list(job.models),
            "identity": identity,
            "rlimits": rlimits(job.limits, is_alone_with_uid=is_alone_with_uid),
            "frame_bytes": job.limits.frame_bytes,
            "filter": seccomp_filter.hex(),
            "watch_host": is_host_watched,
        }
    )


def rlimits(limits: EpisodeLimits, *, is_alone_with_uid: bool) -> dict[str, list[int]]:
    """Soft and hard limits by RLIMIT name."""
    values = {
        "CORE": [0, 0],
        "FSIZE": [limits.disk_bytes, limits.disk_bytes],
        "NOFILE": [OPEN_FILES, OPEN_FILES],
        # One second between the soft limit, which tells the process, and the hard one, which ends it.
        "CPU": [limits.cpu_time_s, limits.cpu_time_s + 1],
        "AS": [limits.memory_bytes, limits.memory_bytes],
        # Counted by user, who may have several guests: one could read off it what another takes.
        "SIGPENDING": [0, 0],
    }
    if is_alone_with_uid:
        values["NPROC"] = [limits.processes, limits.processes]
    return values
