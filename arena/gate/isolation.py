"""The gate in a process of its own: hostile source may exhaust or crash a parser, and then only that process dies.

A source that kills the child or uses up its CPU time is rejected with a finding that says so; a child that
dies for a reason of the host's is ArenaError V2004, never a verdict. The child gets the knowledge as a sealed file,
holds no secret in its environment and executes nothing of the source. It is forked by a template that has imported the
gate and never reads a source (`arena.gate.child`), as the imports would take longer than the inspection.
"""

from __future__ import annotations

import atexit
import fcntl
import hashlib
import mmap
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import ExitStack
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
REPORT_BYTES = 64 << 20
EXIT_OUT_OF_MEMORY = 70
FILES = 5  # of a message to the template: request, report, complaint, knowledge, and where to tell of the child's end
STATUS_BYTES = 4
_FATAL_SIGNALS = {signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGXCPU}
_SEALS = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE
_ROOT = Path(__file__).parents[2]


class PackedNeighbour(msgspec.Struct, frozen=True, kw_only=True):
    """A `Neighbour` on its way to the child."""

    author: Author
    code_sha256: str
    phrases: bytes
    texts: bytes
    is_winner: bool


class InspectionRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Everything `inspect` takes beside the knowledge's arrays, of which it says how long each is."""

    source: bytes
    rules: GateRules
    id_lengths: tuple[int, ...]
    counts: tuple[int, int, int, int]  # product ids, grams of texts, phrases of published agents, and of their texts
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
    try:
        ended = _end_of_child(message, knowledge, wall_limit_s) or _end_of_child(message, knowledge, wall_limit_s)
    except OSError as error:
        raise ArenaError("V2004", f"the gate's process: {error}") from error
    if ended is None:
        raise ArenaError("V2004", "the gate's process: its template ended twice")
    code, said, complaint = ended
    if code == 0:
        return msgspec.json.decode(said, type=GateReport)
    inputs = inputs_hash(knowledge.inputs_sha256, author, neighbours)
    if code == EXIT_OUT_OF_MEMORY:
        return _fatal(data, inputs, "the parser ran out of memory")
    if -code in _FATAL_SIGNALS:
        return _fatal(data, inputs, f"the parser did not survive it: {signal.Signals(-code).name}")
    raise ArenaError("V2004", f"the gate's process ended with {code}: {complaint.decode('utf-8', 'replace')[-500:]}")


class _Template:
    """The process that forks the children; it ends with this one, or when it has had nothing to do for a while."""

    def __init__(self) -> None:
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            command = [sys.executable, "-P", "-m", "arena.gate.child"]
            self._process = subprocess.Popen(
                command, stdin=theirs.fileno(), stdout=subprocess.DEVNULL, env=_environment()
            )
        self.owner = os.getpid()
        atexit.register(self.end)

    def fork(self, files: Sequence[int]) -> bool:
        """Start a child on these files; False when the template has gone."""
        try:
            socket.send_fds(self._control, [b"f"], files)
        except (BrokenPipeError, ConnectionResetError):
            return False
        return True

    def end(self) -> None:
        """End the template, and with it every child."""
        atexit.unregister(self.end)
        self._control.close()
        if self.owner == os.getpid():
            self._process.wait()


class _Warm:
    """What is kept from one inspection to the next: the template and the file of the knowledge last used."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._template: _Template | None = None
        self._knowledge: tuple[str, int] | None = None

    def template(self, gone: _Template | None = None) -> _Template:
        """The template, another one than `gone`. Raises OSError when it can't be started."""
        with self._lock:
            if self._template is not None and (self._template is gone or self._template.owner != os.getpid()):
                self._template.end()
                self._template = None
            if self._template is None:
                self._template = _Template()
            return self._template

    def knowledge(self, knowledge: GateKnowledge) -> int:
        """A new descriptor of the sealed file that holds the arrays of the knowledge."""
        with self._lock:
            if self._knowledge is None or self._knowledge[0] != knowledge.inputs_sha256:
                if self._knowledge is not None:
                    os.close(self._knowledge[1])
                self._knowledge = None
                file = _sealed(*map(_bytes, _arrays(knowledge)))
                self._knowledge = knowledge.inputs_sha256, file
            return os.dup(self._knowledge[1])


_WARM = _Warm()


def _end_of_child(message: bytes, knowledge: GateKnowledge, wall_limit_s: float) -> tuple[int, bytes, bytes] | None:
    """How a child ended, its report and its complaint; None when the template went away instead.

    Raises OSError when there is no child, or it takes too long.
    """
    with ExitStack() as closing:

        def kept(file: int) -> int:
            closing.callback(os.close, file)
            return file

        request = kept(_sealed(message))
        report, complaint = (kept(os.memfd_create(name)) for name in ("gate-report", "gate-complaint"))
        known = kept(_WARM.knowledge(knowledge))
        ended, telling = os.pipe()
        kept(ended)  # closed early, it ends the child
        try:
            template = _WARM.template()
            is_sent = template.fork([request, report, complaint, known, telling])
        finally:
            os.close(telling)
        status = b""
        if is_sent:
            poll = select.poll()
            poll.register(ended, select.POLLIN)
            if not poll.poll(wall_limit_s * 1_000):
                raise TimeoutError(f"no end after {wall_limit_s:g} s")
            status = os.read(ended, STATUS_BYTES)
        if len(status) < STATUS_BYTES:
            _WARM.template(gone=template)
            return None
        code = int.from_bytes(status, "little", signed=True)
        said, complained = (os.pread(file, os.fstat(file).st_size, 0) for file in (report, complaint))
        return code, said, complained


def _sealed(*parts: bytes) -> int:
    """A file in memory that nobody can change any more, to be read from its beginning."""
    file = os.memfd_create("gate", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        with open(file, "wb", closefd=False) as stream:
            for part in parts:
                stream.write(part)
        os.lseek(file, 0, os.SEEK_SET)
        fcntl.fcntl(file, fcntl.F_ADD_SEALS, _SEALS)
    except BaseException:
        os.close(file)
        raise
    return file


def unpack(request: InspectionRequest, shared: bytes | mmap.mmap) -> tuple[GateKnowledge, tuple[Neighbour, ...]]:
    """The knowledge and the neighbours of a request, in the child; `shared` holds the knowledge's arrays."""
    values = np.frombuffer(shared, dtype="<u8")
    ids, grams, phrases, _ = np.cumsum(request.counts)
    knowledge = GateKnowledge(
        product_ids=values[:ids],
        id_lengths=request.id_lengths,
        text_grams=values[ids:grams],
        baseline=values[grams:phrases],
        baseline_texts=values[phrases:],
        skipped_ids=request.skipped_ids,
        inputs_sha256=request.inputs_sha256,
    )
    neighbours = (
        Neighbour(
            author=packed.author,
            sketch=Sketch(
                code_sha256=packed.code_sha256,
                phrases=np.frombuffer(packed.phrases, dtype="<u8"),
                texts=np.frombuffer(packed.texts, dtype="<u8"),
            ),
            is_winner=packed.is_winner,
        )
        for packed in request.neighbours
    )
    return knowledge, tuple(neighbours)


def _arrays(knowledge: GateKnowledge) -> tuple[Sorted64, Sorted64, Sorted64, Sorted64]:
    """What of the knowledge goes to the child in a file, in this order."""
    return knowledge.product_ids, knowledge.text_grams, knowledge.baseline, knowledge.baseline_texts


def _request(
    data: bytes,
    rules: GateRules,
    knowledge: GateKnowledge,
    neighbours: Sequence[Neighbour],
    author: Author | None,
    cpu_limit_s: int,
) -> InspectionRequest:
    ids, grams, phrases, texts = _arrays(knowledge)
    return InspectionRequest(
        source=data,
        rules=rules,
        id_lengths=knowledge.id_lengths,
        counts=(len(ids), len(grams), len(phrases), len(texts)),
        skipped_ids=knowledge.skipped_ids,
        inputs_sha256=knowledge.inputs_sha256,
        neighbours=tuple(
            PackedNeighbour(
                author=other.author,
                code_sha256=other.sketch.code_sha256,
                phrases=_bytes(other.sketch.phrases),
                texts=_bytes(other.sketch.texts),
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
