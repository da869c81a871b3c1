"""The running check over logs: places, chain, tree, checkpoints, and what records say about each other.

It takes findings (`arena.records.verify.inspection`) in the order records stand and trusts nothing else. It
can begin at the start of a log or at a point somebody kept (`LogStart`: an export's cursor), and takes whole records,
stubs and bare leaves. A record may refer to one before that point or in a stub: then its absence is no defect.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from arena.records.log.checkpoint import Checkpoint, checkpoint_of
from arena.records.log.hash_chain import first_head
from arena.records.log.walk import LogStart, LogWalk
from arena.records.model import Head
from arena.records.verify.inspection import EvaluationFacts, RecordFinding
from arena.records.verify.references import References
from arena.records.verify.report import DEFECTS_KEPT, AnchorFacts, Defect, LogFacts, Rule, VerifyReport
from arena.store.port import LogLeaf
from foundation.errors import ArenaError

__all__ = ["LogCheck", "LogStart"]


class LogCheck:
    """The running state over any number of logs. Records of one log must come in the order they stand.

    `checkpoints`: signed states the logs must contain, their signatures checked (`read_checkpoint`). `starts`: where
    logs begin that are not given from their first record. Raises ArenaError V2051 for a start that is malformed and for
    a checkpoint before its log's start, which could not be checked.
    """

    def __init__(self, checkpoints: Iterable[Checkpoint] = (), *, starts: Iterable[LogStart] = ()) -> None:
        self.records = 0
        self._logs = {start.validator: LogWalk(start) for start in starts}
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
        return self._log(validator).position()

    def expect_checkpoint(self, point: Checkpoint) -> None:
        """Name a signed state the log must contain. Raises ArenaError V2051 when the log is beyond it already."""
        log = self._log(point.validator)
        self._point_count += 1
        if point.size < log.tree.size:
            raise ArenaError("V2051", f"a checkpoint of {point.size} records, the check begins after {log.tree.size}")
        self._points.setdefault((point.validator, point.size), set()).add(point)
        self._check_points(log)

    def take(self, finding: RecordFinding) -> None:
        """Take the next record, whole or as a stub."""
        self.records += 1
        for rule, detail in finding.faults:
            self.report_defect(finding.validator, finding.seq, rule, detail)
        log = self._log(finding.validator)
        if not finding.is_envelope:
            log.is_whole = False
            return
        self._place(log, finding.seq, finding.prev, finding.content_sha256)
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
            self._place(log, leaf.seq, leaf.prev, leaf.content_sha256)

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

    def _log(self, validator: str) -> LogWalk:
        if validator not in self._logs:
            self._logs[validator] = LogWalk(LogStart(validator=validator))
        return self._logs[validator]

    def _place(self, log: LogWalk, seq: int, prev: str, content_sha256: str) -> None:
        """Put a record behind the ones before it: number, link, tree, and the checkpoints of that size."""
        if wrong := log.misplaced(seq, prev):
            self.report_defect(log.validator, seq, *wrong)
        log.take(seq, prev, content_sha256)
        self._check_points(log)

    def _check_points(self, log: LogWalk) -> None:
        """Compare the tree with the checkpoints of its size, where there are any."""
        for point in self._points.pop((log.validator, log.tree.size), ()):
            if point != checkpoint_of(log.validator, log.tree):
                detail = f"the log of {point.size} records does not have the signed root"
                self.report_defect(log.validator, log.seq, "checkpoint", detail)
