"""The table of hostile programs: what each would leave behind, or how an episode with it must end."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec

_AGENTS = Path(__file__).parent / "agents"
SOURCES = tuple(path.read_text(encoding="utf-8") for path in sorted(_AGENTS.glob("*.py")))
MIB = 1 << 20

# What the host can find afterwards. An attack is stopped when it was tried and nothing of this was found.
Harm = Literal[
    "file", "answers", "environment", "memory", "descriptor", "plan", "note",  # a secret came out
    "tcp", "udp", "abstract", "path", "entered",  # a door of the host's was reached, or one of the guest's
    "mark", "root",  # a file of the host, or the guest root, has changed
    "signal", "victim",  # a process of the host was signalled, or is gone
    "left",  # a process of the guest is still there
    "privilege",  # a process of the guest is root, has a capability, or could get one
    "calls",  # a system call was let through
    "counters",  # a number of the whole host, or its name for this start, came out
    "record",  # the record holds something that the host did not do
    "score",  # the answer counted
]  # fmt: skip


class Program(msgspec.Struct, frozen=True, kw_only=True):
    """One hostile program: the function `agent` of a file in `agents/`, run behind `limits`.

    An attack has `harm`: what it leaves behind without a jail, shown by the control. `first` runs before it, on another
    problem, and `beside` at the same time. A lie to the host has `stop`, how its episode ends, with no jail needed for
    it. A bomb takes `amount`, far above its limit; its control behind the same limit takes
    `little`.
    """

    agent: str
    harm: tuple[Harm, ...] = ()
    first: str = ""
    beside: str = ""
    stop: str = ""
    limits: dict[str, int] = {}
    amount: int = 0
    little: int = 0


def _attack(agent: str, *harm: Harm, first: str = "", beside: str = "") -> Program:
    return Program(agent=agent, harm=harm, first=first, beside=beside)


ATTACKS = (
    _attack("read_host_file", "file"),
    _attack("read_answers", "answers"),
    _attack("read_environment", "environment"),
    _attack("read_descriptors", "descriptor"),
    _attack("read_process_memory", "memory"),
    _attack("read_other_agent", "plan", beside="neighbour"),
    _attack("read_counters", "counters"),
    _attack("hear_locks", "plan", beside="speak_by_locks"),
    _attack("connect_everywhere", "tcp", "udp", "abstract", "path"),
    _attack("listen", "entered"),
    _attack("signal_host", "signal"),
    _attack("forge_trajectory", "mark"),
    _attack("tamper_with_runner", "mark"),
    _attack("gain_privileges", "privilege"),
    _attack("raw_system_calls", "calls"),
    _attack("leave_daemon", "left"),
    _attack("outlive_the_pipe", "left"),
    _attack("smuggle_files_in", "note", first="smuggle_files_out"),
)
LIES = (
    Program(agent="forge_results", stop="terminated"),
    Program(agent="deep_arguments", stop="returned"),
    Program(agent="deep_prompt", stop="returned"),
)
_MEMORY = {"memory_bytes": 160 * MIB}
BOMBS = (
    Program(agent="bomb_memory_one", limits=_MEMORY, amount=60, little=3, stop="memory"),
    Program(agent="bomb_memory_many", limits=_MEMORY, amount=12, little=1, stop="memory"),
    Program(agent="bomb_memory_hidden", limits=_MEMORY, amount=12, little=1, stop="memory"),
    Program(agent="bomb_socket_buffers", limits=_MEMORY, amount=12, little=1, stop="memory"),
    Program(agent="bomb_names", limits={"disk_bytes": 8 * MIB}, amount=400_000, little=1_000, stop="disk"),
    Program(agent="bomb_forks", limits={"processes": 20}, amount=200, little=3, stop="processes"),
    Program(agent="bomb_disk", limits={"disk_bytes": 8 * MIB}, amount=40, little=0, stop="disk"),
    Program(agent="bomb_cpu", limits={"cpu_time_s": 1}, amount=40, little=1, stop="cpu"),
    Program(agent="bomb_output", limits={"output_bytes": 1 * MIB}, amount=4_000, little=3, stop="output"),
    Program(agent="loop_for_ever", limits={"agent_time_ms": 2_000}, amount=600, little=1, stop="wall_clock"),
    Program(agent="stop_itself", limits={"agent_time_ms": 2_000}, amount=2, little=1, stop="wall_clock"),
)
HONEST = Program(agent="honest", stop="terminated")

# System calls that no agent needs, one of each rule of the filter (its own tests ask it for every number): on x86_64,
# on aarch64, and arguments that no kernel accepts. None can have an effect.
_BAD = -1
CALLS: dict[str, tuple[int, int, list[int]]] = {
    "unshare": (272, 97, [0x1]),
    "ptrace": (101, 117, [0x4206, _BAD, 0, 0]),
    "process_vm_readv": (310, 270, [_BAD, 0, 0, 0, 0, 0]),
    "memfd_create": (319, 279, [0, 0]),
    "io_uring_setup": (425, 425, [0, 0]),
    "bpf": (321, 280, [_BAD, 0, 0]),
    "keyctl": (250, 219, [_BAD, 0, 0, 0, 0]),
    "shmget": (29, 194, [0, 0, 0]),
    "inotify_init1": (294, 26, [_BAD & 0xFFFF]),
    "flock": (73, 32, [_BAD, 1]),
    "fcntl F_SETLK": (72, 25, [_BAD, 6, 0]),
    "setsockopt": (54, 208, [_BAD, 1, 7, 0, 0]),
    "sendmsg": (46, 211, [_BAD, 0, 0]),
    "vmsplice": (278, 75, [_BAD, 0, 1, 0]),
    "sysinfo": (99, 179, [0]),
    "fstatfs": (138, 44, [_BAD, 0]),
    "syncfs": (306, 267, [_BAD]),
    "mmap shared": (9, 222, [0, 0, 3, 0x21, _BAD, 0]),
    "mmap huge": (9, 222, [0, 0, 3, 0x40022, _BAD, 0]),
    "madvise pageout": (28, 233, [1, 1, 21]),
    "prctl dumpable": (157, 167, [4, 99, 0, 0, 0]),
    "clone with own files": (56, 220, [0x10000, 0, 0, 0, 0]),
    "close_range unshare": (436, 436, [9, 8, 2]),
    "socket netlink": (41, 198, [16, 0xFF, 0]),
}


def source_of(program: str) -> str:
    """The agent file that holds a program: a problem's query names the one to run."""
    return next(source for source in SOURCES if f"def {program}(target)" in source)
