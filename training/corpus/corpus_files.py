"""A corpus as a folder: Parquet, dataset card, lineage, funnel. Written whole or not at all.

```
data/train.parquet   the rows, in the order of their trace ids: a hash, so any stretch is a fair sample
README.md            dataset card; `datasets.load_dataset(folder)` reads it
lineage.json         what it was made from and by; `content_hash(lineage)` is the corpus' identity
funnel.json          how many traces fell where
rejected.jsonl.zst   every trace left out, with its codes
report.html          the funnel as a page, where the caller draws one
```

The same rows, lineage and funnel give the same bytes with the pinned pyarrow and zstandard. The guard is asked
again of every row on its way into the file. A folder appears under its name when it is complete, and is never changed:
an existing one is refused. Rows and rejections are sorted on disk, so memory holds a row group and a run of the sort,
whatever the size of the corpus. What a killed writer leaves begins with `.NAME.part-`.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import struct
import tempfile
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import zstandard

from foundation.canonical import canonical_bytes, content_hash
from foundation.codes import lookup
from foundation.durable_files import move_into_place
from foundation.errors import ArenaError
from harness.chat import ChatMessage, Message, chat_of, message_of
from training.corpus.appraisal import Guard
from training.corpus.disk_sort import Pair, sorted_on_disk
from training.corpus.funnel import Distribution, Funnel
from training.corpus.model import (
    CorpusRow,
    Lineage,
    Rebuilt,
    RejectCode,
    Rejection,
    Rewritten,
    Signals,
    Trace,
    TraceFacts,
    TraceSource,
)

JSON = "json"

_FACT_HINTS = get_type_hints(TraceFacts)
_FACTS = tuple(field.name for field in msgspec.structs.fields(TraceFacts))
_LIST_FACTS = frozenset(name for name in _FACTS if get_origin(get_args(_FACT_HINTS[name])[0]) is tuple)
_SIGNALS = ("depth", "reformulations", "has_verification", "longest_repeat")
_ENCODE = msgspec.json.Encoder().encode


_CHAT = msgspec.json.Decoder(tuple[ChatMessage, ...])
_REBUILT, _REWRITTEN = msgspec.json.Decoder(Rebuilt), msgspec.json.Decoder(Rewritten)
_TEXTS = msgspec.json.Decoder(tuple[str, ...])


def columns() -> tuple[tuple[str, type | str, bool], ...]:
    """Name, Python type (or `JSON` for JSON text) and whether it may be null, of every column in order."""
    facts = [(name, JSON if name in _LIST_FACTS else _scalar(_FACT_HINTS[name]), True) for name in _FACTS]
    return (
        ("trace_id", str, False),
        ("rank", int, False),
        ("tokens", int, True),
        *facts,
        ("source_kind", str, False),
        ("source_place", str, False),
        ("source_sha256", str, False),
        ("is_verified", bool, False),
        ("depth", int, False),
        ("reformulations", int, False),
        ("has_verification", bool, False),
        ("longest_repeat", int, False),
        ("shape", JSON, False),
        ("missing", JSON, False),
        ("provenance", str, False),
        ("rebuilt", JSON, True),
        ("rewritten", JSON, True),
        ("query", str, False),
        ("tools", JSON, False),
        ("messages", JSON, False),
    )


def columns_of(row: CorpusRow) -> dict[str, Any]:
    """The values of a row by column."""
    trace, source = row.trace, row.trace.source
    facts = {name: getattr(trace.facts, name) for name in _FACTS}
    for name in _LIST_FACTS:
        facts[name] = None if facts[name] is None else _text(facts[name])
    return {
        "trace_id": trace.trace_id,
        "rank": row.rank,
        "tokens": row.tokens,
        **facts,
        "source_kind": source.kind,
        "source_place": source.place,
        "source_sha256": source.sha256,
        "is_verified": source.is_verified,
        **{name: getattr(row.signals, name) for name in _SIGNALS},
        "shape": _text(row.signals.shape),
        "missing": _text(trace.missing),
        "provenance": trace.provenance,
        "rebuilt": None if trace.rebuilt is msgspec.UNSET else _text(trace.rebuilt),
        "rewritten": None if trace.rewritten is msgspec.UNSET else _text(trace.rewritten),
        "query": trace.query,
        "tools": trace.tools,
        "messages": chat_json(trace.messages),
    }


def row_of(values: Mapping[str, Any]) -> CorpusRow:
    """The row of a file's columns. Raises msgspec.ValidationError for values that no row has."""
    facts = {name: values[name] for name in _FACTS}
    for name in _LIST_FACTS:
        facts[name] = None if facts[name] is None else _TEXTS.decode(facts[name])
    trace = Trace(
        trace_id=values["trace_id"],
        source=TraceSource(
            kind=values["source_kind"],
            place=values["source_place"],
            sha256=values["source_sha256"],
            is_verified=values["is_verified"],
        ),
        messages=messages_of(values["messages"]),
        tools=values["tools"],
        query=values["query"],
        facts=msgspec.convert(facts, TraceFacts),
        missing=_TEXTS.decode(values["missing"]),
        rebuilt=_REBUILT.decode(values["rebuilt"]) if values["rebuilt"] else msgspec.UNSET,
        rewritten=_REWRITTEN.decode(values["rewritten"]) if values["rewritten"] else msgspec.UNSET,
    )
    signals = Signals(shape=_TEXTS.decode(values["shape"]), **{name: values[name] for name in _SIGNALS})
    return CorpusRow(trace=trace, signals=signals, tokens=values["tokens"], rank=values["rank"])


def chat_json(messages: Sequence[Message]) -> str:
    """Messages as OpenAI chat, JSON text."""
    return _text([chat_of(message) for message in messages])


def messages_of(text: str) -> tuple[Message, ...]:
    """The messages of `chat_json`. Raises msgspec.ValidationError for what is none."""
    return tuple(message_of(chat) for chat in _CHAT.decode(text))


def _text(value: object) -> str:
    return _ENCODE(value).decode()


def _scalar(hint: object) -> type:
    """int, bool or str: what a fact is when it is known; a Literal is text."""
    known = get_args(hint)[0] if get_origin(hint) in (Union, types.UnionType) else hint
    return next((kind for kind in (int, bool) if known is kind), str)


_DTYPE: dict[type | str, str] = {str: "string", int: "int64", bool: "bool", JSON: "string"}
_SIZES = ((1_000, "n<1K"), (10_000, "1K<n<10K"), (100_000, "10K<n<100K"), (1_000_000, "100K<n<1M"))
MEANING: dict[RejectCode, str] = {
    "pool": "not of the pools this corpus may hold",
    "leak": "its problem or answers are those of a held-out problem",
    "coefficient": "the judge's reasoning coefficient is below the threshold, or there is none",
    "pairing": "a tool call is not answered once right after its turn",
    "recommend_count": "recommend_product is not called exactly once",
    "recommend_arguments": "the recommendation does not parse, or names a product no search returned",
    "tokens": "longer than the token budget",
    "think_stop": "ends without a commitment",
    "subtask": "the model did not write its own tool calls, by recorded emitters",
    "subtask_guess": "the model probably did not write its own tool calls (a guess: none were recorded)",
    "not_one_path": "the episode held several conversations",
    "view_incomplete": "put together from the record, and some turn was not shown all that stands before it",
    "duplicate": "equal to a kept trace, ids and numbers aside",
    "near_duplicate": "nearly equal to a kept trace",
    "ranked_out": "better traces of the same problem were taken",
    "sampled_out": "not drawn for a corpus of this size",
    "failed": "the outcome was no success, or nobody knows it",
}


def render_card(lineage: Lineage, funnel: Funnel, rows: int) -> str:
    """The card, Markdown with front matter."""
    return "\n".join((_front_matter(rows), _about(lineage, funnel, rows), _left_out(funnel), _shape(funnel), _USE))


def _front_matter(rows: int) -> str:
    size = next((name for limit, name in _SIZES if rows < limit), "n>1M")
    lines = ["---", "pretty_name: Agent arena corpus", "license: other", "license_name: see-the-card"]
    lines += ["language:", "- en", "task_categories:", "- text-generation", "tags:", "- agents", "- tool-use"]
    lines += ["- trajectories", "- shopping", "size_categories:", f"- {size}", "dataset_info:", "  features:"]
    for name, kind, _ in columns():
        lines += [f"  - name: {name}", f"    dtype: {_DTYPE[kind]}"]
    lines += ["  splits:", "  - name: train", f"    num_examples: {rows}"]
    lines += ["configs:", "- config_name: default", "  data_files:", "  - split: train", "    path: data/train.parquet"]
    return "\n".join([*lines, "---", ""])


def _about(lineage: Lineage, funnel: Funnel, rows: int) -> str:
    trusted = (
        "\n**Read from unsigned or unverified sources, because somebody said to trust them.**\n"
        if lineage.is_trusted_unsigned
        else ""
    )
    unjudged = f"{unjudged_text(funnel)}.\n\n" if funnel.unjudged else ""
    rules = json.dumps(msgspec.to_builtins(lineage.rules), indent=2)
    return (
        f"# Agent arena corpus\n\n{rows:,} agentic shopping trajectories out of {funnel.traces:,} "
        f"({_unread(funnel)}).\n{trusted}\n{unjudged}"
        f"Identity `{content_hash(lineage)}` (sha256 of `lineage.json`'s value); rows `{lineage.rows_sha256}`. Tokens "
        f"are counted by `{lineage.tokenizer_sha256}`; held-out problems are those of partition "
        f"`{lineage.partition_sha256}`; code `{lineage.code_commit}`.\n\nRules:\n\n```json\n{rules}\n```\n"
    )


def unjudged_text(funnel: Funnel) -> str:
    """What a report says of traces that no judge read."""
    return (
        f"{funnel.unjudged:,} traces are of a source without a judge: the judge's gate (`coefficient`) was off for "
        "them, and every other rule on"
    )


def _unread(funnel: Funnel) -> str:
    codes = ", ".join(f"{one.code} {lookup(one.code).title}: {one.count:,}" for one in funnel.unread)
    return f"{funnel.quarantined:,} further rows could not be read{f'; {codes}' if codes else ''}"


def _left_out(funnel: Funnel) -> str:
    lines = ["## Left out", "", "| code | broke it | only that | why |", "|---|---|---|---|"]
    lines += [f"| {one.code} | {one.count:,} | {one.alone:,} | {MEANING[one.code]} |" for one in funnel.codes]
    return "\n".join([*lines, "", "A trace may break several rules. Every one is listed in `rejected.jsonl.zst`.", ""])


def _shape(funnel: Funnel) -> str:
    lines = ["## Before and after", "", "| measure | median before | median after | 95 % after |", "|---|---|---|---|"]
    for name in msgspec.structs.fields(type(funnel.before)):
        before: Distribution = getattr(funnel.before, name.name)
        after: Distribution = getattr(funnel.after, name.name)
        cells = (before.quantile(5_000), after.quantile(5_000), after.quantile(9_500))
        lines.append(f"| {name.name} | " + " | ".join("-" if cell is None else f"{cell:,}" for cell in cells) + " |")
    one = funnel.diversity_after
    return "\n".join(
        [
            *lines,
            "",
            f"{one.teams:,} teams, {one.agents:,} agent versions, {one.problems:,} problems; the most frequent agent "
            f"wrote {one.top_agent_share_e4 / 100:.1f} %.",
            "",
        ]
    )


_USE = """## Use

`messages` and `tools` are JSON text: decode them, do not let a table library guess their types, which would add empty
argument keys to every call. Arguments of calls are text as the model wrote them. A message with weight 0 was not made
by model or host: mask it. Problems of the evaluation sets are not in here; keep it so when you mix in other data.
"""


DATA, CARD, LINEAGE, FUNNEL, REJECTED, PAGE = (
    "data/train.parquet",
    "README.md",
    "lineage.json",
    "funnel.json",
    "rejected.jsonl.zst",
    "report.html",
)

PART = ".part-"  # in the name of a folder that is not finished

_PLACE = struct.Struct(">QI")
T = TypeVar("T")

_GROUP_ROWS = 256
_ZSTD_LEVEL = 9
_ARROW: dict[type | str, Any] = {str: pa.string(), int: pa.int64(), bool: pa.bool_(), JSON: pa.string()}
_UNPACK = msgspec.msgpack.Decoder(CorpusRow)


def write_corpus(
    folder: Path,
    rows: Iterable[CorpusRow],
    *,
    lineage: Lineage,
    funnel: Funnel,
    rejected: Iterable[Rejection],
    guard: Guard,
    draw: Callable[[Lineage, Funnel], str] | None = None,
) -> Lineage:
    """Write `folder`; the lineage as written, with `rows_sha256` filled in (what is given for it is not read).

    `draw` makes the page; none is written without it. Raises ArenaError V2144 when the folder exists, V2099 when the
    guard rejects a row, V2027 when it can't be written.
    """
    if folder.exists():
        raise ArenaError("V2144", str(folder))
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        partial = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}{PART}"))
    except OSError as wrong:
        raise ArenaError("V2027", f"{folder}: {wrong.strerror}") from None
    try:
        digest, count = hashlib.sha256(), 0
        (partial / "data").mkdir()
        with tempfile.TemporaryFile(dir=partial) as spool, _Parquet(partial / DATA) as parquet:
            for row in _in_order(rows, spool):
                if codes := guard(row.trace):
                    raise ArenaError("V2099", f"{row.trace.source.place}: {', '.join(codes)}")
                digest.update(_line(row))
                parquet.add(row)
                count += 1
        written = msgspec.structs.replace(lineage, rows_sha256=digest.hexdigest())
        compressor = zstandard.ZstdCompressor(_ZSTD_LEVEL)
        with (partial / REJECTED).open("wb") as file, compressor.stream_writer(file) as stream:
            lines = ((_key(one.place, one.trace_id), msgspec.json.encode(one) + b"\n") for one in rejected)
            for _, line in sorted_on_disk(lines):
                stream.write(line)
        (partial / LINEAGE).write_bytes(canonical_bytes(written) + b"\n")
        (partial / FUNNEL).write_bytes(canonical_bytes(funnel) + b"\n")
        (partial / CARD).write_text(render_card(written, funnel, count), "utf-8")
        if draw is not None:
            (partial / PAGE).write_text(draw(written, funnel), "utf-8")
        partial.chmod(0o755)
        move_into_place(partial, folder)
    except OSError as wrong:
        raise ArenaError("V2027", f"{folder}: {wrong.strerror}") from None
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return written


def read_lineage(folder: Path) -> Lineage:
    """The lineage of a corpus. Raises ArenaError V2027 when there is none that can be read."""
    return _read(folder / LINEAGE, Lineage)


def read_funnel(folder: Path) -> Funnel:
    """The funnel of a corpus. Raises ArenaError V2027 when there is none that can be read."""
    return _read(folder / FUNNEL, Funnel)


def _read(path: Path, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except (OSError, msgspec.DecodeError) as wrong:
        raise ArenaError("V2027", f"{path}: {wrong}") from None


def read_rows(folder: Path) -> Iterator[CorpusRow]:
    """The rows of a corpus, in order. Raises ArenaError V2027 when they are not those its lineage names, at the end."""
    digest = hashlib.sha256()
    try:
        file = pq.ParquetFile(folder / DATA)
        for group in range(file.num_row_groups):
            for values in file.read_row_group(group).to_pylist():
                row = row_of(values)
                digest.update(_line(row))
                yield row
    except (OSError, pa.ArrowException, msgspec.ValidationError, KeyError) as wrong:
        raise ArenaError("V2027", f"{folder / DATA}: {wrong}") from None
    if digest.hexdigest() != read_lineage(folder).rows_sha256:
        raise ArenaError("V2027", f"{folder / DATA}: the rows are not those of the lineage")


def _in_order(rows: Iterable[CorpusRow], spool: IO[bytes]) -> Iterator[CorpusRow]:
    """The rows sorted by trace id and place, by way of a file."""

    def spooled() -> Iterator[Pair]:
        offset = 0
        for row in rows:
            packed = msgspec.msgpack.encode(row)
            spool.write(packed)
            yield _key(row.trace.trace_id, row.trace.source.place), _PLACE.pack(offset, len(packed))
            offset += len(packed)

    for _, place in sorted_on_disk(spooled()):
        start, length = _PLACE.unpack(place)
        spool.seek(start)
        yield _UNPACK.decode(spool.read(length))


def _key(first: str, second: str) -> bytes:
    return f"{first}\0{second}".encode("utf-8", "surrogatepass")


def _line(row: CorpusRow) -> bytes:
    """What the hash of the rows is taken over: independent of Parquet and of any library's version."""
    return canonical_bytes(row) + b"\n"


class _Parquet:
    """One Parquet file while rows are put into it."""

    def __init__(self, path: Path) -> None:
        self._schema = pa.schema(
            [pa.field(name, _ARROW[kind], nullable=is_nullable) for name, kind, is_nullable in columns()]
        )
        texts = [name for name, kind, _ in columns() if kind == JSON or name == "query"]
        scalars = [name for name in self._schema.names if name not in texts]
        self._rows: list[dict[str, Any]] = []
        self._writer = pq.ParquetWriter(
            path,
            self._schema,
            version="2.6",
            data_page_version="1.0",
            compression="zstd",
            compression_level=_ZSTD_LEVEL,
            use_dictionary=scalars,
            write_statistics=scalars,
            store_schema=False,
        )

    def __enter__(self) -> _Parquet:
        return self

    def __exit__(self, *_: object) -> None:
        self._write_group()
        self._writer.close()

    def add(self, row: CorpusRow) -> None:
        """Add a row; a full group is written."""
        self._rows.append(columns_of(row))
        if len(self._rows) == _GROUP_ROWS:
            self._write_group()

    def _write_group(self) -> None:
        if self._rows:
            self._writer.write_table(pa.Table.from_pylist(self._rows, self._schema), row_group_size=_GROUP_ROWS)
            self._rows = []
