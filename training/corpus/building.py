"""From exports and foreign files to corpus folders: the whole way, for one filter or for several to compare.

Sources are read once, whatever the number of filters; every corpus of a comparison has the same number of rows, or of
tokens where its name says so, drawn by seed; nothing is written before every filter has kept something. An export is
verified before a row of it is read. The lineage names each source by its hash, and says where an unsigned or foreign
one was trusted. A build that was killed leaves nothing under its name, and is begun anew. A folder is never changed:

```
data/train.parquet   the rows, in the order of their trace ids: a hash, so any stretch is a fair sample
README.md            dataset card; `datasets.load_dataset(folder)` reads it, TRL's trainers take the rows
chat_template.jinja  Qwen3's, which marks the tokens that our own stages learn
lineage.json         what it was made from and by; `content_hash(lineage)` is the corpus' identity
funnel.json          how many traces fell where
rejected.jsonl.zst   every trace left out, with its codes, and every row that could not be read, with what is wrong
report.html          the funnel as a page
```

The same rows, lineage and funnel give the same bytes with the pinned pyarrow and zstandard. The guard is asked again of
every row on its way into the file. Rows and rejections are sorted on disk, so memory holds a row group and a run of the
sort, whatever the size of the corpus.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import sqlite3
import struct
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args, get_type_hints

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import zstandard

from arena.chain.port import Verifier
from arena.export.agents import stated_supplement
from arena.export.forms import arrow_type, values_of
from foundation.canonical import canonical_bytes, file_sha256
from foundation.durable_files import coded, whole_folder
from foundation.errors import ArenaError
from foundation.executors import HERE, Executor
from foundation.long_work import Progress, Spool, no_progress, rare_collections
from harness.chat import ChatMessage, chat_of, message_of, served_message
from training.corpus import model
from training.corpus.duplicates import sorted_on_disk
from training.corpus.exports import export_shards, open_export
from training.corpus.foreign import foreign_shards
from training.corpus.report import Funnel, funnel_of, render_card, render_page
from training.corpus.selection import Appraisals, Decision, Guard, Shard, Task, appraise, decide, kept_rows, rejections
from training.corpus.tokens import open_counter

DATA, CARD, TEMPLATE, LINEAGE, FUNNEL, REJECTED, PAGE = (
    "data/train.parquet",
    "README.md",
    "chat_template.jinja",
    "lineage.json",
    "funnel.json",
    "rejected.jsonl.zst",
    "report.html",
)
T = TypeVar("T")

_GROUP_ROWS = 256
_ZSTD_LEVEL = 9
_PLACE = struct.Struct(">Q")
_ENCODE = msgspec.json.Encoder().encode
_UNPACK = msgspec.msgpack.Decoder(model.CorpusRow)
_TEXTS = msgspec.json.Decoder(tuple[str, ...])
_JSON: dict[str, msgspec.json.Decoder[Any]] = {  # columns of JSON text
    "recommended": _TEXTS,
    "surfaced": _TEXTS,
    "shape": _TEXTS,
    "missing": _TEXTS,
    "rebuilt": msgspec.json.Decoder(model.Rebuilt),
    "rewritten": msgspec.json.Decoder(model.Rewritten),
}


def _fields(kind: type[msgspec.Struct], *, nullable: bool) -> list[Any]:
    """A column for each field, text for lists."""
    hints = get_type_hints(kind).items()
    return [
        pa.field(name, pa.string() if name in _JSON else arrow_type(hint), nullable=nullable) for name, hint in hints
    ]


def _texts(*names: str, nullable: bool = False) -> list[Any]:
    return [pa.field(name, pa.string(), nullable=nullable) for name in names]


_CALL = pa.struct(
    [
        *_texts("id", "type"),
        pa.field("function", pa.struct(_texts("name", "arguments"))),
        *_texts("emitter", nullable=True),
    ]
)
_MESSAGE = pa.struct(
    [
        *_texts("role", "content"),
        *_texts("reasoning_content", nullable=True),
        pa.field("tool_calls", pa.list_(_CALL)),
        *_texts("tool_call_id", nullable=True),
        pa.field("weight", pa.int64()),
    ]
)
_TALK = {"prompt": pa.list_(_MESSAGE), "completion": pa.list_(_MESSAGE), "label": pa.bool_(), "tools": pa.string()}
_SCHEMA = pa.schema(
    [
        *_texts("trace_id"),
        pa.field("rank", pa.int64(), nullable=False),
        pa.field("tokens", pa.int64()),
        *_fields(model.TraceFacts, nullable=True),
        *_texts("source_kind", "source_place", "source_sha256"),
        pa.field("is_verified", pa.bool_(), nullable=False),
        *_fields(model.Signals, nullable=False),
        *_texts("missing", "provenance"),
        *_texts("rebuilt", "rewritten", nullable=True),
        *_texts("query"),
        *(pa.field(name, kind, nullable=False) for name, kind in _TALK.items()),
    ]
)
_OF_TRACE = ("trace_id", "missing", "rebuilt", "rewritten", "query", "tools")  # under their own names
_SCALARS = [name for name in _SCHEMA.names if name not in (*_JSON, *_TALK, "query")]


def columns_of(row: model.CorpusRow) -> dict[str, Any]:
    """The values of a row by column: its conversation as TRL reads it, cut before the first turn that is learnt.

    Arguments stay text, since Arrow would fill them with the keys of other tools' calls. `label` is False where the
    outcome was no success, for KTO.
    """
    trace, source = row.trace, row.trace.source
    talk = [msgspec.to_builtins(chat_of(message)) for message in trace.messages]  # OpenAI chat
    cut = next((n for n, one in enumerate(trace.messages) if one.role == "assistant" and one.is_model), len(talk))
    values = {
        **{name: getattr(trace, name) for name in (*_OF_TRACE, "provenance")},
        "rank": row.rank,
        "tokens": row.tokens,
        **msgspec.structs.asdict(trace.facts),
        "source_kind": source.kind,
        "source_place": source.place,
        "source_sha256": source.sha256,
        "is_verified": source.is_verified,
        **msgspec.structs.asdict(row.signals),
        "prompt": talk[:cut],
        "completion": talk[cut:],
        "label": trace.facts.is_success is not False,
    }
    known = {name: values[name] for name in _JSON if values[name] is not None}
    return values | dict.fromkeys(_JSON) | {name: _ENCODE(value).decode() for name, value in known.items()}


def row_of(columns: Mapping[str, Any]) -> model.CorpusRow:
    """The row of a file's columns. Raises msgspec.ValidationError or ArenaError V2097 for values that no row has."""
    values = dict(columns)
    values |= {name: decoder.decode(values[name]) for name, decoder in _JSON.items() if values[name] is not None}
    trace = model.Trace(
        **{name: values[name] for name in _OF_TRACE},
        source=model.TraceSource(
            kind=values["source_kind"],
            place=values["source_place"],
            sha256=values["source_sha256"],
            is_verified=values["is_verified"],
        ),
        messages=tuple(map(message_of, msgspec.convert(values["prompt"] + values["completion"], list[ChatMessage]))),
        facts=msgspec.convert({name: values[name] for name in model.TraceFacts.__struct_fields__}, model.TraceFacts),
    )
    signals = model.Signals(**{name: values[name] for name in model.Signals.__struct_fields__})
    return model.CorpusRow(trace=trace, signals=signals, tokens=values["tokens"], rank=values["rank"])


def write_corpus(
    folder: Path,
    rows: Iterable[model.CorpusRow],
    *,
    lineage: model.Lineage,
    funnel: Funnel,
    rejected: Iterable[model.Rejection | model.Quarantined],
    guard: Guard,
) -> model.Lineage:
    """Write into `folder`, which holds nothing yet; the lineage as written, with `rows_sha256` filled in (what is given
    for it is not read). Raises ArenaError V2099 when the guard rejects a row, OSError, sqlite3.Error.
    """
    digest, count = hashlib.sha256(), 0

    def checked() -> Iterator[dict[str, Any]]:
        nonlocal count
        for row in _in_order(rows):
            if codes := guard(row.trace):
                raise ArenaError("V2099", f"{row.trace.source.place}: {', '.join(codes)}")
            served = msgspec.structs.replace(row.trace, messages=tuple(map(served_message, row.trace.messages)))
            row = msgspec.structs.replace(row, trace=served)
            digest.update(_line(row))
            count += 1
            yield columns_of(row)

    (folder / DATA).parent.mkdir(parents=True)
    _write_table(folder / DATA, checked())
    written = msgspec.structs.replace(lineage, rows_sha256=digest.hexdigest())
    with (folder / REJECTED).open("wb") as file, zstandard.ZstdCompressor(_ZSTD_LEVEL).stream_writer(file) as stream:
        lines = ((one.place, msgspec.json.encode(one) + b"\n") for one in rejected)
        for _, line in sorted_on_disk((_key(place, ""), line) for place, line in lines):
            stream.write(line)
    (folder / LINEAGE).write_bytes(canonical_bytes(written) + b"\n")
    (folder / FUNNEL).write_bytes(canonical_bytes(funnel) + b"\n")
    (folder / CARD).write_text(render_card(written, funnel, count), "utf-8")
    (folder / TEMPLATE).write_bytes(files("training.corpus").joinpath("chat_template.j2").read_bytes())
    (folder / PAGE).write_text(render_page(written, funnel), "utf-8")
    return written


def read_lineage(folder: Path) -> model.Lineage:
    """The lineage of a corpus. Raises ArenaError V2027 when there is none that can be read."""
    if not folder.exists():
        raise ArenaError("V2027", f"there is no corpus {folder}; `arena corpus build EXPORT --out {folder}` makes one")
    return _read(folder / LINEAGE, model.Lineage)


def read_funnel(folder: Path) -> Funnel:
    """The funnel of a corpus. Raises ArenaError V2027 when there is none that can be read."""
    return _read(folder / FUNNEL, Funnel)


def _read(path: Path, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except (OSError, msgspec.DecodeError) as wrong:
        raise ArenaError("V2027", f"{path}: {wrong}") from None


def read_rows(folder: Path) -> Iterator[model.CorpusRow]:
    """The rows of a corpus, in order. Raises ArenaError V2027 when they are not those its lineage names, at the end."""
    digest = hashlib.sha256()
    try:
        file = pq.ParquetFile(folder / DATA)
        for group in range(file.num_row_groups):
            table = file.read_row_group(group)
            columns = [values_of(table.column(name).combine_chunks()) for name in table.column_names]
            for values in zip(*columns, strict=True):
                row = row_of(dict(zip(table.column_names, values, strict=True)))
                digest.update(_line(row))
                yield row
    except (OSError, pa.ArrowException, msgspec.ValidationError, KeyError, ArenaError) as wrong:
        raise ArenaError("V2027", f"{folder / DATA}: {wrong}") from None
    if digest.hexdigest() != read_lineage(folder).rows_sha256:
        raise ArenaError("V2027", f"{folder / DATA}: the rows are not those of the lineage")


def _in_order(rows: Iterable[model.CorpusRow]) -> Iterator[model.CorpusRow]:
    """The rows sorted by trace id and place, by way of a file."""
    spool = Spool()

    def spooled() -> Iterator[tuple[bytes, bytes]]:
        for number, row in enumerate(rows):
            spool.add(msgspec.msgpack.encode(row))
            yield _key(row.trace.trace_id, row.trace.source.place), _PLACE.pack(number)

    for _, place in sorted_on_disk(spooled()):
        yield _UNPACK.decode(spool.get(*_PLACE.unpack(place)))


def _key(first: str, second: str) -> bytes:
    return f"{first}\0{second}".encode("utf-8", "surrogatepass")


def _line(row: model.CorpusRow) -> bytes:
    """What the hash of the rows is taken over: independent of Parquet and of any library's version."""
    return canonical_bytes(row) + b"\n"


def _write_table(path: Path, rows: Iterator[dict[str, Any]]) -> None:
    with pq.ParquetWriter(
        path,
        _SCHEMA,
        version="2.6",
        data_page_version="1.0",
        compression="zstd",
        compression_level=_ZSTD_LEVEL,
        use_dictionary=_SCALARS,
        write_statistics=_SCALARS,
        store_schema=False,
    ) as writer:
        while group := list(itertools.islice(rows, _GROUP_ROWS)):
            writer.write_table(pa.Table.from_pylist(group, _SCHEMA), row_group_size=_GROUP_ROWS)


PER_TRACE: tuple[model.RejectCode, ...] = get_args(model.TraceCode)
SET_LEVEL: tuple[model.RejectCode, ...] = get_args(model.SetCode)
SWEEP_E4 = (0, 5_000, 7_000, 8_000, 9_000, 10_000)

_ONE_SWITCH: Mapping[str, tuple[model.RejectCode, ...]] = {  # gates that are one rule in two forms go off together
    "agentic_split": ("subtask", "subtask_guess"),
    "deduplication": ("duplicate", "near_duplicate"),
    "ranking": ("ranked_out",),
}


BY_TOKENS = "_by_tokens"  # what the name of an arm ends with that is matched so


class Arm(msgspec.Struct, frozen=True, kw_only=True):
    """One filter of a comparison, by name, and what its corpus is to have as many of as the others."""

    name: str
    rules: model.Rules
    by: Literal["rows", "tokens"] = "rows"


def ablations(rules: model.Rules) -> tuple[Arm, ...]:
    """`full` (the rules themselves), `no_structural_filter`, `outcome_only`, `format_only`, one arm for each gate
    switched off, and the sweep; each but `full` by rows, and again by tokens.

    The token budget stays on where all else is off, since a trainer cannot take a longer row; it is off in its own arm
    only, which shows what it costs. `outcome_only` takes every success, by any agent and however made. `format_only` is
    what a trainer can read: `full` with what code drove beside it, as often as it was recorded, judged or not.
    """
    grouped = {code for codes in _ONE_SWITCH.values() for code in codes}
    single: dict[str, tuple[model.RejectCode, ...]] = {code: (code,) for code in PER_TRACE if code not in grouped}
    switches = {**single, **_ONE_SWITCH}
    everything = tuple(code for code in (*PER_TRACE, *SET_LEVEL) if code != "tokens")
    unfiltered = _without(rules, *everything)
    arms = [
        Arm(name="no_structural_filter", rules=unfiltered),
        Arm(name="outcome_only", rules=msgspec.structs.replace(unfiltered, is_success_needed=True)),
        Arm(name="format_only", rules=_without(rules, "coefficient", "subtask", "subtask_guess", *SET_LEVEL)),
    ]
    arms += [Arm(name=f"no_{name}", rules=_without(rules, *codes)) for name, codes in switches.items()]
    arms += [
        Arm(name=f"coefficient_{one}", rules=msgspec.structs.replace(rules, coefficient_e4_min=one))
        for one in SWEEP_E4
        if one != rules.coefficient_e4_min
    ]
    by_tokens = [Arm(name=f"{arm.name}{BY_TOKENS}", rules=arm.rules, by="tokens") for arm in arms]
    return (Arm(name="full", rules=rules), *arms, *by_tokens)


def _without(rules: model.Rules, *codes: model.RejectCode) -> model.Rules:
    return msgspec.structs.replace(rules, off=tuple(sorted({*rules.off, *codes})))


FULL = "full"  # the arm that is the corpus' own rules


class Sources(msgspec.Struct, frozen=True, kw_only=True):
    """What is read. `hashes` are of the manifests and foreign files, sorted; `names` the exports' agents by id."""

    shards: tuple[Shard, ...]
    hashes: tuple[str, ...]
    is_trusted_unsigned: bool
    names: dict[str, str] = {}


class FilterResult(msgspec.Struct, frozen=True, kw_only=True):
    """Sources under some filters, before anything is written. `arms` and `decisions` stand side by side."""

    sources: Sources
    task: Task
    appraised: Appraisals
    arms: tuple[Arm, ...]
    decisions: tuple[Decision, ...]
    funnels: tuple[Funnel, ...]


class Built(msgspec.Struct, frozen=True, kw_only=True):
    """One corpus on disk."""

    name: str
    folder: str
    lineage: model.Lineage
    funnel: Funnel


def read_rules(said: Sequence[str]) -> model.Rules:
    """The rules said as `KEY=VALUE` (a list's values between commas); what none names is the paper's. Raises ArenaError
    V2120 naming an unknown key, or a value that is not allowed."""
    values = {key: value for key, _, value in (one.partition("=") for one in said)}
    off = {"off": [code for code in values["off"].split(",") if code]} if "off" in values else {}
    try:
        return msgspec.convert(values | off, model.Rules, strict=False)
    except msgspec.ValidationError as wrong:
        raise ArenaError("V2120", f"--rule: {wrong}; rules are {', '.join(model.Rules.__struct_fields__)}") from None


def arms_of(rules: model.Rules, names: Collection[str]) -> tuple[Arm, ...]:
    """The filters to compare: the corpus' own first, then those named. Raises ArenaError V2120 for an unknown name."""
    every = {arm.name: arm for arm in ablations(rules)}
    if unknown := sorted(set(names) - every.keys()):
        raise ArenaError("V2120", f"no ablation is called {unknown[0]!r}; there are {', '.join(every)}")
    return tuple(arm for name, arm in every.items() if name == FULL or name in names)


def open_sources(
    exports: Sequence[Path],
    foreign: Sequence[Path],
    verify_signature: Verifier,
    *,
    trust_unsigned: bool = False,
    executor: Executor = HERE,
    progress: Progress = no_progress,
    locations: Mapping[Path, str] = {},
) -> Sources:
    """Verify every export and hash every foreign file. `locations`: from where exports were brought (`bring_export`);
    machines without the folder read their shards there. Raises ArenaError V2095, V2050, V2027."""
    pa.set_memory_pool(pa.system_memory_pool())  # Arrow's own keeps what each of its threads let go of, 30 MB in all
    shards: list[Shard] = []
    hashes: set[str] = set()
    names: dict[str, str] = {}
    is_trusted = bool(foreign)
    for folder in exports:
        export = open_export(
            folder,
            verify_signature,
            trust_unsigned=trust_unsigned,
            executor=executor,
            progress=functools.partial(progress, f"verify {folder.name}"[:24]),
            location=locations.get(folder, ""),
        )
        if export.manifest_sha256 not in hashes:  # named twice: read once
            shards += export_shards(export)
            names |= stated_supplement(folder, export.manifest).names
        hashes.add(export.manifest_sha256)
        is_trusted |= not export.is_verified
    for path in foreign:
        with coded(path, "V2027"):
            sha256 = file_sha256(path)
        if sha256 not in hashes:
            shards += foreign_shards(path)
        hashes.add(sha256)
    return Sources(shards=tuple(shards), hashes=tuple(sorted(hashes)), is_trusted_unsigned=is_trusted, names=names)


@rare_collections()
def filter_sources(
    sources: Sources,
    task: Task,
    arms: Sequence[Arm],
    guard: Guard,
    *,
    executor: Executor = HERE,
    progress: Progress = no_progress,
) -> FilterResult:
    """Read everything once and decide for every arm; several arms are cut to one size.

    An arm that keeps nothing is left as it is: `funnels` show it, `write_filtered` refuses it. Raises what reading a
    shard raises, and ArenaError V2120, V2052, V2027.
    """
    task = msgspec.structs.replace(task, arms=tuple(arm.rules for arm in arms))
    appraised = appraise(sources.shards, task, guard, executor=executor, progress=progress)
    decided, decisions = list(arms), [decide(appraised, arm.rules, progress=progress) for arm in arms]

    def cut(by: Literal["rows", "tokens"], most: int) -> None:
        """Decide again for the arms that are matched by rows, or by tokens, with at most so many."""
        for place, arm in enumerate(decided):
            if arm.by == by:
                rules = msgspec.structs.replace(arm.rules, **{by: most})
                decided[place] = msgspec.structs.replace(arm, rules=rules)
                decisions[place] = decide(appraised, rules, progress=progress)

    if len(arms) > 1 and all(one.kept for one in decisions):
        cut("rows", min(one.kept for arm, one in zip(arms, decisions, strict=True) if arm.by == "rows"))
        first = zip(appraised, decisions[0].ranks, strict=True)
        cut("tokens", sum(trace.tokens or 0 for trace, rank in first if rank))
    return FilterResult(
        sources=sources,
        task=task,
        appraised=appraised,
        arms=tuple(decided),
        decisions=tuple(decisions),
        funnels=tuple(funnel_of(appraised, one, sources.names) for one in decisions),
    )


@rare_collections()
def write_filtered(
    filtered: FilterResult,
    out: Path,
    guard: Guard,
    *,
    partition_sha256: str,
    code_commit: str,
    executor: Executor = HERE,
    progress: Progress = no_progress,
) -> tuple[Built, ...]:
    """Write the corpus to `out`, or for several arms each to a folder of its name in `out`, all of them or none.

    `partition_sha256`, `code_commit`: what the lineage says beside rules, sources and rows.
    Raises ArenaError V2147 when an arm kept nothing (before anything is written), V2099, V2027.
    """
    arms = list(zip(filtered.arms, filtered.decisions, filtered.funnels, strict=True))
    if empty := [arm.name for arm, one, _ in arms if not one.kept]:
        raise ArenaError("V2147", "" if len(arms) == 1 else f"under {', '.join(empty)}")
    count, total = 0, sum(one.kept for one in filtered.decisions)
    is_counted = any("tokens" not in rules.off for rules in filtered.task.arms)

    def counted(rows: Iterable[model.CorpusRow]) -> Iterator[model.CorpusRow]:
        nonlocal count
        for row in rows:
            yield row
            count += 1
            progress("write", count, total)

    built: list[Built] = []
    try:
        with whole_folder(out) as made:
            for arm, decision, funnel in arms:
                below = () if len(arms) == 1 else (arm.name,)
                lineage = write_corpus(
                    made.joinpath(*below),
                    counted(kept_rows(filtered.sources.shards, filtered.appraised, decision, executor=executor)),
                    lineage=model.Lineage(
                        rules=arm.rules,
                        sources=filtered.sources.hashes,
                        is_trusted_unsigned=filtered.sources.is_trusted_unsigned,
                        tokenizer_sha256=open_counter(filtered.task.tokenizer).identity if is_counted else "",
                        partition_sha256=partition_sha256,
                        code_commit=code_commit,
                        rows_sha256="",
                    ),
                    funnel=funnel,
                    rejected=itertools.chain(
                        rejections(filtered.appraised, decision), filtered.appraised.unread_rows()
                    ),
                    guard=guard,
                )
                built.append(Built(name=arm.name, folder=str(out.joinpath(*below)), lineage=lineage, funnel=funnel))
    except sqlite3.Error as wrong:
        raise ArenaError("V2027", f"{out}: {wrong}") from None
    return tuple(built)
