"""Verification of an export, offline: from the manifest down to each byte of each file.

It trusts the signature check it is given and nothing else, needs no store, and raises nothing for whatever the
folder holds: each thing wrong is a place with what is wrong there. First every line's signature, chain and tree are
checked; then the export is made again from its own rows, by the exporter's code, and the hashes are compared. It can't
tell why a stub is a stub: that is the exporter's word.
"""

from __future__ import annotations

import itertools
import tempfile
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec

from arena.chain.port import Verifier
from arena.export.agents import Promotion, first_promotions, promotion_of, stated_supplement
from arena.export.assembly import ExportRow, Page, Selection, assemble, check_request, signed_content
from arena.export.exporter import PAGE, Writing, complete
from arena.export.files import (
    CHECKSUM,
    LAYOUT,
    LOG,
    MANIFEST,
    REFERENCES,
    SIGNATURE,
    read_lines,
    read_manifest,
    read_row,
    read_rows,
    read_scrubbed,
    shard_name,
    signer_of,
)
from arena.export.model import Cursor, LogRow, Manifest, ShardFile, Trajectory
from arena.policy import Policy
from arena.records.body import decode_content
from arena.records.inspection import RecordFinding
from arena.records.log import Checkpoint, read_checkpoint
from arena.records.model import (
    Entry,
    EvaluationRecord,
    RecordContent,
    ReleaseRecord,
    SettlementRecord,
    SignedRecord,
    VerdictRecord,
    entry_of,
    envelope_of,
)
from arena.records.verification import LogCheck, VerifyReport, inspect_all
from arena.secrets import holds_secret
from foundation.canonical import file_sha256
from foundation.codes import VERIFIER_DIED
from foundation.errors import ArenaError
from foundation.executors import HERE, Executor
from foundation.long_work import PhaseProgress, Spool, rare_collections

BATCH_LINES, BATCH_BYTES = 128, 8 << 20
WRONG_KEPT = 100
_BESIDE = {MANIFEST, CHECKSUM, SIGNATURE}


class Wrong(msgspec.Struct, frozen=True, kw_only=True):
    """One place that is wrong: a file, or a record of the log."""

    place: str
    detail: str


class ExportReport(msgspec.Struct, frozen=True, kw_only=True):
    """What verification of an export found. `signer` is the hotkey that signed the manifest, "" for nobody."""

    validator: str = ""
    first_seq: int = 0
    last_seq: int = 0
    signer: str = ""
    trajectories: int = 0
    log: VerifyReport | None = None
    wrong: tuple[Wrong, ...] = ()

    @property
    def is_ok(self) -> bool:
        """True when nothing is wrong."""
        return not self.wrong


def verify_export(
    folder: Path,
    verify_signature: Verifier,
    *,
    executor: Executor = HERE,
    progress: PhaseProgress | None = None,
    checkpoints: Sequence[Checkpoint] = (),
) -> ExportReport:
    """Verify a whole export. Files are looked at first: where one is not what the manifest says, rows are not read.

    `checkpoints`: states of its log, of its range, that were kept elsewhere. `executor`: who looks at rows; the views
    are made again in this process. What is found is the same. Raises ArenaError V2052 when processes died: then nothing
    is known.
    """
    try:
        manifest = read_manifest(folder)
        signer = signer_of(folder, verify_signature)
    except ArenaError as error:
        return ExportReport(wrong=(Wrong(place=MANIFEST, detail=error.failure.detail),))
    log = manifest.log
    report = ExportReport(validator=log.validator, first_seq=log.first_seq, last_seq=log.last_seq, signer=signer)
    wrong = wrong_files(folder, manifest)
    if wrong:
        return msgspec.structs.replace(report, wrong=tuple(wrong[:WRONG_KEPT]))
    try:
        points = _read_range(manifest, verify_signature)
        rows = _Rows(folder, manifest, LogCheck([*points, *checkpoints], starts=[log.start]), progress)
        with rare_collections():
            found, wrong = rows.verify(look_all(rows.read(), verify_signature, executor))
    except ArenaError as error:
        if error.failure.code == VERIFIER_DIED:
            raise
        return msgspec.structs.replace(report, wrong=(Wrong(place="log", detail=error.failure.detail),))
    return msgspec.structs.replace(
        report, log=found, trajectories=manifest.trajectories, wrong=tuple(wrong[:WRONG_KEPT])
    )


def wrong_files(folder: Path, manifest: Manifest) -> list[Wrong]:
    """Files that are missing, changed or nobody's."""
    wrong, named = [], {file.path: file for file in manifest.files}
    if len(named) != len(manifest.files):
        wrong.append(Wrong(place=MANIFEST, detail="it names a file twice"))
    present = {
        path.relative_to(folder).as_posix(): path
        for path in sorted(folder.rglob("*"))
        if path.is_symlink() or not path.is_dir()
    }
    for name in sorted(named.keys() | present.keys() - _BESIDE):
        if name not in present:
            detail = "the file is missing"
        elif name not in named:
            detail = "the manifest does not name this file"
        elif present[name].is_symlink() or not present[name].is_file():
            detail = "not a plain file"
        elif named[name].size_bytes != present[name].stat().st_size or named[name].sha256 != file_sha256(present[name]):
            detail = "its bytes are not those the manifest names"
        else:
            continue
        wrong.append(Wrong(place=name.encode("utf-8", "backslashreplace").decode(), detail=detail))
    return wrong


def _read_range(manifest: Manifest, verify_signature: Verifier) -> list[Checkpoint]:
    """The signed checkpoints of the range's ends, held against request and start. Raises ArenaError V2050, V2030."""
    log, request = manifest.log, manifest.request
    check_request(request)
    end = read_checkpoint(log.end_note, verify_signature)
    points = [end]
    if (end.validator, end.size) != (log.validator, log.last_seq) or request.validator != log.validator:
        raise ArenaError("V2050", "the end note is not one of this log and size")
    if log.start.after_seq + 1 != log.first_seq or log.start.validator != log.validator:
        raise ArenaError("V2050", "the range does not begin where its start says")
    if log.start_note:
        start = read_checkpoint(log.start_note, verify_signature)
        points.append(start)
        if (start.validator, start.size) != (log.validator, log.start.after_seq):
            raise ArenaError("V2050", "the start note is not one of the tree the range begins with")
    return points


class _Rows:
    """The rows of one export: gone over once as records of a log, then once more to make the export again.

    Nothing is read but `log/`, `scrubbed/`, the references and what the export states beside its log. What is wrong
    raises ArenaError V2050 with the record's number.
    """

    def __init__(self, folder: Path, manifest: Manifest, check: LogCheck, progress: PhaseProgress | None) -> None:
        self._folder, self._manifest, self._check, self._progress = folder, manifest, check, progress
        named = {file.path for file in manifest.files}
        shards = [shard_name(number) for number in range(len(named))]
        self._shards = [name for name in shards if f"{LOG}/{name}" in named]
        self._paths = [*([REFERENCES] if REFERENCES in named else []), *(f"{LOG}/{name}" for name in self._shards)]
        self._outside = 0  # lines of the references
        self._verdicts = defaultdict[str, list[tuple[int, int]]](list)  # by body: record number, place of its content
        self._contents = Spool()
        self._releases: dict[str, ReleaseRecord] = {}
        self._promotions: list[Promotion] = []
        self._references: dict[int, bytes] = {}  # lines by record number
        self._release_lines: dict[str, tuple[int, bytes]] = {}  # of releases in front of the range

    def read(self) -> Iterator[LogRow]:
        """References and log, in order."""
        for path in self._paths:
            for row in read_rows(self._folder / path):
                self._outside += path == REFERENCES
                yield row

    def verify(self, looked: Iterable[tuple[LogRow, RecordFinding]]) -> tuple[VerifyReport, list[Wrong]]:
        """First chain, tree and signatures; then rules, trajectories and every file. Raises ArenaError V2050."""
        log = self._manifest.log
        for number, (row, finding) in enumerate(looked, 1):
            if finding.validator != log.validator:
                raise _wrong(finding.seq, "it is of another log")
            self._note(finding, row)
            if number > self._outside:
                self._check.take(finding)
            elif finding.faults or finding.payload is None or finding.seq > log.last_seq:
                raise _wrong(finding.seq, "a reference is a whole, signed record up to the end of the range")
            else:
                self._references[finding.seq] = msgspec.json.encode(row)
            if number % PAGE == 0:
                self._tell(number)
        found = self._check.report()
        if found.defects:
            places = found.defects
            return found, [Wrong(place=f"record {one.seq}", detail=f"{one.rule}: {one.detail}") for one in places]
        if (last_seq := self._check.head(log.validator).seq) != log.last_seq:
            raise ArenaError("V2050", f"the log ends at record {last_seq}, not {log.last_seq}")
        with tempfile.TemporaryDirectory(prefix="arena-export-") as name, ThreadPoolExecutor(2) as threads:
            return found, _compare(self._manifest, self._remade(Path(name), threads))

    def _note(self, finding: RecordFinding, row: LogRow) -> None:
        """Keep what other rows refer to of a whole row."""
        payload, seq = finding.payload, finding.seq
        if isinstance(payload, ReleaseRecord):
            self._releases.setdefault(payload.race_id, payload)
            if seq < self._manifest.log.first_seq:
                self._release_lines.setdefault(payload.race_id, (seq, msgspec.json.encode(row)))
        elif isinstance(payload, VerdictRecord):
            self._verdicts[payload.verdict.body_sha256].append((seq, len(self._contents)))
            self._contents.add(bytes(row.content or b""))
        elif isinstance(payload, SettlementRecord) and not holds_secret(bytes(row.content or b"")):
            promotion = promotion_of(seq, payload)
            self._promotions += [promotion] if promotion else []

    # -- the second pass
    def _remade(self, made: Path, threads: ThreadPoolExecutor) -> Manifest:
        """The manifest this export must have, its files made again below `made`. Raises ArenaError V2050."""
        manifest, log = self._manifest, self._manifest.log
        selection = Selection(manifest.request, self._releases, log.start, log.embargoed)
        supplement = stated_supplement(self._folder, manifest)
        shown = first_promotions(one for one in self._promotions if selection.is_released(one.race_id))
        supplement.promotions |= shown
        supplement.rows |= {one.seq: self._references[one.seq] for one in shown.values() if one.seq in self._references}

        def drop(files: Iterable[ShardFile]) -> None:
            for file in files:  # its hash is known: a whole export need not fit where this one is made
                (made / file.path).unlink()

        writing = Writing(made, manifest.request, log, supplement, threads, drop)
        for number, name in enumerate(self._shards):
            scrubbed, lines = read_scrubbed(self._folder, number), read_lines(self._folder / LOG / name)
            while page := list(itertools.islice(lines, PAGE)):
                writing.take(self._assembled(page, scrubbed, selection, writing.policies))
                self._tell(self._check.counts["records"] + writing.walk.seq - log.start.after_seq)
        cursor = self._next_cursor(writing.finish())
        tally, writing.found = writing.tally, manifest.libraries  # the exporter's word
        tally.references |= {seq: self._references[seq] for seq in tally.references if seq in self._references}
        layout = self._folder / LAYOUT
        content = layout.read_bytes() if layout.exists() else b""
        return complete(writing, cursor, self._release_lines, content, manifest.software, manifest.exported_ms)

    def _assembled(
        self, lines: list[bytes], scrubbed: dict[int, Trajectory], selection: Selection, policies: Mapping[str, Policy]
    ) -> list[ExportRow]:
        """Lines of the log as the exporter makes them. Raises ArenaError V2050 for what it would not."""
        rows = [read_row(line) for line in lines]
        page = self._page([row for row in rows if row.content is not None], selection)
        whole = assemble(page, selection, self._manifest.log.last_seq, policies)
        made = {one.seq: one for one in whole}
        if wrong := next((one for one in whole if one.withheld), None):
            raise _wrong(wrong.seq, f"it is whole and should be withheld: {wrong.withheld}")
        return [
            made.get(row.seq) or _stub(row, line, scrubbed.get(row.seq)) for row, line in zip(rows, lines, strict=True)
        ]

    def _page(self, rows: list[LogRow], selection: Selection) -> Page:
        """Whole rows as the store would give them."""
        records = [_signed(row, row.seq, bytes(row.content or b"")) for row in rows]
        contents = [signed_content(record.content, record.content_sha256) for record in records]
        bodies, verdicts = dict[str, bytes](), dict[str, list[tuple[SignedRecord, RecordContent]]]()
        for row, content in zip(rows, contents, strict=True):
            if content and isinstance(content.payload, EvaluationRecord) and row.body is not None:
                name = content.payload.body_sha256
                bodies[name] = bytes(row.body)
                said = [(seq, self._contents.get(place)) for seq, place in sorted(self._verdicts.get(name, ()))]
                verdicts[name] = [(_signed(row, seq, raw), decode_content(raw)) for seq, raw in said]
        reasons = [selection.reason(row.seq, one) if one else None for row, one in zip(rows, contents, strict=True)]
        return Page(records, contents, reasons, {}, verdicts, bodies)

    def _next_cursor(self, cursor: Cursor) -> Cursor:
        """The cursor the rows lead to. Stubs do not tell their race: for those the manifest is believed, as far as it
        names races that are released."""
        log, stated = self._manifest.log, self._manifest.cursor.races
        released = self._releases.keys() - set(log.embargoed)
        is_plausible = set(cursor.races) <= set(stated) <= released | set(log.start.races)
        if cursor.after_seq == log.last_seq or not is_plausible:
            return cursor
        return msgspec.structs.replace(cursor, races=tuple(sorted(set(stated))))

    def _tell(self, done: int) -> None:
        if self._progress:
            self._progress(done, 2 * (self._manifest.log.last_seq - self._manifest.log.first_seq + 1))


def _signed(row: LogRow, seq: int, content: bytes) -> SignedRecord:
    return SignedRecord(**envelope_of(row) | {"seq": seq}, content=content)


def _stub(row: LogRow, line: bytes, scrubbed: Trajectory | None) -> ExportRow:
    """A row that is taken as it stands, and its trajectory where credentials were removed. Raises ArenaError V2050."""
    if row.withheld is None or row.body is not None:
        raise _wrong(row.seq, "a stub has its reason, and nothing else")
    if scrubbed is not None:
        stated = (scrubbed.validator, scrubbed.content_sha256, scrubbed.signature)
        if stated != (row.validator, row.content_sha256, row.signature) or row.withheld != "secret":
            raise _wrong(row.seq, "its scrubbed trajectory is of another record")
        if holds_secret(msgspec.json.encode(scrubbed)):
            raise _wrong(row.seq, "its scrubbed trajectory holds what looks like a credential")
    return ExportRow(
        **envelope_of(row),
        race_id="",
        line=line,
        withheld=row.withheld,
        trajectory=scrubbed,
        is_scrubbed=scrubbed is not None,
    )


def _compare(stated: Manifest, derived: Manifest) -> list[Wrong]:
    """Where the manifest or a file is not what the rows come to."""
    made = {file.path: file for file in derived.files}
    wrong = [
        Wrong(place=file.path, detail="it is not what the log rows make of it")
        for file in stated.files
        if made.get(file.path) != file
    ]
    missing = made.keys() - {file.path for file in stated.files}
    wrong += [Wrong(place=path, detail="the log rows make this file, and it is missing") for path in sorted(missing)]
    for name in Manifest.__struct_fields__:
        if getattr(stated, name) != getattr(derived, name) and not (wrong and name == "files"):
            wrong.append(Wrong(place=MANIFEST, detail=f"the rows do not bear out `{name}`"))
    return wrong


def _wrong(seq: int, detail: str) -> ArenaError:
    return ArenaError("V2050", f"record {seq}: {detail}")


def look_all(
    rows: Iterable[LogRow], verify_signature: Verifier, executor: Executor
) -> Iterator[tuple[LogRow, RecordFinding]]:
    """Every row with what it is by itself, in order. `verify_signature` is a function of a module, so that other
    processes can import it. Raises as `inspect_all`."""
    given = deque[list[LogRow]]()  # batches whose findings are awaited

    def entries() -> Iterator[list[Entry]]:
        for batch in _batches(rows):
            given.append(batch)
            yield [entry_of(row, row.content, row.body) for row in batch]

    for found in inspect_all(verify_signature, executor, entries()):
        yield from zip(given.popleft(), found, strict=True)
    assert not given, f"{len(given)} batches were not looked at"


def _batches(rows: Iterable[LogRow]) -> Iterator[list[LogRow]]:
    batch, size = list[LogRow](), 0
    for row in rows:
        batch.append(row)
        size += len(bytes(row.content or b"")) + len(bytes(row.body or b""))
        if len(batch) == BATCH_LINES or size >= BATCH_BYTES:
            yield batch
            batch, size = [], 0
    yield batch
