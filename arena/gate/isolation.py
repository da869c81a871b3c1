"""The gate in a process of its own: hostile source may exhaust or crash a parser, and then only that process dies.

A source that kills the child or uses up its CPU time is rejected with a finding that says so; a child that dies for a
reason of the host's is ArenaError V2004, never a verdict. The child reads one request from its standard input, holds no
secret in its environment and executes nothing of the source.
"""

from __future__ import annotations

import hashlib
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from arena.gate.inspection import inspect
from arena.gate.knowledge import GateKnowledge
from arena.gate.likeness import Author, Neighbour, inputs_hash
from arena.gate.rules import RULES_VERSION, GateReport, finding, make_report
from arena.policy import GateRules
from foundation.errors import ArenaError

CPU_LIMIT_S = 20
NICENESS = 19  # idle time: a seventieth of a core's share beside an episode
WALL_LIMIT_S = 1_800.0  # twenty seconds of processor time at that share, on a machine that is full
MEMORY_BYTES = 4 << 30  # address space, not resident memory
EXIT_OUT_OF_MEMORY = 70
_FATAL_SIGNALS = {signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGXCPU}
_ROOT = Path(__file__).parents[2]


class _Request(msgspec.Struct, frozen=True, kw_only=True):
    """What `inspect` takes, and the child's own limit."""

    source: bytes
    rules: GateRules
    knowledge: GateKnowledge
    neighbours: tuple[Neighbour, ...]
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
    request = _Request(
        source=data,
        rules=rules,
        knowledge=knowledge,
        neighbours=tuple(neighbours),
        author=author,
        cpu_limit_s=cpu_limit_s,
    )
    command = [sys.executable, "-P", "-m", "arena.gate.isolation"]
    message = msgspec.msgpack.encode(request, enc_hook=_plain)
    try:
        done = subprocess.run(
            command, input=message, capture_output=True, env=_environment(), timeout=wall_limit_s, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ArenaError("V2004", f"the gate's process: {error}") from error
    if done.returncode == 0:
        return msgspec.json.decode(done.stdout, type=GateReport)
    if done.returncode == EXIT_OUT_OF_MEMORY:
        detail = "the parser ran out of memory"
    elif -done.returncode in _FATAL_SIGNALS:
        detail = f"the parser did not survive it: {signal.Signals(-done.returncode).name}"
    else:
        told = done.stderr.decode("utf-8", "replace")[-500:]
        raise ArenaError("V2004", f"the gate's process ended with {done.returncode}: {told}")
    return make_report(
        [finding("parse", 0, detail)],
        rules_version=RULES_VERSION,
        source_sha256=hashlib.sha256(data).hexdigest(),
        inputs_sha256=inputs_hash(knowledge.inputs_sha256, author, neighbours),
    )


def main() -> int:
    """The child: limit its own time and memory, inspect, print the report as JSON."""
    os.nice(NICENESS)
    request = msgspec.msgpack.decode(sys.stdin.buffer.read(), type=_Request, dec_hook=_array)
    _lower(resource.RLIMIT_CORE, 0)
    _lower(resource.RLIMIT_AS, MEMORY_BYTES)
    _lower(resource.RLIMIT_CPU, request.cpu_limit_s)
    try:
        report = inspect(request.source, request.rules, request.knowledge, request.neighbours, request.author)
    except MemoryError:
        return EXIT_OUT_OF_MEMORY
    sys.stdout.buffer.write(msgspec.json.encode(report))
    return 0


def _lower(limit: int, value: int) -> None:
    """Lower a soft limit; the hard one stays, so that CPU time over the limit is SIGXCPU and not SIGKILL."""
    hard = resource.getrlimit(limit)[1]
    resource.setrlimit(limit, (value if hard == resource.RLIM_INFINITY else min(value, hard), hard))


def _environment() -> dict[str, str]:
    kept = {name: os.environ[name] for name in ("PATH", "LD_LIBRARY_PATH") if name in os.environ}
    return {**kept, "PYTHONPATH": str(_ROOT), "OPENBLAS_NUM_THREADS": "1"}


def _plain(values: Any) -> bytes:
    return np.ascontiguousarray(values, dtype="<u8").tobytes()


def _array(_: type, data: bytes) -> Any:
    return np.frombuffer(data, dtype="<u8")


if __name__ == "__main__":
    sys.exit(main())
