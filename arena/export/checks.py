"""What each log row of an export must be, one after another: form, signature, rule and count. Memory as in `reading`.

Promise: a row is held against everything that can be known of it offline. Whatever is wrong with a row's form raises
ArenaError V2050 with its number; what is wrong with the record itself is in the finding.
"""

from __future__ import annotations

import msgspec
import orjson

from arena.chain.port import Verifier
from arena.export.cursor import Waiting, Walk
from arena.export.hygiene import holds_secret
from arena.export.journal import Tally
from arena.export.model import Cursor, LogRow, Manifest, Trajectory
from arena.export.reading import VerdictFile
from arena.export.selection import Selection, race_of, releases_of
from arena.records.body import decode_content
from arena.records.inspection import Entry, Finding, inspect
from arena.records.model import EvaluationRecord, RecordContent, ReleaseRecord, VerdictRecord
from problems.errors import ArenaError


class RowCheck:
    """The state over the rows of one export: first every row is taken, then each whole one is judged."""

    def __init__(self, manifest: Manifest, verify_signature: Verifier, verdicts: VerdictFile) -> None:
        self._manifest, self._verify_signature = manifest, verify_signature
        self.verdicts = verdicts
        self.walk = Walk(manifest.log.start)
        self.waiting = Waiting()
        self.tally = Tally()
        self._releases: dict[str, ReleaseRecord] = {}
        self.references: dict[int, str] = {}  # record number -> the race it releases, "" for a verdict
        self._used: set[int] = set()  # verdicts among them that count for a trajectory
        self.selection = Selection(manifest.request, {}, manifest.log.start)

    def take_reference(self, row: LogRow) -> None:
        """A row from outside the range (or a stub's own record) that rows of the range refer to."""
        finding, content = self._inspected(row)
        if content is None or finding.faults or finding.seq > self._manifest.log.last_seq:
            raise _wrong(row, "a reference is a whole, signed record up to the end of the range")
        if row.seq <= max(self.references, default=0):
            raise _wrong(row, "references stand once each, in order")
        if not isinstance(content.payload, ReleaseRecord | VerdictRecord):
            raise _wrong(row, "only releases and verdicts are referred to")
        if isinstance(content.payload, ReleaseRecord) and row.seq > self._manifest.log.start.after_seq:
            raise _wrong(row, "a release of the range stands in the log")
        self.references[row.seq] = content.payload.race_id if isinstance(content.payload, ReleaseRecord) else ""
        self._keep(row, content)

    def take(self, row: LogRow) -> Finding:
        """The next row of the log; the finding is for `LogCheck`."""
        if row.validator != self._manifest.log.validator:
            raise _wrong(row, "it is of another log")
        finding, content = self._inspected(row)
        race = race_of(content) if content else ""
        self.waiting.note(self.walk, race, is_released=row.withheld != "unreleased")
        if row.withheld:
            self.tally.withheld[row.withheld] = self.tally.withheld.get(row.withheld, 0) + 1
            if row.withheld == "undecodable":
                self.tally.quarantined.append(row.seq)
            if row.withheld == "exported" and row.seq > self._manifest.log.start.exported_to:
                raise _wrong(row, "no earlier export reached it")
        if content is not None:
            self._keep(row, content)
            kind = str(content.payload.__struct_config__.tag)
            self.tally.records[kind] = self.tally.records.get(kind, 0) + 1
        if finding.is_envelope and not finding.faults:
            self.walk.take(row.seq, row.prev, row.content_sha256)
        return finding

    def finish(self, last_seq: int) -> None:
        """All rows were taken. Raises ArenaError V2050 when they do not reach the end of the range."""
        if last_seq != self._manifest.log.last_seq:
            raise ArenaError("V2050", f"the log ends at record {last_seq}, not {self._manifest.log.last_seq}")
        self.selection = Selection(self._manifest.request, releases_of(self._releases), self._manifest.log.start)

    def judge(self, row: LogRow, trajectory: Trajectory | None) -> None:
        """Hold a row of the log against release rule, request and hygiene, and count what it adds."""
        if row.content is None:
            return
        raw, body = bytes(row.content), bytes(row.body) if row.body is not None else b""
        content = decode_content(raw)
        if reason := self.selection.reason(row.seq, content):
            raise _wrong(row, f"it is whole and should be withheld: {reason}")
        is_release = isinstance(content.payload, ReleaseRecord)
        if not is_release and len(raw) + len(body) > self._manifest.request.row_bytes_max:
            raise _wrong(row, "it is larger than the request allows")
        if not is_release and (holds_secret(raw) or holds_secret(body)):
            raise _wrong(row, "it holds what looks like a credential")
        if (
            isinstance(content.payload, EvaluationRecord)
            and trajectory
            and self.selection.evaluation_reason(content.payload, trajectory.body, trajectory.verdict)
        ):
            raise _wrong(row, "the request's filters leave it out")
        if race := race_of(content):
            self.tally.races.add(race)

    def count(self, trajectory: Trajectory, *, is_scrubbed: bool) -> None:
        """Count a trajectory, from its row or scrubbed."""
        tally, context = self.tally, trajectory.evaluation.context
        tally.trajectories += 1
        tally.scrubbed += is_scrubbed
        tally.policies.add(trajectory.evaluation.conditions.policy_sha256)
        if context.partition_sha256:
            tally.partitions.add(context.partition_sha256)
        if race := race_of(trajectory.content):
            tally.races.add(race)
        if not is_scrubbed and trajectory.verdict_seq in self.references:
            self._used.add(trajectory.verdict_seq)

    def check_references(self) -> None:
        """All rows were judged. Raises ArenaError V2050 when a reference is missing that exists, or is of no use."""
        for seq, race_id in self.references.items():
            if not (race_id in self.tally.races if race_id else seq in self._used):
                raise ArenaError("V2050", f"record {seq}: nothing in the range refers to it")

    def next_cursor(self) -> Cursor:
        """The cursor the rows lead to. Stubs do not tell their race: for those the manifest is believed, as far as it
        names races that are released."""
        cursor, stated = self.waiting.next_cursor(self.walk.cursor()), self._manifest.cursor.races
        is_plausible = set(cursor.races) <= set(stated) <= self._releases.keys() | set(self._manifest.log.start.races)
        if self.waiting.front is None or not is_plausible:
            return cursor
        return msgspec.structs.replace(cursor, races=tuple(sorted(set(stated))))

    def _inspected(self, row: LogRow) -> tuple[Finding, RecordContent | None]:
        raw = None if row.content is None else bytes(row.content)
        body = None if row.body is None else bytes(row.body)
        if (raw is None) == (row.withheld is None) or (raw is None and body is not None):
            raise _wrong(row, "a row is whole, or a stub with its reason")
        entry = Entry(row.validator, row.seq, row.prev, row.content_sha256, row.signature, raw, body)
        finding = inspect(entry, self._verify_signature)
        if raw is None or finding.faults:
            return finding, None
        content = decode_content(raw)
        if finding.facts is None or finding.unread:
            raise _wrong(row, "it is whole and of a version this release does not read")
        if (body is not None) != isinstance(content.payload, EvaluationRecord):
            raise _wrong(row, "an evaluation, and nothing else, has a body")
        if not all(_is_canonical(part) for part in (raw, body) if part is not None):
            raise _wrong(row, "its bytes are not canonical")
        return finding, content

    def _keep(self, row: LogRow, content: RecordContent) -> None:
        if isinstance(content.payload, ReleaseRecord):
            self._releases.setdefault(content.payload.race_id, content.payload)
        elif isinstance(content.payload, VerdictRecord) and row.content is not None:
            self.verdicts.add(row.seq, bytes(row.content), content.payload)


def _is_canonical(content: bytes) -> bool:
    return orjson.dumps(orjson.loads(content), option=orjson.OPT_SORT_KEYS) == content


def _wrong(row: LogRow, detail: str) -> ArenaError:
    return ArenaError("V2050", f"record {row.seq}: {detail}")
