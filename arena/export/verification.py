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
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec

from arena.chain.port import Verifier
from arena.export.agents import Promotion, StatedSupplement, first_promotions, promotion_of
from arena.export.assembly import Assembled, kind_of
from arena.export.exporter import PAGE, Writing, make_manifest, require_views
from arena.export.files import (
    CHECKSUM,
    LOG,
    MANIFEST,
    REFERENCES,
    SIGNATURE,
    file_hash,
    read_lines,
    read_manifest,
    read_row,
    read_rows,
    read_scrubbed,
    row_trajectory,
    shard_name,
    signer_of,
)
from arena.export.journal import Journal
from arena.export.model import Cursor, LogRow, Manifest, ShardFile, Trajectory, Withheld
from arena.export.selection import Selection, check_request, race_of, releases_of
from arena.records.body import decode_body, decode_content, is_canonical
from arena.records.inspection import RecordFinding, inspect
from arena.records.log import Checkpoint, read_checkpoint
from arena.records.model import (
    EvaluationRecord,
    RecordContent,
    ReleaseRecord,
    SettlementRecord,
    VerdictRecord,
    entry_of,
)
from arena.records.verification import LogCheck, VerifyReport
from arena.secrets import holds_secret
from foundation.codes.names import VERIFIER_DIED
from foundation.errors import ArenaError
from foundation.executors.port import HERE, Executor
from foundation.garbage import rare_collections
from foundation.progress import PhaseProgress
from judge.verdict import UnscoredVerdict, Verdict

BATCH_LINES, BATCH_BYTES = 128, 8 << 20

_ENCODER = msgspec.msgpack.Encoder()
_LINES = msgspec.msgpack.Decoder(list[bytes])
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
    wrong = _wrong_files(folder, manifest)
    if wrong:
        return msgspec.structs.replace(report, wrong=tuple(wrong[:WRONG_KEPT]))
    try:
        points = _read_range(manifest, verify_signature)
        rows = _Rows(folder, manifest, LogCheck([*points, *checkpoints], starts=[log.start]), progress)
        with rare_collections():
            found, wrong = rows.verify(look_all(rows.lines(), verify_signature, executor))
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
    """The rows of one export: gone over once as records of a log, then once more against rule and request.

    On the second pass the views are made again by the exporter's own code, and the manifest is put together anew.
    Nothing is read but `log/`, `scrubbed/`, the references and what the export states beside its log. What is wrong
    raises ArenaError V2050 with the record's number.
    """

    def __init__(self, folder: Path, manifest: Manifest, check: LogCheck, progress: PhaseProgress | None) -> None:
        self._folder, self._manifest, self._check, self._progress = folder, manifest, check, progress
        self._named = {file.path: file for file in manifest.files}
        self._shards = _shards(manifest)
        self._reading: deque[tuple[str, int]] = deque()  # places of the lines that are looked at, in order
        self._verdicts: dict[str, tuple[int, bytes]] = {}  # the first on each body, by its hash
        self._releases: dict[str, ReleaseRecord] = {}
        self._promotions: list[Promotion] = []
        self._references: dict[int, str] = {}  # record number -> the race it releases, "" for another record
        self._secret: set[int] = set()  # whole rows that hold what looks like a credential
        self._used: set[int] = set()  # references that a row needs
        self._selection = Selection(manifest.request, {}, manifest.log.start)

    def lines(self) -> Iterator[bytes]:
        """The lines of references and log, in order."""
        shards = [f"{LOG}/{shard_name(number)}" for number in range(self._shards)]
        for path in [REFERENCES, *shards] if REFERENCES in self._named else shards:
            for number, line in enumerate(read_lines(self._folder / path), 1):
                self._reading.append((path, number))
                yield line

    def verify(self, scanned: Iterable[ScannedRow]) -> tuple[VerifyReport, list[Wrong]]:
        """First chain, tree, signatures and references; then rules, trajectories and views. Raises ArenaError V2050."""
        for row in scanned:
            path, number = self._reading.popleft()
            if row.finding is None:
                raise ArenaError("V2050", f"{path}, line {number}: {row.wrong}")
            if path == REFERENCES:
                self._take_reference(row, row.finding)
            else:
                self._take(row, row.finding)
        found, log = self._check.report(), self._manifest.log
        if found.defects:
            return found, [
                Wrong(place=f"record {defect.seq}", detail=f"{defect.rule}: {defect.detail}")
                for defect in found.defects
            ]
        if (last_seq := self._check.position(log.validator).after_seq) != log.last_seq:
            raise ArenaError("V2050", f"the log ends at record {last_seq}, not {log.last_seq}")
        self._selection = Selection(self._manifest.request, releases_of(self._releases), log.start, log.embargoed)
        with tempfile.TemporaryDirectory(prefix="arena-export-") as name, ThreadPoolExecutor(2) as threads:
            return found, _compare(self._manifest, self._remade(Path(name), threads))

    # -- the first pass
    def _take_reference(self, scanned: ScannedRow, finding: RecordFinding) -> None:
        """A row from outside the range (or a stub's own record) that rows of the range refer to."""
        content, log = self._sound(scanned, finding), self._manifest.log
        if content is None or finding.faults or finding.seq > log.last_seq:
            raise _wrong(finding.seq, "a reference is a whole, signed record up to the end of the range")
        if finding.seq <= max(self._references, default=0):
            raise _wrong(finding.seq, "references stand once each, in order")
        if not isinstance(content.payload, ReleaseRecord | VerdictRecord | SettlementRecord):
            raise _wrong(finding.seq, "only releases, verdicts and settlements that open a source are referred to")
        if isinstance(content.payload, ReleaseRecord) and finding.seq > log.start.after_seq:
            raise _wrong(finding.seq, "a release of the range stands in the log")
        self._references[finding.seq] = content.payload.race_id if isinstance(content.payload, ReleaseRecord) else ""

    def _take(self, scanned: ScannedRow, finding: RecordFinding) -> None:
        """The next row of the log."""
        self._sound(scanned, finding)
        if scanned.withheld == "exported" and finding.seq > self._manifest.log.start.exported_to:
            raise _wrong(finding.seq, "no earlier export reached it")
        self._check.take(finding)
        if self._check.records % PAGE == 0:
            self._tell(self._check.records)

    def _sound(self, scanned: ScannedRow, finding: RecordFinding) -> RecordContent | None:
        """The content of a whole row, as it was signed; what others refer to is kept. Raises ArenaError V2050."""
        if scanned.wrong or finding.validator != self._manifest.log.validator:
            raise _wrong(finding.seq, scanned.wrong or "it is of another log")
        if scanned.content is None:
            return None
        content = decode_content(scanned.content)
        payload = content.payload
        if scanned.is_secret:
            self._secret.add(finding.seq)
        if isinstance(payload, ReleaseRecord):
            self._releases.setdefault(payload.race_id, payload)
        elif isinstance(payload, VerdictRecord):
            first = self._verdicts.get(payload.verdict.body_sha256)
            if first is None or finding.seq < first[0]:
                self._verdicts[payload.verdict.body_sha256] = finding.seq, scanned.content
        elif isinstance(payload, SettlementRecord) and not scanned.is_secret:
            promotion = promotion_of(finding.seq, payload)
            self._promotions += [promotion] if promotion else []
        return content

    # -- the second pass
    def _remade(self, made: Path, threads: ThreadPoolExecutor) -> Manifest:
        """The manifest this export must have, its views made again below `made`. Raises ArenaError V2050."""
        manifest, stated = self._manifest, StatedSupplement(self._folder, self._manifest)
        journal = Journal(
            request=manifest.request, log=manifest.log, here=manifest.log.start, exported_ms=manifest.exported_ms
        )

        def drop(_: Journal, files: list[ShardFile]) -> None:
            for file in files:  # its hash is known: a whole export need not fit where this one is made
                (made / file.path).unlink()

        writing, beside = Writing(made, journal, stated.context, threads, drop), list[ShardFile]()
        for number in range(self._shards):
            count = 0
            for rows in self._pages(number):
                writing.take(rows)
                count += len(rows)
            if (journal.shards, writing.rows) != (number, count):
                raise ArenaError("V2050", f"{LOG}/{shard_name(number)}: the shard ends too early, or too late")
            beside += self._counted(f"{LOG}/{shard_name(number)}", count)
            self._tell(self._check.records + writing.walk.seq - manifest.log.start.after_seq)
        cursor = self._next_cursor(writing.finish())
        shown = first_promotions(one for one in self._promotions if self._selection.is_released(one.race_id))
        promoted = [shown[agent] for agent in journal.tally.agents if agent in shown]
        opened = {one.race_id for one in promoted if one.seq in self._references}
        self._used.update(one.seq for one in promoted)
        for seq, race_id in self._references.items():
            if not (race_id in journal.tally.races | opened if race_id else seq in self._used):
                raise ArenaError("V2050", f"record {seq}: nothing in the range refers to it")
        agents = stated.agents(journal.tally.agents, shown)
        beside += [*self._counted(REFERENCES, len(self._references)), *stated.files(made, agents)]
        return make_manifest(made, journal, beside, cursor, manifest.software, agents)

    def _pages(self, number: int) -> Iterator[list[Assembled]]:
        """The rows of a shard as the exporter wrote them, some at a time."""
        scrubbed, page = read_scrubbed(self._folder, number), list[Assembled]()
        for row in read_rows(self._folder / LOG / shard_name(number)):
            page.append(self._judged(row, scrubbed.get(row.seq)))
            if len(page) == PAGE:
                yield page
                page = []
        yield page

    def _judged(self, row: LogRow, scrubbed: Trajectory | None) -> Assembled:
        """A row of the log that release rule, request and hygiene let stand. Raises ArenaError V2050."""
        content = None if row.content is None else decode_content(bytes(row.content))
        trajectory = scrubbed or row_trajectory(row, self._verdict, self._selection.problem)
        if scrubbed:
            stated = (scrubbed.validator, scrubbed.content_sha256, scrubbed.signature)
            if stated != (row.validator, row.content_sha256, row.signature):
                raise _wrong(row.seq, "its scrubbed trajectory is of another record")
            if row.withheld not in (None, "secret"):
                raise _wrong(row.seq, f"withheld as {row.withheld}, and scrubbed")
            if holds_secret(msgspec.json.encode(scrubbed)):
                raise _wrong(row.seq, "its scrubbed trajectory holds what looks like a credential")
        elif trajectory:
            self._used.add(trajectory.verdict_seq)
        if content is not None:
            self._judge(row, content, trajectory)
        return Assembled(
            seq=row.seq,
            race_id=race_of(content) if content else "",
            prev=row.prev,
            content_sha256=row.content_sha256,
            line=b"",
            kind=kind_of(content) if content else "",
            withheld=row.withheld,
            trajectory=trajectory,
            is_scrubbed=scrubbed is not None,
        )

    def _judge(self, row: LogRow, content: RecordContent, trajectory: Trajectory | None) -> None:
        size = sum(memoryview(part).nbytes for part in (row.content, row.body) if part is not None)
        if reason := self._selection.reason(row.seq, content):
            raise _wrong(row.seq, f"it is whole and should be withheld: {reason}")
        if not isinstance(content.payload, ReleaseRecord) and size > self._manifest.request.row_bytes_max:
            raise _wrong(row.seq, "it is larger than the request allows")
        if row.seq in self._secret:
            raise _wrong(row.seq, "it holds what looks like a credential")
        if (
            isinstance(content.payload, EvaluationRecord)
            and trajectory
            and self._selection.evaluation_reason(content.payload, trajectory.body, trajectory.verdict)
        ):
            raise _wrong(row.seq, "the request's filters leave it out")

    def _verdict(self, body_sha256: str) -> tuple[int, Verdict | UnscoredVerdict | None]:
        """Number and value of the first verdict on a body; 0 and None where there is none."""
        seq, content = self._verdicts.get(body_sha256, (0, b""))
        payload = decode_content(content).payload if content else None
        return seq, payload.verdict if isinstance(payload, VerdictRecord) else None

    def _next_cursor(self, cursor: Cursor) -> Cursor:
        """The cursor the rows lead to. Stubs do not tell their race: for those the manifest is believed, as far as it
        names races that are released."""
        log, stated = self._manifest.log, self._manifest.cursor.races
        released = self._releases.keys() - set(log.embargoed)
        is_plausible = set(cursor.races) <= set(stated) <= released | set(log.start.races)
        is_waiting = cursor.after_seq != log.last_seq
        if not is_waiting or not is_plausible:
            return cursor
        return msgspec.structs.replace(cursor, races=tuple(sorted(set(stated))))

    def _counted(self, path: str, rows: int) -> list[ShardFile]:
        """A file whose bytes were checked already: only its rows were counted again."""
        return [msgspec.structs.replace(self._named[path], rows=rows)] if path in self._named else []

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


def _wrong(seq: int, detail: str) -> ArenaError:
    return ArenaError("V2050", f"record {seq}: {detail}")


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
    finding = inspect(entry_of(row, raw, body), verify_signature)
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
