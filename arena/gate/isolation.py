"""The gate in a process of its own: hostile source may exhaust or crash a parser, and then only that process dies.

A source that kills the child or uses up its CPU time is rejected with a finding that says so; a child that
dies for a reason of the host's is ArenaError V2004, never a verdict. The child gets the knowledge over its standard
input, holds no secret in its environment and executes nothing of the source.
"""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np

from arena.gate.knowledge import GateKnowledge, Sorted64
from arena.gate.report import GateReport, finding, make_report
from arena.gate.rules import RULES_VERSION
from arena.gate.similarity.ownership import Author, Neighbour, inputs_hash
from arena.gate.similarity.sketch import Sketch
from arena.policy import GateRules
from foundation.errors import ArenaError

CPU_LIMIT_S = 20
NICENESS = 19  # idle time: a seventieth of a core's share beside an episode
WALL_LIMIT_S = 1_800.0  # twenty seconds of processor time at that share, on a machine that is full
MEMORY_BYTES = 4 << 30  # address space, not resident memory
EXIT_OUT_OF_MEMORY = 70
_FATAL_SIGNALS = {signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGXCPU}
_ROOT = Path(__file__).parents[2]


class PackedNeighbour(msgspec.Struct, frozen=True, kw_only=True):
    """A `Neighbour` on its way to the child."""

    author: Author
    code_sha256: str
    phrases: bytes
    is_winner: bool


class InspectionRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Everything `inspect` takes, as one message; arrays are little-endian 64-bit values."""

    source: bytes
    rules: GateRules
    product_ids: bytes
    id_lengths: tuple[int, ...]
    text_grams: bytes
    baseline: bytes
    skipped_ids: int
    inputs_sha256: str
    neighbours: tuple[PackedNeighbour, ...]
    author: Author | None
    cpu_limit_s: int


def inspect_isolated(
    source: bytes | str,
    rules: GateRules,
    knowledge: GateKnowledge,
    neighbours: Sequence[Neighbour] = (),
    author: Author | None = None,
    *,
    cpu_limit_s: int = CPU_LIMIT_S,
    wall_limit_s: float = WALL_LIMIT_S,
) -> GateReport:
    """`arena.gate.inspection.inspect` in a child process. Blocks: call it in a thread from async code.

    Raises ArenaError V2004 when the child could not run to its end for a reason that isn't the source's.
    """
    data = source.encode("utf-8", "surrogatepass") if isinstance(source, str) else source
    message = msgspec.msgpack.encode(_request(data, rules, knowledge, neighbours, author, cpu_limit_s))
    command = [sys.executable, "-P", "-m", "arena.gate.child"]
    pipe = subprocess.PIPE
    try:
        with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, env=_environment()) as child:
            try:
                behind = os.getpriority(os.PRIO_PROCESS, 0) + NICENESS  # the kernel takes 19 for more
                os.setpriority(os.PRIO_PROCESS, child.pid, behind)
                said, complaint = child.communicate(message, wall_limit_s)
            except BaseException:
                child.kill()
                raise
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ArenaError("V2004", f"the gate's process: {error}") from error
    if child.returncode == 0:
        return msgspec.json.decode(said, type=GateReport)
    inputs = inputs_hash(knowledge.inputs_sha256, author, neighbours)
    if child.returncode == EXIT_OUT_OF_MEMORY:
        return _fatal(data, inputs, "the parser ran out of memory")
    if -child.returncode in _FATAL_SIGNALS:
        name = signal.Signals(-child.returncode).name
        return _fatal(data, inputs, f"the parser did not survive it: {name}")
    tail = complaint.decode("utf-8", "replace")[-500:]
    raise ArenaError("V2004", f"the gate's process ended with {child.returncode}: {tail}")


def unpack(request: InspectionRequest) -> tuple[GateKnowledge, tuple[Neighbour, ...]]:
    """The knowledge and the neighbours of a request, in the child."""
    knowledge = GateKnowledge(
        product_ids=_values(request.product_ids),
        id_lengths=request.id_lengths,
        text_grams=_values(request.text_grams),
        baseline=_values(request.baseline),
        skipped_ids=request.skipped_ids,
        inputs_sha256=request.inputs_sha256,
    )
    neighbours = (
        Neighbour(
            author=packed.author,
            sketch=Sketch(code_sha256=packed.code_sha256, phrases=_values(packed.phrases)),
            is_winner=packed.is_winner,
        )
        for packed in request.neighbours
    )
    return knowledge, tuple(neighbours)


def _request(
    data: bytes,
    rules: GateRules,
    knowledge: GateKnowledge,
    neighbours: Sequence[Neighbour],
    author: Author | None,
    cpu_limit_s: int,
) -> InspectionRequest:
    return InspectionRequest(
        source=data,
        rules=rules,
        product_ids=_bytes(knowledge.product_ids),
        id_lengths=knowledge.id_lengths,
        text_grams=_bytes(knowledge.text_grams),
        baseline=_bytes(knowledge.baseline),
        skipped_ids=knowledge.skipped_ids,
        inputs_sha256=knowledge.inputs_sha256,
        neighbours=tuple(
            PackedNeighbour(
                author=other.author,
                code_sha256=other.sketch.code_sha256,
                phrases=_bytes(other.sketch.phrases),
                is_winner=other.is_winner,
            )
            for other in neighbours
        ),
        author=author,
        cpu_limit_s=cpu_limit_s,
    )


def _fatal(data: bytes, inputs_sha256: str, detail: str) -> GateReport:
    return make_report(
        [finding("parse", 0, detail)],
        rules_version=RULES_VERSION,
        source_sha256=hashlib.sha256(data).hexdigest(),
        inputs_sha256=inputs_sha256,
    )


def _environment() -> dict[str, str]:
    kept = {name: os.environ[name] for name in ("PATH", "LD_LIBRARY_PATH") if name in os.environ}
    return {**kept, "PYTHONPATH": str(_ROOT), "OPENBLAS_NUM_THREADS": "1"}


def _bytes(values: Sorted64) -> bytes:
    return np.ascontiguousarray(values, dtype="<u8").tobytes()


def _values(data: bytes) -> Sorted64:
    return np.frombuffer(data, dtype="<u8")
