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
from typing import Any

import msgspec

from arena.export.files import read_lines
from foundation.codes.names import UNKNOWN_FORMAT
from foundation.errors import ArenaError
from harness.chat import Message
from training.corpus.formats import (
    is_chat,
    is_message,
    is_react,
    is_spoken,
    read_chat,
    read_dialogue,
    read_messages,
    read_rollout,
    read_text,
    read_tools,
    rollout_facts,
)
from training.corpus.gates import RECOMMEND, TERMINATE
from training.corpus.model import (
    EXPORTED_FACTS,
    JUDGE,
    NO_TOOLS,
    RESULTS,
    Quarantined,
    SourceKind,
    Trace,
    TraceFacts,
    TraceSource,
    assemble_trace,
)

CONVERSATION_KEYS = ("messages", "traj", "history", "conversations", "conversation")
OUTPUT_KEY = "raw_text"  # what a model answered; `messages` beside it are what it was asked
TEXT_KEYS = ("text", "trajectory", "response")
OWN_KEYS = (*CONVERSATION_KEYS, "dialogue", "output_tools", OUTPUT_KEY, *TEXT_KEYS)
_WRAPPERS = tuple(
    ["sample", "rollout", "episode", "trajectory", "record", "data", "row", "trace", "result", "output", "input"]
)
_LISTS = tuple(
    ["simulations", "results", "rollouts", "episodes", "trajectories", "samples", "rows", "data", "runs", "problems"]
)
_DEPTH_MAX = 4
_QUOTES = r"[\\\"'’”]*"
_NAMED = re.compile(rf"\b(?:product|item)[ _-]?id{_QUOTES}\s*[:=]?\s*{_QUOTES}([A-Za-z0-9][\w-]*)", re.IGNORECASE)
_KNOWN = (
    "known are SN15 steps (a list of `completion`, or `dialogue`), chat "
    f"({', '.join(CONVERSATION_KEYS)}, `prompt` with `completion`, `nodes`, or a list of `role`), `output_tools`, "
    f"and ReAct, Hermes or ChatML text (a string, or one under {OUTPUT_KEY}, {', '.join(TEXT_KEYS)})"
)


def opened(row: object) -> object:
    """A decoded JSON row as its conversation, with the fields around it: rollouts of `verifiers` and of TRL (`prompt`
    and `completion`), runs of `verifiers` 0.4 (`traces` of `nodes`), a conversation one or more fields down, and one
    that stands as JSON text."""
    for _ in range(_DEPTH_MAX):
        inner = _opened_once(row)
        if inner is row:
            break
        row = inner
    return row


def rows_key(value: object) -> str | None:
    """Of a file that is one object around a list of rows, as benchmarks save a run: the key of the list."""
    if not isinstance(value, dict) or any(value.get(key) for key in (*OWN_KEYS, "completion", "traces")):
        return None
    lists = (key for key in _LISTS if isinstance(value.get(key), list) and value[key])
    return next((key for key in lists if all(isinstance(row, dict | list) for row in value[key])), None)


def _opened_once(row: object) -> object:
    if not isinstance(row, dict):
        return row
    for key in (*CONVERSATION_KEYS, "prompt", "completion", "tools", "metadata", "info"):
        if (decoded := _decoded(row.get(key))) is not row.get(key):
            return row | {key: decoded}
    if _is_chat(row.get("completion")) and _is_chat(row.get("prompt"), may_be_empty=True):
        return _around(row, "prompt", "completion", messages=[*(row["prompt"] or []), *row["completion"]])
    if (nodes := _nodes_of(row)) is not None:
        return nodes
    for key in ("conversations", "conversation"):
        if _is_chat(row.get(key)) and not row.get("messages"):
            return _around(row, key, messages=row[key])
    if any(row.get(key) for key in OWN_KEYS if key not in _WRAPPERS or isinstance(row.get(key), str)):
        return row
    for key in _WRAPPERS:
        inner = _decoded(row.get(key))
        if isinstance(inner, dict) and inner:
            return {name: value for name, value in row.items() if name != key} | inner
        if isinstance(inner, list) and inner and isinstance(inner[0], dict):
            name = "dialogue" if "completion" in inner[0] or "extra_info" in inner[0] else "messages"
            return _around(row, key, **{name: inner})
    return row


def _around(row: dict[str, Any], *taken: str, **conversation: object) -> dict[str, Any]:
    """The conversation with the other fields of its row, tools and facts under the names that the formats read."""
    rest = {key: value for key, value in row.items() if key not in taken}
    if not rest.get("tools") and rest.get("tool_defs"):
        rest["tools"] = rest["tool_defs"]
    if not rest.get("metadata") and isinstance(rest.get("info"), dict):
        rest["metadata"] = rest["info"]
    return rest | conversation


def _nodes_of(row: dict[str, Any]) -> dict[str, Any] | None:
    """A run of `verifiers` 0.4: the path to the last leaf of its one trace. What no model call made has weight 0."""
    traces = row.get("traces")
    if isinstance(traces, list) and len(traces) == 1 and isinstance(traces[0], dict):
        outer = {key: value for key, value in row.items() if key != "traces"}
        return outer | traces[0] if "nodes" in traces[0] else None
    nodes = row.get("nodes")
    if not isinstance(nodes, list) or not nodes or not all(isinstance(one, dict) for one in nodes):
        return None
    path: list[Any] = []
    at: object = len(nodes) - 1
    while isinstance(at, int) and not isinstance(at, bool) and 0 <= at < len(nodes) and len(path) < len(nodes):
        node = nodes[at]
        message = node.get("message")
        is_given = isinstance(message, dict) and message.get("role") == "assistant" and node.get("sampled") is False
        path.append(message | {"weight": 0} if isinstance(message, dict) and is_given else message)
        at = node.get("parent")
    path.reverse()
    rest = _around(row, "nodes", messages=path)
    return rest if rest.get("tools") or not nodes[0].get("tools") else rest | {"tools": nodes[0]["tools"]}


def _is_chat(value: object, *, may_be_empty: bool = False) -> bool:
    if isinstance(value, list) and value:
        return all(isinstance(one, dict) and ("role" in one or "from" in one) for one in value)
    return may_be_empty and value in (None, [])


def _decoded(value: object) -> object:
    """A list or object that stands as JSON text; anything else as it is."""
    if not isinstance(value, str) or value.lstrip()[:1] not in ("[", "{"):
        return value
    try:
        decoded = msgspec.json.decode(value)
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
        return value
    return decoded if isinstance(decoded, dict | list) else value


def detect(row: object) -> SourceKind:
    """The format of a decoded JSON row, as `opened` gives it. Raises ArenaError V2098."""
    if isinstance(row, str):
        return _of_text(row)
    if isinstance(row, list) and row:
        first = row[0]
        if is_message(first):
            return _of_messages(row)
        if isinstance(first, dict) and ("completion" in first or "extra_info" in first):
            return "sn15"
        raise ArenaError("V2098", f"a list that begins with {type(first).__name__}; {_KNOWN}")
    if isinstance(row, dict):
        if isinstance(row.get("dialogue"), list):
            return "sn15"
        if isinstance(row.get("output_tools"), list):
            return "output_tools"
        if (text := text_of(row)) is not None:
            return _of_text(text)
        if (talk := talk_of(row)) is not None:
            return _of_messages(talk)
        raise ArenaError("V2098", f"an object of {', '.join(sorted(map(str, row))[:12]) or 'nothing'}; {_KNOWN}")
    raise ArenaError("V2098", f"a {type(row).__name__} with nothing in it; {_KNOWN}")


def text_of(row: dict[str, Any]) -> str | None:
    """The text of a row that is one; beside `messages`, a rendering of these is not."""
    keys = (OUTPUT_KEY,) if row.get("messages") else (OUTPUT_KEY, *TEXT_KEYS)
    return next((row[key] for key in keys if isinstance(row.get(key), str)), None)


def talk_of(row: dict[str, Any]) -> list[Any] | None:
    """The chat of a row: the list under the first of `CONVERSATION_KEYS` that has one with something in it."""
    found = (row[key] for key in CONVERSATION_KEYS if isinstance(row.get(key), list) and row[key])
    return next((talk for talk in found if is_message(next((one for one in talk if one is not None), None))), None)


def _of_messages(messages: list[Any]) -> SourceKind:
    """Chat whose assistant writes calls as text is of that text's format."""
    texts = [
        message["content"]
        for message in messages
        if isinstance(message, dict)
        and message.get("role") in ("assistant", "user", "tool")
        and isinstance(message.get("content"), str)
        and not message.get("tool_calls")
    ]
    if any(("<tool_call>" in text and is_react(text)) or text.lstrip().startswith("<obs>") for text in texts):
        return "react"
    return "hermes" if any("<tool_call>" in text for text in texts) else "openai"


def _of_text(text: str) -> SourceKind:
    if is_chat(text):
        return "hermes"
    if is_react(text):
        return "react"
    if is_spoken(text):
        return "hermes"
    raise ArenaError("V2098", f"text without a tag, {len(text)} characters; {_KNOWN}")


def read_facts(fields: dict[str, Any], metadata: dict[str, Any]) -> TraceFacts:
    """The facts that `metadata`, the object that an export keeps them in, states by their names: each has to be one.

    Of the row's own fields (`stop`, `team` and such are common words) the problem is taken, and a pool or suite: one
    that is not ours is refused, since it may mean that the row is held out. Raises ArenaError V2097.
    """
    own = {name: fields.get(name) for name in ("problem_id", "pool", "suite", "recommended", "category")}
    told = own | {name: one for name, one in metadata.items() if one not in (None, "")}
    stated = {fact: told[name] for name, fact in EXPORTED_FACTS.items() if told.get(name) not in (None, "")}
    if isinstance(one := stated.get("problem_id"), int) and not isinstance(one, bool):
        stated["problem_id"] = str(one)
    if str(told.get("category")).lower() in ("product", "shop", "voucher"):
        stated.setdefault("bucket", str(told["category"]).lower())
    if isinstance(ids := told.get("recommended"), str):
        stated["recommended"] = [one for one in ids.split(",") if one]
    try:
        return msgspec.convert(stated, TraceFacts)
    except msgspec.ValidationError as error:
        raise ArenaError("V2097", f"facts: {error}") from error


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
