"""An export of the log as traces: verified whole, once, signed by the validator whose log it is, then read by shards.

An export that does not verify is never opened, whatever is asked for. One that nobody signed is opened only with
`trust_unsigned`, and its traces say that they are not verified. A finished verification leaves a seal, named by the
manifest's hash: the same manifest is not verified again, but each file is still hashed against it. Whoever can write
into the seals' folder can make a seal: it is the reader's own folder, never one that came with the export.

Every trajectory comes out of the Parquet view once, in the order of the log, as a trace or as a quarantined row. A
shard is a picklable value that can be read in any process, and again. Who emitted a call is what the host recorded;
calls that the agent's Python made are in no message, and so in no verbatim trace.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from arena.chain.port import Verifier
from arena.export.agents import AgentRow
from arena.export.conversation import Conversation
from arena.export.files import AGENTS, MANIFEST, VIEWS, ExportFiles, read_manifest, signer_of
from arena.export.model import Manifest
from arena.export.row import ViewRow
from arena.export.verification import verify_export, wrong_files
from foundation.durable_files import write_whole
from foundation.errors import ArenaError
from foundation.executors.port import HERE, Executor
from foundation.progress import PhaseProgress
from harness.chat import Message, message_of
from training.corpus.formats import lift
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
from training.corpus.rebuilding import rebuild

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
        except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise ArenaError("V2050", f"{AGENTS}: {error}") from error


def open_export(
    folder: Path,
    verify_signature: Verifier,
    *,
    trust_unsigned: bool = False,
    seals: Path | None = None,
    executor: Executor = HERE,
    progress: PhaseProgress | None = None,
    location: str = "",
) -> Export:
    """The export in `folder`, verified now or before. `location`: the object store it was brought from, "" for none.

    `seals` is a folder of finished verifications, None for none; `executor` is where verification looks at rows
    (`verify_export`), with a `verify_signature` that other processes can import. Raises ArenaError V2095 without a
    readable manifest, V2095 when its validator did not sign it, V2095 when the export
    does not verify, V2052 when processes died.
    """
    manifest = read_manifest(folder)
    signer, validator = signer_of(folder, verify_signature), manifest.log.validator
    if signer != validator and not trust_unsigned:
        whose = f"signed by {signer}" if signer else "not signed"
        raise ArenaError(
            "V2095",
            f"nobody vouches for {folder}: {whose}; the log is that of {validator}",
            fix="take one signed by its validator, or repeat with --trust-unsigned: the lineage then says so",
        )
    manifest_sha256 = hashlib.sha256((folder / MANIFEST).read_bytes()).hexdigest()
    seal = None if seals is None else seals / f"{manifest_sha256}.{SEAL_VERSION}"
    if seal is not None and seal.is_file():
        wrong = tuple(wrong_files(folder, manifest))
    else:
        wrong = verify_export(folder, verify_signature, executor=executor, progress=progress).wrong
        if seal is not None and not wrong:
            seal.parent.mkdir(parents=True, exist_ok=True)
            write_whole(seal, b"")
    if wrong:
        raise ArenaError("V2095", f"{folder}: {wrong[0].place}: {wrong[0].detail} ({len(wrong)} in all)")
    return Export(
        folder=str(folder),
        manifest=manifest,
        manifest_sha256=manifest_sha256,
        signer=signer if signer == validator else "",
        location=location,
    )


def trace_of_row(row: ViewRow, *, is_verified: bool) -> Trace:
    """The trace of an export's row (FORMATS.md says what its facts mean). Raises ArenaError V2097 when its
    conversation holds what is no message."""
    told, talk = row.facts, row.conversation
    messages, made = _conversation(row)
    facts = {fact: getattr(told, name) for name, fact in EXPORTED_FACTS.items()}
    for name in ("cluster_id", "suite"):
        facts[name] = facts[name] or None
    facts["recommended"] = told.recommended.split(",") if told.recommended else ()
    facts["surfaced"] = tuple(dict.fromkeys(found.product_id for call in talk.calls for found in call.surfaced))
    return assemble_trace(
        TraceSource(kind="arena", place=_place(row), sha256=told.content_sha256, is_verified=is_verified),
        messages,
        tools=row.tools,
        query=told.query,
        facts=msgspec.convert(facts, TraceFacts),
        rebuilt=made,
    )


def _place(row: ViewRow) -> str:
    return f"{row.facts.validator}:{row.facts.seq}"


def _conversation(row: ViewRow) -> tuple[Sequence[Message], Rebuilt | None]:
    """The messages of a row: what the model was sent and wrote, where that is the whole episode in order and no call
    stands in its text; else the episode rebuilt from its events, where that is one conversation."""
    talk = row.conversation
    sent = [message_of(chat, "llm") for chat in talk.messages]
    if talk.is_linear and not any("<tool_call>" in one.content for one in sent if one.role == "assistant"):
        return lift(sent), None
    return rebuild(talk, row.facts.query, row.tools) or (sent, None)


class ViewShard(msgspec.Struct, frozen=True, kw_only=True):
    """One row group of the Parquet view. Calling it reads it."""

    files: ExportFiles
    name: str
    group: int
    is_verified: bool
    keeps_calls: bool = False  # its traces are `ExecutedTrace`

    def __call__(self) -> Iterator[Trace | Quarantined]:
        """Its rows, in order. Raises ArenaError V2050 for a file that changed since it was verified."""
        from arena.export.parquet import read_rows

        with self.files.here() as folder:
            for row in read_rows(folder / self.name, self.group):
                try:
                    trace = trace_of_row(row, is_verified=self.is_verified)
                except ArenaError as error:
                    yield Quarantined(place=_place(row), code=error.failure.code, detail=error.failure.detail)
                else:
                    yield _with_calls(trace, row.conversation) if self.keeps_calls else trace


def export_shards(export: Export) -> tuple[ViewShard, ...]:
    """An export in pieces, in the order of its log. Raises ArenaError V2030 for one without the Parquet view."""
    import pyarrow.parquet as pq

    if "parquet" not in export.manifest.request.forms:
        raise ArenaError("V2030", f"{export.folder} has no Parquet view; export it again with --format parquet")
    names = sorted(file.path for file in export.manifest.files if file.path.startswith(f"{VIEWS}/parquet/"))
    return tuple(
        ViewShard(files=export.files(name), name=name, group=group, is_verified=export.is_verified)
        for name in names
        for group in range(pq.read_metadata(Path(export.folder) / name).num_row_groups)
    )


def _with_calls(trace: Trace, talk: Conversation) -> ExecutedTrace:
    results = (call.result if call.message is None else talk.messages[call.message].content for call in talk.calls)
    executed = tuple((call.name, call.arguments, result) for call, result in zip(talk.calls, results, strict=True))
    return ExecutedTrace(executed=executed, **{name: getattr(trace, name) for name in Trace.__struct_fields__})
