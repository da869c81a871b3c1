"""What each log row of an export must be, one after another: form, signature, rule and count. Memory as in `reading`.

A row is held against everything that can be known of it offline. Whatever is wrong with a row's form raises
ArenaError V2050 with its number; what is wrong with the record itself is in the finding.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from arena.export.agents import Promotion, promotion_of
from arena.export.model import Cursor, LogRow, Manifest, Trajectory
from arena.export.reading import VerdictFile
from arena.export.selection import Selection, race_of, releases_of
from arena.export.verify.line_scan import ScannedRow
from arena.export.writing.cursor import LogWalk, Waiting
from arena.export.writing.journal import ShardCounts
from arena.records.body import decode_content
from arena.records.model import EvaluationRecord, RecordContent, ReleaseRecord, SettlementRecord, VerdictRecord
from arena.records.verify.inspection import RecordFinding
from foundation.errors import ArenaError


class LogRowCheck:
    """The state over the rows of one export: first every row is taken, then each whole one is judged."""

    def __init__(self, manifest: Manifest, verdicts: VerdictFile) -> None:
        self._manifest, self.verdicts = manifest, verdicts
        self.walk = LogWalk(manifest.log.start)
        self.waiting = Waiting()
        self.tally = ShardCounts()
        self._releases: dict[str, ReleaseRecord] = {}
        self.references: dict[int, str] = {}  # record number -> the race it releases, "" for a verdict
        self._secret: set[int] = set()  # whole rows that hold what looks like a credential
        self._used: set[int] = set()  # verdicts among them that count for a trajectory, settlements that open a source
        self._opened: set[str] = set()  # races of those settlements
        self.promotions: list[Promotion] = []
        self.selection = Selection(manifest.request, {}, manifest.log.start)

    def take_reference(self, looked: ScannedRow) -> None:
        """A row from outside the range (or a stub's own record) that rows of the range refer to."""
        finding, content = self._sound(looked)
        if content is None or finding.faults or finding.seq > self._manifest.log.last_seq:
            raise _wrong(finding.seq, "a reference is a whole, signed record up to the end of the range")
        if finding.validator != self._manifest.log.validator:
            raise _wrong(finding.seq, "it is of another log")
        if finding.seq <= max(self.references, default=0):
            raise _wrong(finding.seq, "references stand once each, in order")
        opens = isinstance(content.payload, SettlementRecord) and self._manifest.version > 1
        if not opens and not isinstance(content.payload, ReleaseRecord | VerdictRecord):
            raise _wrong(finding.seq, "only releases, verdicts and settlements that open a source are referred to")
        if isinstance(content.payload, ReleaseRecord) and finding.seq > self._manifest.log.start.after_seq:
            raise _wrong(finding.seq, "a release of the range stands in the log")
        self.references[finding.seq] = content.payload.race_id if isinstance(content.payload, ReleaseRecord) else ""
        self._keep(looked, content)

    def take(self, looked: ScannedRow) -> RecordFinding:
        """The next row of the log; the finding is for `LogCheck`."""
        finding, content = self._sound(looked)
        seq = finding.seq
        if finding.validator != self._manifest.log.validator:
            raise _wrong(seq, "it is of another log")
        race = race_of(content) if content else ""
        is_released = looked.withheld != "unreleased" and race not in self._manifest.log.sealed_races
        self.waiting.note(self.walk, race, is_released=is_released)
        if looked.withheld:
            self.tally.withheld[looked.withheld] = self.tally.withheld.get(looked.withheld, 0) + 1
            if looked.withheld == "undecodable":
                self.tally.quarantined.append(seq)
            if looked.withheld == "exported" and seq > self._manifest.log.start.exported_to:
                raise _wrong(seq, "no earlier export reached it")
        if content is not None:
            self._keep(looked, content)
            kind = str(content.payload.__struct_config__.tag)
            self.tally.records[kind] = self.tally.records.get(kind, 0) + 1
        if finding.is_envelope and self.walk.is_followed_by(seq, finding.prev):  # else it is a defect, and named as one
            self.walk.take(seq, finding.prev, finding.content_sha256)
        return finding

    def finish(self, last_seq: int) -> None:
        """All rows were taken. Raises ArenaError V2050 when they do not reach the end of the range."""
        if last_seq != self._manifest.log.last_seq:
            raise ArenaError("V2050", f"the log ends at record {last_seq}, not {self._manifest.log.last_seq}")
        log = self._manifest.log
        self.selection = Selection(self._manifest.request, releases_of(self._releases), log.start, log.sealed_races)

    def judge(self, row: LogRow, trajectory: Trajectory | None) -> None:
        """Hold a row of the log against release rule, request and hygiene, and count what it adds."""
        if row.content is None:
            return
        size = sum(memoryview(part).nbytes for part in (row.content, row.body) if part is not None)
        content = decode_content(bytes(row.content))
        if reason := self.selection.reason(row.seq, content):
            raise _wrong(row.seq, f"it is whole and should be withheld: {reason}")
        is_release = isinstance(content.payload, ReleaseRecord)
        if not is_release and size > self._manifest.request.row_bytes_max:
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
        tally, context = self.tally, trajectory.evaluation.context
        tally.trajectories += 1
        tally.scrubbed += is_scrubbed
        tally.add_agent(trajectory.evaluation.subject)
        tally.policies.add(trajectory.evaluation.conditions.policy_sha256)
        if context.partition_sha256:
            tally.partitions.add(context.partition_sha256)
        if race := race_of(trajectory.content):
            tally.races.add(race)
        if not is_scrubbed and trajectory.verdict_seq in self.references:
            self._used.add(trajectory.verdict_seq)

    def use_promotions(self, promotions: Iterable[Promotion]) -> None:
        """Note the settlements that rows of agents refer to."""
        for one in promotions:
            if one.seq in self.references:
                self._used.add(one.seq)
                self._opened.add(one.race_id)

    def check_references(self) -> None:
        """All rows were judged. Raises ArenaError V2050 when a reference is missing that exists, or is of no use."""
        for seq, race_id in self.references.items():
            if not (race_id in self.tally.races | self._opened if race_id else seq in self._used):
                raise ArenaError("V2050", f"record {seq}: nothing in the range refers to it")

    def next_cursor(self) -> Cursor:
        """The cursor the rows lead to. Stubs do not tell their race: for those the manifest is believed, as far as it
        names races that are released."""
        cursor, stated = self.waiting.next_cursor(self.walk.cursor()), self._manifest.cursor.races
        told = self._releases.keys() - self._manifest.log.sealed_races
        is_plausible = set(cursor.races) <= set(stated) <= told | set(self._manifest.log.start.races)
        if self.waiting.front is None or not is_plausible:
            return cursor
        return msgspec.structs.replace(cursor, races=tuple(sorted(set(stated))))

    def _sound(self, looked: ScannedRow) -> tuple[RecordFinding, RecordContent | None]:
        """The finding, and the content of a whole row that is as it was signed. Raises ArenaError V2050."""
        if looked.finding is None:
            raise ArenaError("V2050", looked.wrong)
        if looked.wrong:
            raise _wrong(looked.finding.seq, looked.wrong)
        return looked.finding, None if looked.content is None else decode_content(looked.content)

    def _keep(self, looked: ScannedRow, content: RecordContent) -> None:
        assert looked.finding is not None and looked.content is not None  # `_sound` gave the content
        if looked.is_secret:
            self._secret.add(looked.finding.seq)
        if isinstance(content.payload, ReleaseRecord):
            self._releases.setdefault(content.payload.race_id, content.payload)
        elif isinstance(content.payload, VerdictRecord):
            self.verdicts.add(looked.finding.seq, looked.content, content.payload)
        elif isinstance(content.payload, SettlementRecord) and not looked.is_secret:
            promotion = promotion_of(looked.finding.seq, content.payload)
            self.promotions += [promotion] if promotion else []


def _wrong(seq: int, detail: str) -> ArenaError:
    return ArenaError("V2050", f"record {seq}: {detail}")
