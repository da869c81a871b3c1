"""Reading an export back: its lines, rows, verdicts and trajectories, a shard at a time.

Trajectories come out as the exporter handed them to the views, from the log rows (and scrubbed rows) alone;
memory is bounded by a line and by one small entry per verdict. What can't be read raises ArenaError V2050 with file and
line.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType

import msgspec
import zstandard

from arena.export.model import LogRow, Trajectory, Withheld
from arena.export.writing.shards import LOG, SCRUBBED, shard_name
from arena.records.body import decode_body, decode_content
from arena.records.model import Envelope, EvaluationRecord, VerdictRecord
from foundation.errors import ArenaError
from judge.verdict import UnscoredVerdict, Verdict
from problems.model import Pool

LINE_BYTES_MAX = 160 << 20  # two bodies of the largest size, and their envelope
_READ_AT_ONCE = 1 << 20

_NULL = b"null"


class _Line(Envelope, frozen=True, kw_only=True):
    """A LogRow as it is decoded: a raw value or null can't be told by type."""

    content: msgspec.Raw
    body: msgspec.Raw
    withheld: Withheld | None

    def row(self) -> LogRow:
        """The row. Raw values are copied, so that the line they are part of can go."""
        fields = msgspec.structs.asdict(self)
        for name in ("content", "body"):
            fields[name] = None if bytes(fields[name]) == _NULL else fields[name].copy()
        return LogRow(**fields)


_LINE = msgspec.json.Decoder(_Line)

VerdictOf = Callable[[str], tuple[int, Verdict | UnscoredVerdict | None]]  # body hash -> record number, verdict
ProblemOf = Callable[[EvaluationRecord], tuple[Pool, str]]  # -> pool, cluster id


def read_lines(path: Path) -> Iterator[bytes]:
    """The lines of a zstd-compressed file, without their ends. Raises ArenaError V2050."""
    rest = b""
    try:
        with path.open("rb") as file, zstandard.ZstdDecompressor().stream_reader(file) as stream:
            while chunk := stream.read(_READ_AT_ONCE):
                *lines, rest = (rest + chunk).split(b"\n")
                yield from lines
                if len(rest) > LINE_BYTES_MAX:
                    raise ArenaError("V2050", f"{path.name}: a line is over {LINE_BYTES_MAX} bytes")
    except zstandard.ZstdError as error:
        raise ArenaError("V2050", f"{path.name}: {error}") from error
    if rest:
        raise ArenaError("V2050", f"{path.name}: the last line has no end")


def read_row(line: bytes) -> LogRow:
    """The log row of one line, without its end. Raises ArenaError V2050 when it is not one in canonical form."""
    try:
        row = _LINE.decode(line).row()
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ArenaError("V2050", str(error)) from error
    if msgspec.json.encode(row) != line:
        raise ArenaError("V2050", "not in canonical form")
    return row


def read_rows(path: Path) -> Iterator[LogRow]:
    """The log rows of a file. Raises ArenaError V2050 for a line that is not one in canonical form."""
    for number, line in enumerate(read_lines(path), 1):
        try:
            yield read_row(line)
        except ArenaError as error:
            raise ArenaError("V2050", f"{path.name}, line {number}: {error.failure.detail}") from error


class VerdictFile:
    """The verdicts of an export, first on each body, kept beside memory."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 - closed with this object
        self._places: dict[bytes, tuple[int, int, int]] = {}  # body hash -> record number, offset, length

    def add(self, seq: int, content: bytes, record: VerdictRecord) -> None:
        """Keep a verdict record unless an earlier one on its body is kept."""
        name = record.verdict.body_sha256.encode()
        kept = self._places.get(name)
        if kept is None or seq < kept[0]:
            self._file.seek(0, 2)
            self._places[name] = (seq, self._file.tell(), len(content))
            self._file.write(content)

    def find(self, body_sha256: str) -> tuple[int, Verdict | UnscoredVerdict | None]:
        """Number and value of the first verdict on a body; 0 and None where there is none."""
        place = self._places.get(body_sha256.encode())
        if place is None:
            return 0, None
        seq, offset, length = place
        self._file.seek(offset)
        payload = decode_content(self._file.read(length)).payload
        return seq, payload.verdict if isinstance(payload, VerdictRecord) else None

    def __enter__(self) -> VerdictFile:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._file.close()


def read_scrubbed(folder: Path, number: int) -> dict[int, Trajectory]:
    """The scrubbed trajectories of a shard by record number. Raises ArenaError V2050."""
    path = folder / SCRUBBED / shard_name(number)
    if not path.exists():
        return {}
    try:
        rows = [msgspec.json.decode(line, type=Trajectory) for line in read_lines(path)]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ArenaError("V2050", f"{SCRUBBED}/{path.name}: {error}") from error
    return {row.seq: row for row in rows}


def shard_trajectories(folder: Path, number: int, verdict_of: VerdictOf, problem_of: ProblemOf) -> Iterator[Trajectory]:
    """The trajectories of a shard as its views were written from them. Raises ArenaError V2050."""
    scrubbed = read_scrubbed(folder, number)
    for row in read_rows(folder / LOG / shard_name(number)):
        if row.seq in scrubbed:
            yield scrubbed[row.seq]
        elif row.content is not None and row.body is not None:
            trajectory = row_trajectory(row, verdict_of, problem_of)
            if trajectory:
                yield trajectory


def row_trajectory(row: LogRow, verdict_of: VerdictOf, problem_of: ProblemOf) -> Trajectory | None:
    """The trajectory of a whole row, None when it is no evaluation. Raises ArenaError V2050."""
    if row.content is None or row.body is None:
        return None
    content = decode_content(bytes(row.content))
    if not isinstance(content.payload, EvaluationRecord):
        return None
    verdict_seq, verdict = verdict_of(content.payload.body_sha256)
    pool, cluster_id = problem_of(content.payload)
    return Trajectory(
        validator=row.validator,
        seq=row.seq,
        content_sha256=row.content_sha256,
        signature=row.signature,
        content=content,
        evaluation=content.payload,
        body=decode_body(bytes(row.body)),
        verdict=verdict,
        verdict_seq=verdict_seq,
        pool=pool,
        cluster_id=cluster_id,
    )
