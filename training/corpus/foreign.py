"""Traces from files that are no export: one row a trajectory, in any of the formats of `training.corpus.formats`.

Every row comes out once, in order, as a trace or as a quarantined row with code and place; a file none of whose rows is
of a known format is refused. Nobody vouches for such a row: its trace is not verified, and what a row says of itself is
taken only where it has a field for it. A file with a row a line is read in pieces, cut where its bytes say.
"""

from __future__ import annotations

import hashlib
import re
import zipfile
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

import msgspec

from arena.export.files import read_lines
from foundation.codes.names import UNKNOWN_FORMAT
from foundation.errors import ArenaError
from harness.chat import Message
from training.corpus.envelopes import detect, opened, rows_key, talk_of, text_of
from training.corpus.formats import (
    is_chat,
    is_folded,
    read_chat,
    read_dialogue,
    read_messages,
    read_rollout,
    read_text,
    read_tools,
    rollout_facts,
)
from training.corpus.gates import RECOMMEND, TERMINATE
from training.corpus.model import JUDGE, NO_TOOLS, RESULTS, Quarantined, SourceKind, Trace, TraceSource, assemble_trace
from training.corpus.values import read_facts

_QUOTES = r"[\\\"'’”]*"
_NAMED = re.compile(rf"\b(?:product|item)[ _-]?id{_QUOTES}\s*[:=]?\s*{_QUOTES}([A-Za-z0-9][\w-]*)", re.IGNORECASE)


def surfaced_in(messages: Iterable[Message]) -> tuple[str, ...] | None:
    """The ids in order of appearance; None where no result names one."""
    silent: set[str] = set()
    found: dict[str, None] = {}
    for message in messages:
        silent.update(call.id for call in message.calls if call.name in (RECOMMEND, TERMINATE))
        if message.role == "tool" and message.call_id not in silent:
            found.update(dict.fromkeys(_NAMED.findall(message.content)))
    return tuple(found) or None


ARCHIVE = ".zst"
INSPECT_LOG = ".eval"  # a zip with a JSON file for each sample
PROMPT = "prompt"  # in `missing`: the row is what a model answered, not what it was asked


def read_foreign(path: Path) -> Iterator[Trace | Quarantined]:
    """The rows of a `.jsonl`, `.jsonl.zst`, `.json` or `.traj` file (a list of rows, or one), or of inspect's `.eval`.

    Memory: a row, or a whole `.json` or `.traj` file.

    Raises ArenaError V2098 at the end when rows were read and none was of a known format, V2050 for a broken archive.
    """
    unknown = None
    is_any_known = False
    for number, line in enumerate(lines_from(path), 1):
        row = read_line(line, f"{path.name}:{number}")
        if isinstance(row, Quarantined) and row.code == UNKNOWN_FORMAT:
            unknown = unknown or row
        else:
            is_any_known = True
        yield row
    if unknown is not None and not is_any_known:
        raise ArenaError("V2098", f"{path}: no row is of a known format; {unknown.place}: {unknown.detail}")


def convert_row(row: object, place: str, sha256: str) -> Trace:
    """The trace of one decoded JSON row. `sha256` is that of its bytes.

    Raises ArenaError V2098 for an unknown format, V2097 for a row that is not what its format says.
    """
    row = opened(row)
    kind = detect(row)
    fields = row if isinstance(row, dict) else {}
    metadata = fields["metadata"] if isinstance(fields.get("metadata"), dict) else {}
    query = next((one["query"] for one in (fields, metadata) if isinstance(one.get("query"), str)), "")
    facts, missing = read_facts(fields, metadata), list[str]()
    messages, tools = _conversation(kind, row, fields, query)
    if kind == "output_tools":
        facts = rollout_facts(fields, facts)
    if kind == "react" and is_folded(messages):
        facts = msgspec.structs.replace(facts, is_linear=False)
    if facts.surfaced is None:
        facts = msgspec.structs.replace(facts, surfaced=surfaced_in(messages))
    if not any("coefficient_e4" in one for one in (fields, metadata)):
        missing.append(JUDGE)
    if not any(message.role == "user" for message in messages):
        missing.append(PROMPT)
    calls = sum(len(message.calls) for message in messages)
    if calls > sum(message.role == "tool" for message in messages):
        missing.append(RESULTS)
    query = query or next((message.content for message in messages if message.role == "user"), "")
    try:
        return assemble_trace(
            TraceSource(kind=kind, place=place, sha256=sha256, is_verified=False),
            messages,
            tools=tools,
            query=query,
            facts=facts,
            missing=missing,
        )
    except ValueError as error:
        raise ArenaError("V2097", str(error)) from error


def _conversation(kind: SourceKind, row: object, fields: dict[str, object], query: str) -> tuple[list[Message], str]:
    """Messages and tools of a row."""
    if kind == "sn15":
        return read_dialogue(fields.get("dialogue", row), query), read_tools(fields.get("tools"))
    if kind == "output_tools":
        return read_rollout(fields, query), read_tools(fields.get("tools"))
    text = row if isinstance(row, str) else text_of(fields)
    if text is None:
        return read_messages(talk_of(fields) or row), read_tools(fields.get("tools"))
    if is_chat(text):
        messages, tools = read_chat(text)
        return messages, read_tools(fields.get("tools")) if tools == NO_TOOLS else tools
    prompt = read_messages(fields.get("messages"))
    return [*prompt, *read_text(text, "" if prompt else query)], read_tools(fields.get("tools"))


def read_line(line: bytes, place: str) -> Trace | Quarantined:
    """The trace of one row's JSON text, or why there is none."""
    try:
        row = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return Quarantined(place=place, code="V2097", detail=f"not JSON: {error}")
    try:
        return convert_row(row, place, hashlib.sha256(line).hexdigest())
    except ArenaError as error:
        return Quarantined(place=place, code=error.failure.code, detail=error.failure.detail)


def is_lines(path: Path) -> bool:
    """Whether a file has a row a line; else it is one JSON value."""
    return path.suffix not in (".json", ".traj", INSPECT_LOG)


def lines_from(path: Path, start: int = 0) -> Iterator[bytes]:
    """The rows of a file as JSON text, from the byte `start` on where it has a row a line and is no archive.

    A `.json` or `.traj` file is a list of rows, or one row; of an `.eval` each sample is a row. Raises ArenaError V2050
    for a broken archive.
    """
    if path.suffix == INSPECT_LOG:
        yield from _samples_of(path)
    elif path.name.endswith(ARCHIVE):
        yield from (line for line in read_lines(path) if line.strip())
    elif not is_lines(path):
        content = path.read_bytes().strip()
        yield from _rows_of(content)
    else:
        with path.open("rb") as file:
            file.seek(start)
            yield from (line.rstrip(b"\r\n") for line in file if line.strip())


def _samples_of(path: Path) -> Iterator[bytes]:
    try:
        with zipfile.ZipFile(path) as log:
            for name in sorted(log.namelist()):
                if name.startswith("samples/") and name.endswith(".json"):
                    yield log.read(name)
    except (zipfile.BadZipFile, NotImplementedError) as error:  # the latter: a compression that zipfile has not
        raise ArenaError("V2050", f"{path}: {error}") from error


def _rows_of(content: bytes) -> Iterator[bytes]:
    """A list is one row where its items are the steps or messages of one conversation; an object around a list of
    rows is that list."""
    try:
        value = msgspec.json.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        yield content
        return
    if isinstance(value, list):
        rows = msgspec.json.decode(content, type=list[msgspec.Raw])
    elif (key := rows_key(value)) is not None:
        rows = msgspec.json.decode(
            msgspec.json.decode(content, type=dict[str, msgspec.Raw])[key], type=list[msgspec.Raw]
        )
    else:
        rows = []
    try:
        detect(opened(value))
    except ArenaError:
        yield from map(bytes, rows) if rows else [content]
    else:
        yield content


SHARD_ROWS, SHARD_BYTES = 512, 4 << 20
ARCHIVE_SHARDS_MAX = 16  # each piece of an archive is unpacked from its beginning


class ForeignShard(msgspec.Struct, frozen=True, kw_only=True):
    """Rows of a foreign file that stand together. Calling it reads them.

    `first` is the number of the first, from 1; `start` its place in the file, in bytes (0 for an archive); `rows` None
    is all that follow.
    """

    path: str
    first: int
    start: int
    rows: int | None

    def __call__(self) -> Iterator[Trace | Quarantined]:
        """Its rows, in order. Raises ArenaError V2050 for a broken archive."""
        path, skipped = Path(self.path), 0 if self.start else self.first - 1
        lines = islice(lines_from(path, self.start), skipped, None if self.rows is None else skipped + self.rows)
        for number, line in enumerate(lines, self.first):
            yield read_line(line, f"{path.name}:{number}")


def foreign_shards(path: Path) -> tuple[ForeignShard, ...]:
    """A foreign file as pieces of up to `SHARD_ROWS` rows and `SHARD_BYTES` bytes, a row at least; none without rows.

    Reads it once. Raises as `read_foreign`, and OSError.
    """
    for row in read_foreign(path):
        if not (isinstance(row, Quarantined) and row.code == UNKNOWN_FORMAT):
            break
    if not is_lines(path):
        return (ForeignShard(path=str(path), first=1, start=0, rows=None),)
    cuts: list[tuple[int, int]] = []  # number and start of each piece's first row
    number = end = 0
    for start, size in _sizes(path):
        number, end = number + 1, start + size
        if not cuts or number - cuts[-1][0] >= SHARD_ROWS or end - cuts[-1][1] > SHARD_BYTES:
            cuts.append((number, start))
    is_archive = path.name.endswith(ARCHIVE)
    cuts = cuts[:: max(1, -(-len(cuts) // ARCHIVE_SHARDS_MAX))] if is_archive else cuts
    ends = (first for first, _ in [*cuts[1:], (number + 1, end)])
    return tuple(
        ForeignShard(path=str(path), first=first, start=0 if is_archive else start, rows=after - first)
        for (first, start), after in zip(cuts, ends, strict=False)
    )


def _sizes(path: Path) -> Iterator[tuple[int, int]]:
    """Where each row starts, in bytes of the unpacked text, and how long it is."""
    if path.name.endswith(ARCHIVE):
        start = 0
        for line in lines_from(path):
            yield start, len(line)
            start += len(line)
        return
    with path.open("rb") as file:
        start = 0
        for line in file:
            if line.strip():
                yield start, len(line)
            start += len(line)
