"""An export of the log as traces: verified whole, once, signed by the validator whose log it is, then read by shards.

An export that does not verify is never opened, whatever is asked for. One that nobody signed is opened only with
`trust_unsigned`, and its traces say that they are not verified. A finished verification leaves a seal, named by the
manifest's hash: the same manifest is not verified again, but each file is still hashed against it. Whoever can write
into the seals' folder can make a seal: it is the reader's own folder, never one that came with the export.

Every trajectory comes out once, in the order of the log, as a trace or as a quarantined row; the same from the Parquet
view, which costs a quarter, and from the log. A shard is a picklable value that can be read in any process, and again.
Who emitted a call is what the host recorded (`harness/EMISSION.md`); calls that the agent's Python made are in no
message, and so in no verbatim trace.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from arena.chain.port import Verifier
from arena.export.agents import AgentRow
from arena.export.conversation import Conversation, ExecutedCall, Turn
from arena.export.elsewhere import ExportFiles
from arena.export.files import (
    AGENTS,
    LOG,
    MANIFEST,
    REFERENCES,
    SCRUBBED,
    VIEWS,
    file_hash,
    read_lines,
    read_manifest,
    shard_name,
    shard_trajectories,
    signer_of,
)
from arena.export.model import Manifest
from arena.export.row import row_of, tools_of
from arena.export.verification import verify_export
from arena.records.body import decode_content
from arena.records.model import EvaluationRecord, Payload, ReleaseRecord, VerdictRecord
from foundation.durable_files import write_whole
from foundation.errors import ArenaError
from foundation.executors.port import HERE, Executor
from foundation.progress import PhaseProgress
from harness.chat import ChatMessage, Message, calls_of_chat
from harness.trace import Emitter
from judge.verdict import Verdict
from problems.model import Pool
from training.corpus.gates import is_paired
from training.corpus.model import (
    EXPORTED_FACTS,
    ExecutedTrace,
    Quarantined,
    Rebuilt,
    Trace,
    TraceFacts,
    TraceSource,
    assemble_trace,
)
from training.corpus.rebuilding import ROLES, TEXT_CALL, rebuild
from training.corpus.spoken import is_spoken, lift

SEAL_VERSION = 1  # raised when verification finds more than it used to
_AGENT = msgspec.json.Decoder(AgentRow)


class Export(msgspec.Struct, frozen=True, kw_only=True):
    """An export that may be read. `signer` is "" where `trust_unsigned` waived the signature."""

    folder: str
    manifest: Manifest
    manifest_sha256: str
    signer: str
    location: str = ""  # where machines without the folder find its files; "": nowhere

    def files(self, *names: str) -> ExportFiles:
        """Those of these files that it has, to be read on any machine."""
        sha256s = {file.path: file.sha256 for file in self.manifest.files if file.path in names}
        return ExportFiles(self.folder, self.location, tuple(sorted(sha256s.items())))

    @property
    def is_verified(self) -> bool:
        """Whether the validator's own signature vouches for the whole of it."""
        return self.signer == self.manifest.log.validator

    @property
    def names(self) -> dict[str, str]:
        """The names of its agent versions by id, those it knows: the exporter's word. Raises ArenaError V2050."""
        try:
            rows = map(_AGENT.decode, (Path(self.folder) / AGENTS).read_bytes().splitlines())
            return {row.agent_version_id: row.name for row in rows if row.name}
        except FileNotFoundError:
            return {}  # an export of version 1 has none
        except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise ArenaError("V2050", f"{AGENTS}: {error}") from error


class _Seal(msgspec.Struct, frozen=True, kw_only=True):
    version: int
    manifest_sha256: str


def open_export(
    folder: Path,
    verify_signature: Verifier,
    *,
    validators: Collection[str] = (),
    trust_unsigned: bool = False,
    seals: Path | None = None,
    executor: Executor = HERE,
    progress: PhaseProgress | None = None,
    location: str = "",
) -> Export:
    """The export in `folder`, verified now or before. `validators`: whose logs are trusted, anybody's when empty.
    `location`: the object store it was brought from, "" for none.

    `seals` is a folder of finished verifications, None for none; `executor` is where verification looks at rows
    (`verify_export`), with a `verify_signature` that other processes can import. Raises ArenaError V2074 without a
    readable manifest, V2096 when its validator is not one of `validators` or did not sign it, V2095 when the export
    does not verify, V2052 when processes died.
    """
    manifest = read_manifest(folder)
    signer, validator = signer_of(folder, verify_signature), manifest.log.validator
    if validators and validator not in validators:
        raise ArenaError("V2096", f"{folder}: {validator} is not among the validators asked for")
    if signer != validator and not trust_unsigned:
        whose = f"signed by {signer}" if signer else "not signed"
        raise ArenaError("V2096", f"{folder}: {whose}; the log is that of {validator}")
    manifest_sha256 = hashlib.sha256((folder / MANIFEST).read_bytes()).hexdigest()
    if seals is not None and _is_sealed(seals, manifest_sha256):
        _check_files(folder, manifest)
    else:
        report = verify_export(folder, verify_signature, executor=executor, progress=progress)
        if not report.is_ok:
            first = report.wrong[0]
            raise ArenaError("V2095", f"{folder}: {first.place}: {first.detail} ({len(report.wrong)} in all)")
        if seals is not None:
            seal = _Seal(version=SEAL_VERSION, manifest_sha256=manifest_sha256)
            path = _seal_path(seals, manifest_sha256)
            path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(path, msgspec.json.encode(seal))
    return Export(
        folder=str(folder),
        manifest=manifest,
        manifest_sha256=manifest_sha256,
        signer=signer if signer == validator else "",
        location=location,
    )


def _seal_path(seals: Path, manifest_sha256: str) -> Path:
    return seals / f"{manifest_sha256}.json"


def _is_sealed(seals: Path, manifest_sha256: str) -> bool:
    try:
        seal = msgspec.json.decode(_seal_path(seals, manifest_sha256).read_bytes(), type=_Seal)
    except (OSError, msgspec.DecodeError):
        return False  # none, or one that was cut short: verified again
    return seal == _Seal(version=SEAL_VERSION, manifest_sha256=manifest_sha256)


def _check_files(folder: Path, manifest: Manifest) -> None:
    """Raises ArenaError V2095 when a file is not the one the manifest names."""
    for file in manifest.files:
        path = folder / file.path
        if not path.is_file() or file_hash(path) != (file.sha256, file.size_bytes):
            raise ArenaError("V2095", f"{folder}: {file.path}: its bytes are not those the manifest names")


_NULL = b"null"


class LogIndex(msgspec.Struct, frozen=True):
    """Coefficients by body hash (None: a verdict that could not be had), pool and cluster by race and problem."""

    verdicts: dict[str, tuple[int, int | None]] = {}
    problems: dict[str, dict[str, tuple[Pool, str]]] = {}

    def coefficient_e4(self, body_sha256: str) -> int | None:
        """The coefficient of the verdict that counts for a body, None where there is none."""
        return self.verdicts.get(body_sha256, (0, None))[1]

    def problem(self, evaluation: EvaluationRecord) -> tuple[Pool, str]:
        """Pool and cluster of an evaluated problem; a suite's is `never_touch`."""
        released = self.problems.get(evaluation.context.race_id, {}).get(evaluation.context.problem_id)
        if evaluation.context.stage != "race" or released is None:
            return "never_touch", ""
        return released


class _LoggedPayload(msgspec.Struct):
    kind: str
    body_sha256: str = ""  # of an evaluation


class _LoggedContent(msgspec.Struct):
    payload: _LoggedPayload


class _LoggedLine(msgspec.Struct):
    seq: int
    content: msgspec.Raw = msgspec.Raw(_NULL)


_LINE = msgspec.json.Decoder(_LoggedLine)
_CONTENT = msgspec.json.Decoder(_LoggedContent)


def index_shards(folder: Path, shards: int) -> tuple[LogIndex, ...]:
    """An index for each shard of an export's log. Raises ArenaError V2050 for lines that can't be read."""
    whole = LogIndex()
    if (folder / REFERENCES).exists():
        _take(folder / REFERENCES, whole)
    bodies = [_take(folder / LOG / shard_name(number), whole) for number in range(shards)]
    return tuple(
        LogIndex({body: whole.verdicts[body] for body in own if body in whole.verdicts}, whole.problems)
        for own in bodies
    )


def _take(path: Path, index: LogIndex) -> list[str]:
    """Add a file's verdicts and releases; the bodies of its evaluations."""
    bodies: list[str] = []
    for line in read_lines(path):
        row = _LINE.decode(line)
        content = bytes(row.content)
        if content == _NULL:
            continue
        said = _CONTENT.decode(content).payload
        if said.kind == "evaluation":
            bodies.append(said.body_sha256)
        elif said.kind in ("verdict", "release"):
            _add(row.seq, decode_content(content).payload, index)
    return bodies


def _add(seq: int, payload: Payload, index: LogIndex) -> None:
    if isinstance(payload, VerdictRecord):
        verdict = payload.verdict
        kept = index.verdicts.get(verdict.body_sha256)
        if kept is None or seq < kept[0]:
            coefficient_e4 = verdict.coefficient_e4 if isinstance(verdict, Verdict) else None
            index.verdicts[verdict.body_sha256] = seq, coefficient_e4
    elif isinstance(payload, ReleaseRecord):
        released = {one.problem_id: (one.pool, one.cluster_id) for one in payload.problems}
        index.problems.setdefault(payload.race_id, released)


ROW_FACTS = (*EXPORTED_FACTS, "recommended", "validator", "seq", "content_sha256", "query")  # read of an export's row


def row_place(row: Mapping[str, Any]) -> str:
    """Where a row stands: log and number."""
    return f"{row['validator']}:{row['seq']}"


def trace_of_row(row: Mapping[str, Any], talk: Conversation, tools: str, *, is_verified: bool) -> Trace:
    """The trace of a row, whose `ROW_FACTS` are given by name (FORMATS.md says what they mean).

    Raises ArenaError V2097 when its conversation holds what is no message.
    """
    messages, made = _conversation(talk, row, tools)
    facts = {fact: row[name] for name, fact in EXPORTED_FACTS.items()}
    for name in ("cluster_id", "suite"):
        facts[name] = facts[name] or None
    facts["recommended"] = row["recommended"].split(",") if row["recommended"] else ()
    facts["surfaced"] = tuple(dict.fromkeys(found.product_id for call in talk.calls for found in call.surfaced))
    return assemble_trace(
        TraceSource(kind="arena", place=row_place(row), sha256=row["content_sha256"], is_verified=is_verified),
        messages,
        tools=tools,
        query=row["query"],
        facts=msgspec.convert(facts, TraceFacts),
        rebuilt=made,
    )


def _conversation(
    talk: Conversation, row: Mapping[str, Any], tools: str
) -> tuple[Sequence[Message], Rebuilt | msgspec.UnsetType]:
    """The messages of a row: what the model was sent and wrote, where that is the whole episode in order and its calls
    can be read there; else the episode rebuilt from its events, where that is one conversation."""
    sent = [_message(chat) for chat in talk.messages]
    is_text = any(message.role == "assistant" and is_spoken(message.content) for message in sent)
    lifted = _lifted(sent, talk.calls) if is_text else sent
    if row["is_linear"] and lifted is not None:
        if sum(len(message.calls) for message in lifted) == sum(len(message.calls) for message in sent):
            return lifted, msgspec.UNSET
        if is_paired(lifted):
            return lifted, Rebuilt(how=("text_calls",))
    return rebuild(talk, row["query"], tools) or (lifted or sent, msgspec.UNSET)


def _message(chat: ChatMessage) -> Message:
    if chat.role == "assistant":
        calls = (
            *calls_of_chat(chat.tool_calls, "llm"),
            *calls_of_chat(chat.echoed_tool_calls, "echoed"),
            *calls_of_chat(chat.agent_tool_calls, "code"),
        )
        return Message(
            role="assistant",
            content=chat.content,
            reasoning=chat.reasoning_content,
            calls=calls,
            is_model=chat.origin is None,
        )
    role = ROLES.get(chat.role)
    if role is None:
        raise ArenaError("V2097", f"a message of role {chat.role!r}")
    return Message(role=role, content=chat.content, call_id=chat.tool_call_id, is_model=chat.origin is None)


def _lifted(talk: Sequence[Message], calls: Sequence[ExecutedCall]) -> list[Message] | None:
    """Calls that the model wrote as text as calls, each with the emitter the host recorded for the next text call of
    that name; one that the host never executed is the model's. What is no call stays text."""
    try:
        messages = lift(talk)
    except ArenaError:
        return None
    waiting = [call for call in calls if call.call_id.startswith(TEXT_CALL) or call.emitter == "echoed"]
    results: dict[str, str | None] = {}
    attributed: list[Message] = []
    for message in messages:
        if message.calls and all(call.emitter is None for call in message.calls):
            own = []
            for call in message.calls:
                match = next((one for one in waiting if one.name == call.name), None)
                if match is not None:
                    waiting.remove(match)
                    results[call.id] = match.result
                emitter: Emitter = match.emitter if match is not None and message.is_model else "llm"
                own.append(msgspec.structs.replace(call, emitter=emitter if message.is_model else "code"))
            message = msgspec.structs.replace(message, calls=tuple(own))
        elif message.role == "tool" and message.call_id in results:
            is_model = "".join((results[message.call_id] or "").split()) == "".join(message.content.split())
            message = msgspec.structs.replace(message, is_model=is_model)
        attributed.append(message)
    return attributed


PARQUET = "parquet"
_MESSAGES, _CALLS = tuple[ChatMessage, ...], tuple[ExecutedCall, ...]
_DECODERS: dict[str, msgspec.json.Decoder[Any]] = {
    "messages": msgspec.json.Decoder(_MESSAGES),
    "other_messages": msgspec.json.Decoder(tuple[ChatMessage, ...]),
    "completions": msgspec.json.Decoder(tuple[Turn, ...]),
    "calls": msgspec.json.Decoder(_CALLS),
}
_COLUMNS = [*ROW_FACTS, *_DECODERS, "prompt_length", "tools", "tools_sha256"]


class ViewShard(msgspec.Struct, frozen=True, kw_only=True):
    """One row group of the Parquet view. Calling it reads it."""

    files: ExportFiles
    name: str
    group: int
    is_verified: bool
    keeps_calls: bool = False  # its traces are `ExecutedTrace`

    def __call__(self) -> Iterator[Trace | Quarantined]:
        """Its rows, in order."""
        import pyarrow.parquet as pq

        with self.files.here() as folder, pq.ParquetFile(folder / VIEWS / PARQUET / self.name) as file:
            table = file.read_row_group(self.group, columns=_COLUMNS, use_threads=False)
        plain = zip(*(table.column(name).to_pylist() for name in ROW_FACTS), strict=True)
        told = zip(*(_conversations(name, table.column(name)) for name in _DECODERS), strict=True)
        lengths, tools = table.column("prompt_length").to_pylist(), _tools(table)
        for values, parts, length, offered in zip(plain, told, lengths, tools, strict=True):
            facts = dict(zip(ROW_FACTS, values, strict=True))
            talk = Conversation(
                **dict(zip(_DECODERS, parts, strict=True)),
                prompt_length=length,
                is_linear=facts["is_linear"],
                is_model_written=facts["is_model_written"],
            )
            yield _converted(facts, talk, offered, is_verified=self.is_verified, keeps_calls=self.keeps_calls)


class LogShard(msgspec.Struct, frozen=True, kw_only=True):
    """One shard of the log, with what other rows of the export say about its own. Calling it reads it."""

    files: ExportFiles
    number: int
    index: LogIndex
    is_verified: bool
    keeps_calls: bool = False  # its traces are `ExecutedTrace`

    def __call__(self) -> Iterator[Trace | Quarantined]:
        """Its rows, in order. Raises ArenaError V2050 for a file that changed since it was verified."""
        with self.files.here() as folder:
            rows = shard_trajectories(folder, self.number, lambda _: (0, None), self.index.problem)
            for trajectory in rows:
                row, judged = row_of(trajectory), trajectory.verdict  # a scrubbed trajectory carries its own
                coefficient_e4 = (
                    judged.coefficient_e4
                    if isinstance(judged, Verdict)
                    else self.index.coefficient_e4(trajectory.evaluation.body_sha256)
                )
                values = {name: getattr(row.facts, name) for name in ROW_FACTS} | {"coefficient_e4": coefficient_e4}
                yield _converted(
                    values, row.conversation, row.tools, is_verified=self.is_verified, keeps_calls=self.keeps_calls
                )


def export_shards(export: Export, *, use_log: bool = False) -> tuple[ViewShard | LogShard, ...]:
    """An export in pieces, in the order of its log. `use_log`: from the log even where there is a view.

    Raises ArenaError V2050 for a log that can't be read.
    """
    import pyarrow.parquet as pq

    folder, named = Path(export.folder), {file.path for file in export.manifest.files}
    shards = range(sum(path.startswith(f"{LOG}/") for path in named))
    request = export.manifest.request
    if use_log or PARQUET not in request.forms:
        return tuple(
            LogShard(
                files=export.files(f"{LOG}/{shard_name(number)}", f"{SCRUBBED}/{shard_name(number)}"),
                number=number,
                index=index,
                is_verified=export.is_verified,
            )
            for number, index in enumerate(index_shards(folder, len(shards)))
        )
    names = [shard_name(number).removesuffix(".jsonl.zst") + ".parquet" for number in shards]
    return tuple(
        ViewShard(
            files=export.files(f"{VIEWS}/{PARQUET}/{name}"), name=name, group=group, is_verified=export.is_verified
        )
        for name in names
        if f"{VIEWS}/{PARQUET}/{name}" in named  # a shard of stubs has no view
        for group in range(pq.read_metadata(folder / VIEWS / PARQUET / name).num_row_groups)
    )


def _conversations(name: str, column: Any) -> Iterator[Any]:
    """The values of a column that holds a part of the conversation: JSON text, or nested."""
    import pyarrow as pa

    from arena.export.parquet import values_of

    if pa.types.is_nested(column.type):
        kind = _MESSAGES if name == "messages" else _CALLS
        return (msgspec.convert(value, kind) for chunk in column.chunks for value in values_of(chunk))
    return (_DECODERS[name].decode(value.as_buffer()) for value in column)


def _tools(table: Any) -> list[str]:
    """The tools of each row as they stand in the log's views: in nested form they are those the record names."""
    import pyarrow as pa

    if not pa.types.is_nested(table.column("tools").type):
        texts: list[str] = table.column("tools").to_pylist()
        return texts
    named = zip(table.column("tool_profile").to_pylist(), table.column("tools_sha256").to_pylist(), strict=True)
    return [tools_of(profile, sha256) for profile, sha256 in named]


def _converted(
    facts: Mapping[str, Any], talk: Conversation, tools: str, *, is_verified: bool, keeps_calls: bool
) -> Trace | Quarantined:
    try:
        trace = trace_of_row(facts, talk, tools, is_verified=is_verified)
    except ArenaError as error:
        return Quarantined(place=row_place(facts), code=error.failure.code, detail=error.failure.detail)
    if not keeps_calls:
        return trace
    results = (call.result if call.message is None else talk.messages[call.message].content for call in talk.calls)
    executed = tuple((call.name, call.arguments, result) for call, result in zip(talk.calls, results, strict=True))
    return ExecutedTrace(executed=executed, **{name: getattr(trace, name) for name in Trace.__struct_fields__})
