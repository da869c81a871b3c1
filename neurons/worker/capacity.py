"""How many episodes this host runs at once, and how long one may take: decisions over plain numbers, and the numbers.

A node never starts more workers than its memory holds with every jail at its limit, so that no agent is ended
for memory that another one took (no fault of ours is ever the agent's).
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from harness.limits import EpisodeLimits
from harness.sandbox.confinement.cgroup import memory_limit_bytes

if TYPE_CHECKING:
    from arena.policy import Policy

WORKER_BYTES = 400 << 20  # a worker's own memory: interpreter, index pages it touches, one episode's record
RESERVED_BYTES = 1 << 30  # supervisor, store and the rest of the host


def worker_count(wanted: int, memory_bytes: int, limits: EpisodeLimits) -> int:
    """Workers to start where `wanted` (the cores, or the operator's number) are asked for: as many as fit, or one."""
    return max(1, min(wanted, (memory_bytes - RESERVED_BYTES) // episode_bytes(limits)))


def episode_bytes(limits: EpisodeLimits) -> int:
    """What one episode takes at most: a worker, and a jail at its limits."""
    return WORKER_BYTES + limits.memory_bytes + limits.disk_bytes


def claimed_bytes(needed: int, machines: Sequence[int]) -> int:
    """What a job that needs so many bytes claims, of machines with so many: what it needs, and where no machine has as
    much, all of the largest one, so that it is alone there and does run."""
    return min(needed, max(machines, default=0))


def episode_deadline_s(policy: Policy) -> float:
    """How long one evaluation may take before its worker counts as stuck: every step at two full attempts."""
    limits, inference = policy.limits, policy.inference
    return (limits.agent_time_ms + 2 * limits.steps * inference.attempt_timeout_ms) / 1_000


def usable_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def usable_memory_bytes() -> int:
    """Memory of the host, or of the control group that this process lives in when that has less."""
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    try:
        membership, mounts = Path("/proc/self/cgroup").read_text(), Path("/proc/self/mountinfo").read_text()
    except OSError:
        return total
    return min(total, memory_limit_bytes(membership, mounts) or total)
