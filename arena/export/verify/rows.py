"""The rows of an export: gone over once as records of a log, then once more against rule and request.

On the second pass trajectories are read as the exporter handed them to the views, the views are made again by the
exporter's own code, and the manifest is put together anew from what was counted. Nothing is read but `log/`,
`scrubbed/`, the references and what the export states beside its log. What is wrong raises ArenaError V2050 with the
record's number.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from pathlib import Path

import msgspec

from arena.export.agents import AgentRow, Promotion, first_promotions, promotion_of
from arena.export.model import Cursor, LogRow, Manifest, ShardFile, Trajectory
from arena.export.reading import VerdictFile, read_rows, read_scrubbed, row_trajectory
from arena.export.redaction import holds_secret
from arena.export.row import ViewContext
from arena.export.selection import Selection, race_of, releases_of
from arena.export.verify.line_scan import ScannedRow
from arena.export.writing.card import write_card
from arena.export.writing.exporter import PAGE, sorted_files, write_notes
from arena.export.writing.journal import ShardCounts, Waiting
from arena.export.writing.shards import LOG, REFERENCES, SCRUBBED, Outgoing, ShardWriter, shard_is_full, shard_name
from arena.export.writing.supplement import StatedSupplement
from arena.records.body import decode_content
from arena.records.inspection import RecordFinding
from arena.records.log import LogStart
from arena.records.model import EvaluationRecord, RecordContent, ReleaseRecord, SettlementRecord, VerdictRecord
from arena.records.verification import LogCheck
from foundation.errors import ArenaError


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

    def __init__(self, folder: Path, made: Path, manifest: Manifest, rows: LogRows, threads: Executor) -> None:
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
