"""The running check over logs: places, chain, tree, checkpoints, and what records say about each other.

It takes findings (`arena.records.verify.inspection`) in the order records stand and trusts nothing else. It
can begin at the start of a log or at a point somebody kept (`LogStart`: an export's cursor), and takes whole records,
stubs and bare leaves. A record may refer to one before that point or in a stub: then its absence is no defect.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from arena.records.log.checkpoint import Checkpoint, checkpoint_of
from arena.records.log.hash_chain import first_head, record_hash, signing_message
from arena.records.log.merkle import MerkleFrontier
from arena.records.model import Head
from arena.records.verify.inspection import EvaluationFacts, RecordFinding
from arena.records.verify.references import References
from arena.records.verify.report import DEFECTS_KEPT, AnchorFacts, Defect, LogFacts, Rule, VerifyReport
from arena.store.port import LogLeaf
from foundation.errors import ArenaError


class LogStart(msgspec.Struct, frozen=True, kw_only=True):
    """A point of one log: after record `after_seq`, with the hash of that record and the tree's peaks, hex, largest
    first. The beginning of a log is `LogStart(validator=...)`."""

    validator: str
    after_seq: int = 0
    head: str = ""
    peaks: tuple[str, ...] = ()


class _Log:
    """Where one log stands."""

    def __init__(self, start: LogStart) -> None:
        try:
            self.tree = MerkleFrontier(start.after_seq, [bytes.fromhex(peak) for peak in start.peaks])
            is_hash = len(bytes.fromhex(start.head)) == len(bytes.fromhex(first_head(start.validator).hash))
        except ValueError as error:
            raise ArenaError("V2051", f"the start of {start.validator} holds something else than hex") from error
        if start.after_seq and not is_hash:
            raise ArenaError("V2051", f"the start of {start.validator} names no record hash")
        self.head = Head(start.after_seq, start.head) if start.after_seq else first_head(start.validator)
        self.is_whole = start.after_seq == 0  # every record so far was given whole, and could be read


class LogCheck:
    """The running state over any number of logs. Records of one log must come in the order they stand.

    `checkpoints`: signed states the logs must contain, their signatures checked (`read_checkpoint`). `starts`: where
    logs begin that are not given from their first record. Raises ArenaError V2051 for a start that is malformed and for
    a checkpoint before its log's start, which could not be checked.
    """

    def __init__(self, checkpoints: Iterable[Checkpoint] = (), *, starts: Iterable[LogStart] = ()) -> None:
        self.records = 0
        self._logs = {start.validator: _Log(start) for start in starts}
        self._points: dict[tuple[str, int], set[Checkpoint]] = {}
        self._point_count = 0
        self._references = References()
        self._kinds: dict[str, int] = {}
        self._unread: dict[str, int] = {}
        self._bodies = self._stubs = self._leaves = 0
        self._anchors: list[AnchorFacts] = []
        self._defects: list[Defect] = []
        self._defect_count = 0
        for point in checkpoints:
            self.expect_checkpoint(point)

    def head(self, validator: str) -> Head:
        """Where a log stands after what was taken."""
        log = self._logs.get(validator)
        return log.head if log else first_head(validator)

    def position(self, validator: str) -> LogStart:
        """The same, as the point where another check can begin."""
        log = self._log(validator)
        peaks = tuple(peak.hex() for peak in log.tree.peaks)
        return LogStart(validator=validator, after_seq=log.head.seq, head=log.head.hash, peaks=peaks)

    def expect_checkpoint(self, point: Checkpoint) -> None:
        """Name a signed state the log must contain. Raises ArenaError V2051 when the log is beyond it already."""
        log = self._log(point.validator)
        self._point_count += 1
        if point.size < log.tree.size:
            raise ArenaError("V2051", f"a checkpoint of {point.size} records, the check begins after {log.tree.size}")
        self._points.setdefault((point.validator, point.size), set()).add(point)
        self._check_points(point.validator, log)

    def take(self, finding: RecordFinding) -> None:
        """Take the next record, whole or as a stub."""
        self.records += 1
        for rule, detail in finding.faults:
            self.report_defect(finding.validator, finding.seq, rule, detail)
        log = self._log(finding.validator)
        if not finding.is_envelope:
            log.is_whole = False
            return
        self._place(log, finding.validator, finding.seq, finding.prev, finding.content_sha256)
        if finding.is_stub:
            self._stubs += 1
        if finding.unread:
            self._unread[finding.unread] = self._unread.get(finding.unread, 0) + 1
        if finding.facts is None or any(rule == "content" for rule, _ in finding.faults):
            log.is_whole = False  # it may once have been, or may be, whatever another record refers to
        if finding.facts is not None:
            kind = str(finding.facts.__struct_config__.tag)
            self._kinds[kind] = self._kinds.get(kind, 0) + 1
            self._bodies += isinstance(finding.facts, EvaluationFacts)
            if wrong := self._references.take(finding.validator, finding.seq, finding.facts):
                self.report_defect(finding.validator, finding.seq, *wrong)

    def take_leaves(self, validator: str, leaves: Sequence[LogLeaf]) -> None:
        """Take the next records of a log as leaves: chain and tree are checked, and nothing else of them."""
        log = self._log(validator)
        log.is_whole = False
        self.records += len(leaves)
        self._leaves += len(leaves)
        for leaf in leaves:
            self._place(log, validator, leaf.seq, leaf.prev, leaf.content_sha256)

    def take_anchor(self, anchor: AnchorFacts, wrong: str = "") -> None:
        """Note a checkpoint's anchor, and what is wrong with it."""
        self._anchors.append(anchor)
        if wrong:
            self.report_defect(anchor.validator, anchor.size, "anchor", wrong)

    def expect_head(self, validator: str, head: Head) -> None:
        """Say where a log must end."""
        found = self.head(validator)
        if head != found:
            detail = f"the head says {head.seq} records, the log ends at {found.seq}"
            self.report_defect(validator, found.seq + 1, "tail", detail)

    def report_defect(self, validator: str, seq: int, rule: Rule, detail: str) -> None:
        """Add a defect that was found elsewhere (a stored checkpoint that is not signed)."""
        self._defect_count += 1
        if len(self._defects) < DEFECTS_KEPT:
            self._defects.append(Defect(validator=validator, seq=seq, rule=rule, detail=detail))

    def report(self) -> VerifyReport:
        """Check what records say about each other, and sum up. Call once, at the end."""
        whole = {validator for validator, log in self._logs.items() if log.is_whole}
        for validator, seq, rule, detail in self._references.defects(whole):
            self.report_defect(validator, seq, rule, detail)
        for (validator, size), points in self._points.items():
            for _ in points:
                detail = f"the checkpoint says {size} records, the log has {self.head(validator).seq}"
                self.report_defect(validator, self.head(validator).seq + 1, "checkpoint", detail)
        return VerifyReport(
            records=self.records,
            kinds=dict(sorted(self._kinds.items())),
            bodies=self._bodies,
            logs=tuple(
                LogFacts(head=log.head, checkpoint=checkpoint_of(validator, log.tree))
                for validator, log in sorted(self._logs.items())
                if log.tree.size
            ),
            defects=tuple(sorted(self._defects, key=lambda defect: (defect.validator, defect.seq))),
            defect_count=self._defect_count,
            unread=dict(sorted(self._unread.items())),
            stubs=self._stubs,
            leaves=self._leaves,
            checkpoints=self._point_count,
            anchors=tuple(self._anchors),
        )

    def _log(self, validator: str) -> _Log:
        if validator not in self._logs:
            self._logs[validator] = _Log(LogStart(validator=validator))
        return self._logs[validator]

    def _place(self, log: _Log, validator: str, seq: int, prev: str, content_sha256: str) -> None:
        """Put a record behind the ones before it: number, link, tree, and the checkpoints of that size."""
        if seq != log.head.seq + 1:
            self.report_defect(validator, seq, "sequence", f"record {log.head.seq + 1} was expected here")
        elif prev != log.head.hash:
            self.report_defect(validator, seq, "chain", f"it does not follow record {log.head.seq}")
        log.tree.append(signing_message(validator, seq, prev, content_sha256))
        log.head = Head(seq, record_hash(prev, content_sha256))
        if (validator, log.tree.size) in self._points:
            self._check_points(validator, log)

    def _check_points(self, validator: str, log: _Log) -> None:
        """Compare the tree with the checkpoints of its size, where there are any."""
        for point in self._points.pop((validator, log.tree.size), ()):
            if point != checkpoint_of(validator, log.tree):
                detail = f"the log of {point.size} records does not have the signed root"
                self.report_defect(validator, log.head.seq, "checkpoint", detail)
