"""Verification of an export, offline: from the manifest down to each byte of each view.

It trusts the signature check it is given and nothing else, needs no store, and raises nothing for whatever the
folder holds: each thing wrong is a place with what is wrong there. It finds any changed byte, any file lost or added,
any row changed, dropped, doubled, swapped or cut off, a row that the release rule or the request keeps back, and a view
that is not what its format makes of the log. It can't tell why a stub is a stub: that is the exporter's word.
"""

from __future__ import annotations

import functools
import tempfile
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec

from arena.chain.port import Verifier
from arena.export.agents import AgentRow, Promotion, StatedSupplement, first_promotions, promotion_of
from arena.export.card import write_card
from arena.export.exporter import PAGE, Outgoing, ShardWriter, require_views, sorted_files, write_notes
from arena.export.files import (
    CHECKSUM,
    LOG,
    MANIFEST,
    REFERENCES,
    SCRUBBED,
    SIGNATURE,
    VerdictFile,
    file_hash,
    read_lines,
    read_manifest,
    read_row,
    read_rows,
    read_scrubbed,
    row_trajectory,
    shard_is_full,
    shard_name,
    signer_of,
)
from arena.export.journal import ShardCounts, Waiting
from arena.export.model import Cursor, LogRow, Manifest, ShardFile, Trajectory, Withheld
from arena.export.row import ViewContext
from arena.export.selection import Selection, check_request, race_of, releases_of
from arena.records.body import decode_body, decode_content, is_canonical
from arena.records.inspection import RecordFinding, inspect
from arena.records.log import Checkpoint, LogStart, read_checkpoint
from arena.records.model import Entry, EvaluationRecord, RecordContent, ReleaseRecord, SettlementRecord, VerdictRecord
from arena.records.verification import LogCheck, VerifyReport
from arena.secrets import holds_secret
from foundation.codes.names import VERIFIER_DIED
from foundation.errors import ArenaError
from foundation.executors.port import HERE, Executor
from foundation.garbage import rare_collections
from foundation.progress import PhaseProgress

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
) -> ExportReport:
    """Verify a whole export. Files are looked at first: where one is not what the manifest says, rows are not read.

    `executor`: who looks at rows; the views are made again in this process. What is found is the same. Raises
    ArenaError V2052 when processes died: then nothing is known.
    """
    try:
        manifest = read_manifest(folder)
        signer = signer_of(folder, verify_signature)
    except ArenaError as error:
        return ExportReport(wrong=(Wrong(place=MANIFEST, detail=error.failure.detail),))
    log = manifest.log
    report = ExportReport(validator=log.validator, first_seq=log.first_seq, last_seq=log.last_seq, signer=signer)
    wrong = _wrong_files(folder, manifest)
    if wrong:
        return msgspec.structs.replace(report, wrong=tuple(wrong[:WRONG_KEPT]))
    try:
        points = _read_range(manifest, verify_signature)
        rows = _Rows(folder, manifest, verify_signature, executor, progress)
        with rare_collections():
            found, wrong = rows.verify(points)
    except ArenaError as error:
        if error.failure.code == VERIFIER_DIED:
            raise
        return msgspec.structs.replace(report, wrong=(Wrong(place="log", detail=error.failure.detail),))
    return msgspec.structs.replace(
        report, log=found, trajectories=manifest.trajectories, wrong=tuple(wrong[:WRONG_KEPT])
    )


def _wrong_files(folder: Path, manifest: Manifest) -> list[Wrong]:
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
        elif file_hash(present[name]) != (named[name].sha256, named[name].size_bytes):
            detail = "its bytes are not those the manifest names"
        else:
            continue
        wrong.append(Wrong(place=name.encode("utf-8", "backslashreplace").decode(), detail=detail))
    return wrong


def _read_range(manifest: Manifest, verify_signature: Verifier) -> list[Checkpoint]:
    """The signed checkpoints of the range's ends, held against request and start. Raises ArenaError V2050, V2073."""
    log, request = manifest.log, manifest.request
    check_request(request)
    require_views(request)
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
    """The rows of one export, gone over twice."""

    def __init__(
        self,
        folder: Path,
        manifest: Manifest,
        verify_signature: Verifier,
        executor: Executor,
        progress: PhaseProgress | None,
    ) -> None:
        self._folder, self._manifest = folder, manifest
        self._verify_signature, self._executor, self._progress = verify_signature, executor, progress
        self._shards = _shards(manifest)

    def verify(self, points: list[Checkpoint]) -> tuple[VerifyReport, list[Wrong]]:
        """First chain, tree, signatures and references; then rules, trajectories and views. Raises ArenaError V2050."""
        check = LogCheck(points, starts=[self._manifest.log.start])
        with VerdictFile() as verdicts:
            rows = LogRows(self._manifest, verdicts, check)
            for path, scanned in self._scanned():
                if path == REFERENCES:
                    rows.take_reference(scanned)
                else:
                    rows.take(scanned)
            found = check.report()
            if found.defects:
                return found, [
                    Wrong(place=f"record {defect.seq}", detail=f"{defect.rule}: {defect.detail}")
                    for defect in found.defects
                ]
            rows.finish()
            with tempfile.TemporaryDirectory(prefix="arena-export-") as name, ThreadPoolExecutor(1) as threads:
                again = Remaking(self._folder, Path(name), self._manifest, rows, threads)
                made = again.run(self._shards, lambda done: self._tell(check.records + done))
            return found, _compare(self._manifest, made)

    def _scanned(self) -> Iterator[tuple[str, ScannedRow]]:
        """The lines of all files, looked at, each with its file. One that is no row is named by its number."""
        shards = [f"{LOG}/{shard_name(number)}" for number in range(self._shards)]
        paths = [REFERENCES, *shards] if (self._folder / REFERENCES).exists() else shards
        read: deque[tuple[str, int]] = deque()  # what is being looked at, in order
        before, ended = "", 0

        def lines() -> Iterator[bytes]:
            for path in paths:
                for number, line in enumerate(read_lines(self._folder / path), 1):
                    read.append((path, number))
                    yield line

        for scanned in look_all(lines(), self._verify_signature, self._executor):
            path, number = read.popleft()
            if scanned.finding is None:
                raise ArenaError("V2050", f"{path}, line {number}: {scanned.wrong}")
            yield path, scanned
            if path != before:
                self._tell(ended)
            before, ended = path, ended + (path != REFERENCES)
        self._tell(ended)

    def _tell(self, done: int) -> None:
        if self._progress:
            self._progress(done, 2 * (self._manifest.log.last_seq - self._manifest.log.first_seq + 1))


def _shards(manifest: Manifest) -> int:
    names = sorted(file.path for file in manifest.files if file.path.startswith(f"{LOG}/"))
    if names != [f"{LOG}/{shard_name(number)}" for number in range(len(names))]:
        raise ArenaError("V2050", "the shards of the log are not numbered from 0 on")
    return len(names)


def _compare(stated: Manifest, derived: Manifest) -> list[Wrong]:
    """Where the manifest or a view is not what the rows come to."""
    made = {file.path: file for file in derived.files}
    wrong = [
        Wrong(place=file.path, detail="it is not what its format makes of the log rows")
        for file in stated.files
        if made.get(file.path) != file
    ]
    missing = made.keys() - {file.path for file in stated.files}
    wrong += [Wrong(place=path, detail="the log rows make this file, and it is missing") for path in sorted(missing)]
    for name in Manifest.__struct_fields__:
        if getattr(stated, name) != getattr(derived, name) and not (wrong and name == "files"):
            wrong.append(Wrong(place=MANIFEST, detail=f"the rows do not bear out `{name}`"))
    return wrong


BATCH_LINES, BATCH_BYTES = 128, 8 << 20

_ENCODER = msgspec.msgpack.Encoder()
_LINES = msgspec.msgpack.Decoder(list[bytes])


class ScannedRow(msgspec.Struct, frozen=True, array_like=True):
    """What one line is by itself. `wrong`: why no export may hold it; `finding` is None where it can't be read at all.

    `content` is the record's bytes where it is whole and sound. `is_secret`: it, or its body, holds what looks like a
    credential and is not allowed to.
    """

    wrong: str
    finding: RecordFinding | None = None
    withheld: Withheld | None = None
    content: bytes | None = None
    is_secret: bool = False


_LOOKED = msgspec.msgpack.Decoder(list[ScannedRow])


def look(line: bytes, verify_signature: Verifier) -> ScannedRow:
    """One line of `log/` or of the references, without its end."""
    try:
        row = read_row(line)
    except ArenaError as error:
        return ScannedRow(error.failure.detail)
    return look_at(row, verify_signature)


def look_at(row: LogRow, verify_signature: Verifier) -> ScannedRow:
    """One row."""
    raw = None if row.content is None else bytes(row.content)
    body = None if row.body is None else bytes(row.body)
    entry = Entry(row.validator, row.seq, row.prev, row.content_sha256, row.signature, raw, body)
    finding = inspect(entry, verify_signature)
    if (raw is None) == (row.withheld is None) or (raw is None and body is not None):
        return ScannedRow("a row is whole, or a stub with its reason", finding, row.withheld)
    if raw is None or finding.faults:
        return ScannedRow("", finding, row.withheld)
    content = decode_content(raw)
    if (body is not None) != isinstance(content.payload, EvaluationRecord):
        return ScannedRow("an evaluation, and nothing else, has a body", finding)
    if not is_canonical(raw, content) or (body is not None and not is_canonical(body, decode_body(body))):
        return ScannedRow("its bytes are not canonical", finding)
    is_release = isinstance(content.payload, ReleaseRecord)
    is_secret = not is_release and (holds_secret(raw) or (body is not None and holds_secret(body)))
    return ScannedRow("", finding, None, raw, is_secret)


def look_all(lines: Iterable[bytes], verify_signature: Verifier, executor: Executor) -> Iterator[ScannedRow]:
    """Every line, in order. `verify_signature` is a function of a module, so that other processes can import it.

    Raises ArenaError V2052 for lines that are lost again and again.
    """
    if executor.slots == 0:
        yield from (look(line, verify_signature) for line in lines)
        return
    batches = map(_ENCODER.encode, _batches(lines))
    for packed in executor.map(functools.partial(look_packed, verify_signature), batches, died=VERIFIER_DIED):
        yield from _LOOKED.decode(packed)


def look_packed(verify_signature: Verifier, packed: bytes) -> bytes:
    """What a process does: lines in, what they are out, both as MessagePack."""
    return _ENCODER.encode([look(line, verify_signature) for line in _LINES.decode(packed)])


def _batches(lines: Iterable[bytes]) -> Iterator[list[bytes]]:
    batch, size = list[bytes](), 0
    for line in lines:
        batch.append(line)
        size += len(line)
        if len(batch) == BATCH_LINES or size >= BATCH_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


class LogRows:
    """First every row is taken, then each whole one is judged."""

    def __init__(self, manifest: Manifest, verdicts: VerdictFile, check: LogCheck) -> None:
        """`check` goes over chain and tree of the same rows."""
        self._manifest, self.verdicts, self._check = manifest, verdicts, check
        self._waiting = Waiting()
        self.tally = ShardCounts()
        self._releases: dict[str, ReleaseRecord] = {}
        self.references: dict[int, str] = {}  # record number -> the race it releases, "" for a verdict
        self._secret: set[int] = set()  # whole rows that hold what looks like a credential
        self._used: set[int] = set()  # verdicts among them that count for a trajectory, settlements that open a source
        self._opened: set[str] = set()  # races of those settlements
        self._promotions: list[Promotion] = []
        self.selection = Selection(manifest.request, {}, manifest.log.start)

    def take_reference(self, scanned: ScannedRow) -> None:
        """A row from outside the range (or a stub's own record) that rows of the range refer to."""
        finding, content = self._sound(scanned)
        if content is None or finding.faults or finding.seq > self._manifest.log.last_seq:
            raise _wrong(finding.seq, "a reference is a whole, signed record up to the end of the range")
        if finding.seq <= max(self.references, default=0):
            raise _wrong(finding.seq, "references stand once each, in order")
        if not isinstance(content.payload, ReleaseRecord | VerdictRecord | SettlementRecord):
            raise _wrong(finding.seq, "only releases, verdicts and settlements that open a source are referred to")
        if isinstance(content.payload, ReleaseRecord) and finding.seq > self._manifest.log.start.after_seq:
            raise _wrong(finding.seq, "a release of the range stands in the log")
        self.references[finding.seq] = content.payload.race_id if isinstance(content.payload, ReleaseRecord) else ""
        self._keep(scanned, content)

    def take(self, scanned: ScannedRow) -> None:
        """The next row of the log."""
        finding, content = self._sound(scanned)
        seq, log = finding.seq, self._manifest.log
        race = race_of(content) if content else ""
        is_released = scanned.withheld != "unreleased" and race not in log.embargoed
        self._waiting.note(self._position, race, is_released=is_released)
        if scanned.withheld:
            self.tally.withheld[scanned.withheld] = self.tally.withheld.get(scanned.withheld, 0) + 1
            if scanned.withheld == "undecodable":
                self.tally.quarantined.append(seq)
            if scanned.withheld == "exported" and seq > log.start.exported_to:
                raise _wrong(seq, "no earlier export reached it")
        if content is not None:
            self._keep(scanned, content)
            kind = str(content.payload.__struct_config__.tag)
            self.tally.records[kind] = self.tally.records.get(kind, 0) + 1
        self._check.take(finding)

    def finish(self) -> None:
        """All rows were taken. Raises ArenaError V2050 when they do not reach the end of the range."""
        log, last_seq = self._manifest.log, self._position().after_seq
        if last_seq != log.last_seq:
            raise ArenaError("V2050", f"the log ends at record {last_seq}, not {log.last_seq}")
        self.selection = Selection(self._manifest.request, releases_of(self._releases), log.start, log.embargoed)

    def judge(self, row: LogRow, trajectory: Trajectory | None) -> None:
        """Hold a row of the log against release rule, request and hygiene."""
        if row.content is None:
            return
        size = sum(memoryview(part).nbytes for part in (row.content, row.body) if part is not None)
        content = decode_content(bytes(row.content))
        if reason := self.selection.reason(row.seq, content):
            raise _wrong(row.seq, f"it is whole and should be withheld: {reason}")
        if not isinstance(content.payload, ReleaseRecord) and size > self._manifest.request.row_bytes_max:
            raise _wrong(row.seq, "it is larger than the request allows")
        if row.seq in self._secret:
            raise _wrong(row.seq, "it holds what looks like a credential")
        if (
            isinstance(content.payload, EvaluationRecord)
            and trajectory
            and self.selection.evaluation_reason(content.payload, trajectory.body, trajectory.verdict)
        ):
            raise _wrong(row.seq, "the request's filters leave it out")
        if race := race_of(content):
            self.tally.races.add(race)

    def count(self, trajectory: Trajectory, *, is_scrubbed: bool) -> None:
        """Count a trajectory, from its row or scrubbed."""
        self.tally.add_trajectory(trajectory, is_scrubbed=is_scrubbed)
        if not is_scrubbed and trajectory.verdict_seq in self.references:
            self._used.add(trajectory.verdict_seq)

    def promotions(self) -> dict[str, Promotion]:
        """By agent, of settlements that may be shown; notes which references the agents' rows use. All was counted."""
        shown = first_promotions(one for one in self._promotions if self.selection.is_released(one.race_id))
        for agent in self.tally.agents:
            if agent in shown and shown[agent].seq in self.references:
                self._used.add(shown[agent].seq)
                self._opened.add(shown[agent].race_id)
        return shown

    def check_references(self) -> None:
        """All rows were judged. Raises ArenaError V2050 when a reference is of no use."""
        for seq, race_id in self.references.items():
            if not (race_id in self.tally.races | self._opened if race_id else seq in self._used):
                raise ArenaError("V2050", f"record {seq}: nothing in the range refers to it")

    def next_cursor(self) -> Cursor:
        """The cursor the rows lead to. Stubs do not tell their race: for those the manifest is believed, as far as it
        names races that are released."""
        cursor, stated = self._waiting.next_cursor(self._position()), self._manifest.cursor.races
        released = self._releases.keys() - set(self._manifest.log.embargoed)
        is_plausible = set(cursor.races) <= set(stated) <= released | set(self._manifest.log.start.races)
        if self._waiting.front is None or not is_plausible:
            return cursor
        return msgspec.structs.replace(cursor, races=tuple(sorted(set(stated))))

    def _position(self) -> LogStart:
        return self._check.position(self._manifest.log.validator)

    def _sound(self, scanned: ScannedRow) -> tuple[RecordFinding, RecordContent | None]:
        """The finding, and the content of a whole row that is as it was signed. Raises ArenaError V2050."""
        if scanned.finding is None:
            raise ArenaError("V2050", scanned.wrong)
        if scanned.wrong or scanned.finding.validator != self._manifest.log.validator:
            raise _wrong(scanned.finding.seq, scanned.wrong or "it is of another log")
        return scanned.finding, None if scanned.content is None else decode_content(scanned.content)

    def _keep(self, scanned: ScannedRow, content: RecordContent) -> None:
        assert scanned.finding is not None and scanned.content is not None  # `_sound` gave the content
        if scanned.is_secret:
            self._secret.add(scanned.finding.seq)
        if isinstance(content.payload, ReleaseRecord):
            self._releases.setdefault(content.payload.race_id, content.payload)
        elif isinstance(content.payload, VerdictRecord):
            self.verdicts.add(scanned.finding.seq, scanned.content, content.payload)
        elif isinstance(content.payload, SettlementRecord) and not scanned.is_secret:
            promotion = promotion_of(scanned.finding.seq, content.payload)
            self._promotions += [promotion] if promotion else []


class Remaking:
    """One pass over the shards that makes the views again, into a folder of its own."""

    def __init__(
        self, folder: Path, made: Path, manifest: Manifest, rows: LogRows, threads: ThreadPoolExecutor
    ) -> None:
        self._folder, self._made, self._manifest, self._rows = folder, made, manifest, rows
        self._threads = threads
        self._named = {file.path: file for file in manifest.files}
        self._files: list[ShardFile] = []

    def run(self, shards: int, progress: Callable[[int], None]) -> Manifest:
        """The manifest this export must have. Raises ArenaError V2050."""
        supplement, rows, done = StatedSupplement(self._folder, self._manifest), self._rows, 0
        for number in range(shards):
            done += self._shard(number, supplement.context, is_last=number == shards - 1)
            progress(done)
        agents: Sequence[AgentRow] = supplement.agents(rows.tally.agents, rows.promotions())
        rows.check_references()
        self._files += write_notes(self._made, self._manifest.log)
        self._add_named(REFERENCES, len(rows.references))
        self._files += supplement.files(self._made, agents)
        made = msgspec.structs.replace(
            self._manifest, cursor=rows.next_cursor(), files=sorted_files(self._files), **rows.tally.stated()
        )
        return msgspec.structs.replace(made, files=(*made.files, write_card(self._made, made, agents)))

    def _shard(self, number: int, context: ViewContext, *, is_last: bool) -> int:
        """Judge one shard's rows and write its views again: how many rows it has."""
        request, scrubbed = self._manifest.request, read_scrubbed(self._folder, number)
        writer = ShardWriter(self._made, request, number, context, self._threads)
        count = trajectories = 0
        left, batch = dict(scrubbed), list[Outgoing]()
        for row in read_rows(self._folder / LOG / shard_name(number)):
            if shard_is_full(trajectories, count, request.rows_per_shard):
                raise _wrong(row.seq, "it stands in a shard that is full")
            trajectory = self._trajectory(row, left.pop(row.seq, None))
            self._rows.judge(row, trajectory)
            count += 1
            if trajectory is not None:
                trajectories += 1
                batch.append(Outgoing(b"", trajectory))
            if len(batch) == PAGE:
                writer.write(batch)
                batch = []
        if left:
            raise ArenaError("V2050", f"{SCRUBBED}/{shard_name(number)}: no row {min(left)} in its log shard")
        if not is_last and not shard_is_full(trajectories, count, request.rows_per_shard):
            raise ArenaError("V2050", f"{LOG}/{shard_name(number)}: the shard ends too early")
        writer.write(batch)
        made = writer.finish()
        self._files += made
        for file in made:  # its hash is known: a whole export need not fit where this one is made
            (self._made / file.path).unlink()
        self._add_named(f"{LOG}/{shard_name(number)}", count)
        if scrubbed:
            self._add_named(f"{SCRUBBED}/{shard_name(number)}", len(scrubbed))
        return count

    def _trajectory(self, row: LogRow, scrubbed: Trajectory | None) -> Trajectory | None:
        """The trajectory of a row, counted: from the row itself, or scrubbed."""
        if scrubbed is None:
            trajectory = row_trajectory(row, self._rows.verdicts.find, self._rows.selection.problem)
            if trajectory is not None:
                self._rows.count(trajectory, is_scrubbed=False)
            return trajectory
        stated = (scrubbed.validator, scrubbed.content_sha256, scrubbed.signature)
        if stated != (row.validator, row.content_sha256, row.signature):
            raise _wrong(row.seq, "its scrubbed trajectory is of another record")
        if row.withheld not in (None, "secret"):
            raise _wrong(row.seq, f"withheld as {row.withheld}, and scrubbed")
        if holds_secret(msgspec.json.encode(scrubbed)):
            raise _wrong(row.seq, "its scrubbed trajectory holds what looks like a credential")
        self._rows.count(scrubbed, is_scrubbed=True)
        return scrubbed

    def _add_named(self, path: str, rows: int) -> None:
        """A file whose bytes were checked already: only its rows were counted again."""
        if path in self._named:
            self._files.append(msgspec.structs.replace(self._named[path], rows=rows))


def _wrong(seq: int, detail: str) -> ArenaError:
    return ArenaError("V2050", f"record {seq}: {detail}")
