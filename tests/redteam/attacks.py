"""The table of attacks: which agent, what a success would leave behind, and how an episode with it must end."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec

_AGENTS = Path(__file__).parent / "agents"
SOURCES = tuple(path.read_text(encoding="utf-8") for path in sorted(_AGENTS.glob("*.py")))

# What the host can find after an attack. An attack is stopped when it was tried and nothing of this was found.
Harm = Literal[
    "file", "answers", "arguments", "environment", "memory", "descriptor", "plan", "note",  # a secret came out
    "knock", "entered",  # something reached a door of the host's, or the host a door of the guest's
    "mark", "root",  # a file of the host, or the guest root, has changed
    "signal", "victim",  # a process of the host was signalled, or is gone
    "left",  # a process of the guest is still there
    "privilege",  # a process of the guest is root, has a capability, or could get one
    "calls",  # a system call was let through
    "counters",  # a number of the whole host, or its name for this start, came out
    "record",  # the record holds something that the host did not do
    "score",  # the answer counted
]  # fmt: skip


class Attack(msgspec.Struct, frozen=True, kw_only=True):
    """`success` is what an attack leaves behind without a jail, shown by the control. `first` is an agent that runs
    before, on another problem; `beside` one that runs at the same time."""

    agent: str
    success: Harm
    first: str = ""
    beside: str = ""


ATTACKS = (
    Attack(agent="read_host_file", success="file"),
    Attack(agent="walk_host_tree", success="file"),
    Attack(agent="read_answers", success="answers"),
    Attack(agent="read_environment", success="environment"),
    Attack(agent="read_command_lines", success="arguments"),
    Attack(agent="read_descriptors", success="descriptor"),
    Attack(agent="read_process_memory", success="memory"),
    Attack(agent="read_other_agent", success="plan", beside="neighbour"),
    Attack(agent="read_counters", success="counters"),
    Attack(agent="hear_locks", success="plan", beside="speak_by_locks"),
    Attack(agent="hear_record_locks", success="plan", beside="speak_by_locks"),
    Attack(agent="hear_reads", success="plan", beside="speak_by_reads"),
    Attack(agent="connect_tcp", success="knock"),
    Attack(agent="send_udp", success="knock"),
    Attack(agent="connect_abstract_socket", success="knock"),
    Attack(agent="connect_path_socket", success="knock"),
    Attack(agent="listen", success="entered"),
    Attack(agent="signal_host", success="signal"),
    Attack(agent="forge_trajectory", success="mark"),
    Attack(agent="symlink_output", success="mark"),
    Attack(agent="tamper_with_runner", success="mark"),
    Attack(agent="gain_privileges", success="privilege"),
    Attack(agent="raw_system_calls", success="calls"),
    Attack(agent="leave_daemon", success="left"),
    Attack(agent="outlive_the_pipe", success="left"),
    Attack(agent="smuggle_files_in", success="note", first="smuggle_files_out"),
    Attack(agent="smuggle_queue_in", success="note", first="smuggle_queue_out"),
    Attack(agent="smuggle_socket_in", success="note", first="smuggle_socket_out"),
)


class Forgery(msgspec.Struct, frozen=True, kw_only=True):
    """An agent that lies to the host about the work itself. No jail is needed to stop it: `stop` is how it ends."""

    agent: str
    stop: str
    limits: dict[str, int] = {}


FORGERIES = (
    Forgery(agent="rpc_huge_frame", stop="frame"),
    Forgery(agent="rpc_deep_frame", stop="protocol"),
    Forgery(agent="rpc_not_a_number", stop="protocol"),
    Forgery(agent="rpc_wrong_id", stop="protocol"),
    Forgery(agent="rpc_unasked_reply", stop="protocol"),
    Forgery(agent="rpc_second_start", stop="protocol"),
    Forgery(agent="rpc_host_method", stop="protocol"),
    Forgery(agent="rpc_flood", stop="tool_calls"),
    Forgery(agent="rpc_unfinished_frame", stop="wall_clock", limits={"agent_time_ms": 1_500}),
    Forgery(agent="rpc_surrogates", stop="protocol"),
    Forgery(agent="rpc_duplicate_keys", stop="returned"),
    Forgery(agent="rpc_forged_end", stop="raised"),
    Forgery(agent="rpc_extra_fields", stop="wall_clock", limits={"agent_time_ms": 1_500}),
    Forgery(agent="forge_results", stop="terminated"),
    Forgery(agent="deep_arguments", stop="returned"),
    Forgery(agent="deep_prompt", stop="returned"),
    Forgery(agent="die_with_a_status", stop="died"),
    Forgery(agent="flood_results", stop="results", limits={"result_bytes": 2_000}),
)


class Bomb(msgspec.Struct, frozen=True, kw_only=True):
    """An agent that takes more than it may. `amount` is far above the limit, `little` well below: the control, which
    runs behind the same limit. `stops` are the reasons it may end for; which layer comes first differs by host."""

    agent: str
    limits: dict[str, int]
    amount: int
    little: int
    stops: tuple[str, ...]


MIB = 1 << 20
BOMBS = (
    Bomb(agent="bomb_memory_one", limits={"memory_bytes": 160 * MIB}, amount=60, little=3, stops=("memory",)),
    Bomb(agent="bomb_memory_many", limits={"memory_bytes": 160 * MIB}, amount=12, little=1, stops=("memory",)),
    Bomb(agent="bomb_memory_hidden", limits={"memory_bytes": 160 * MIB}, amount=12, little=1, stops=("memory",)),
    Bomb(agent="bomb_memory_unmapped", limits={"memory_bytes": 160 * MIB}, amount=40, little=0, stops=("raised",)),
    Bomb(agent="bomb_socket_buffers", limits={"memory_bytes": 160 * MIB}, amount=12, little=1, stops=("memory",)),
    Bomb(agent="bomb_names", limits={"agent_time_ms": 60_000}, amount=400_000, little=1_000, stops=("disk",)),
    Bomb(agent="bomb_forks", limits={"processes": 20}, amount=200, little=3, stops=("processes",)),
    Bomb(agent="bomb_threads", limits={"processes": 20}, amount=200, little=3, stops=("processes",)),
    Bomb(agent="bomb_disk", limits={"disk_bytes": 8 * MIB}, amount=40, little=0, stops=("disk",)),
    Bomb(agent="bomb_cpu", limits={"cpu_time_s": 1}, amount=40, little=1, stops=("cpu",)),
    Bomb(agent="bomb_output", limits={"output_bytes": 1 * MIB}, amount=4_000, little=3, stops=("output",)),
    Bomb(agent="loop_for_ever", limits={"agent_time_ms": 2_000}, amount=600, little=1, stops=("wall_clock",)),
    Bomb(agent="stop_itself", limits={"agent_time_ms": 2_000}, amount=2, little=1, stops=("wall_clock",)),
)  # fmt: skip


def source_of(program: str) -> str:
    """The agent file that holds a program: a problem's query names the one to run."""
    return next(source for source in SOURCES if f"def {program}(target)" in source)
