"""What verification says: one `Defect` per wrong record, and the report over all logs.

Plain values, the same whichever way records were read and inspected; a report that is ok has no defect, and
what could not be checked (records of a later format, anchors without a chain) is counted in it, never passed over.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from arena.records.log.checkpoint import Checkpoint
from arena.records.model import Head

DEFECTS_KEPT = 1000

Rule = Literal[
    "envelope",  # a number, hash or signature that is none
    "sequence",  # a gap, a double or a swap of numbers
    "chain",  # prev is not the hash of the record before
    "content",  # the bytes do not have the hash that is signed
    "signature",
    "filing",  # the store finds it by a kind, race or body its content does not state, or on another day
    "schema",  # the content is no record, although its version and kind are ones this release knows
    "body",  # missing, changed, or about something else than its record
    "attempt",  # an evaluation without the attempt that made it
    "evaluation",  # an attempt that says it evaluated, without the evaluation
    "verdict",  # a verdict on a body without an evaluation
    "double",  # two counted evaluations of one (agent version, problem) in one stage of one race
    "settlement",  # a race's records contradict its settlement, or it has two
    "release",  # a problem that the race's release does not name, or whose commitment its salt does not open
    "gate",  # a person's word on a submission that the gate said nothing of
    "tail",  # the log is shorter or other than its head says
    "checkpoint",  # the log does not have the root that was signed for its size
    "anchor",  # the chain does not hold the checkpoint where it is said to
]


class Defect(msgspec.Struct, frozen=True, kw_only=True):
    """What is wrong with one record. For a checkpoint or an anchor, `seq` is its last record."""

    validator: str
    seq: int
    rule: Rule
    detail: str


class LogFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Where one verified log ends."""

    head: Head
    checkpoint: Checkpoint


class AnchorFacts(msgspec.Struct, frozen=True, kw_only=True):
    """A stored checkpoint that is said to be committed on chain. `is_checked`: compared with the chain just now."""

    validator: str
    size: int
    block: int
    is_checked: bool


class VerifyReport(msgspec.Struct, frozen=True, kw_only=True):
    """The result: counts, the end of each log, and defects in (validator, seq) order (at most `DEFECTS_KEPT`)."""

    records: int  # everything that was taken, whole or not
    kinds: dict[str, int]  # whole records of formats this release reads
    bodies: int
    logs: tuple[LogFacts, ...]
    defects: tuple[Defect, ...]
    defect_count: int
    unread: dict[str, int] = {}  # "kind/version" of records and "body/version" of bodies of a later format
    stubs: int = 0  # records given without their content: chain, tree and signature were checked
    leaves: int = 0  # records before `since`: chain and tree were checked
    checkpoints: int = 0  # signed checkpoints the logs were compared with
    anchors: tuple[AnchorFacts, ...] = ()

    @property
    def is_ok(self) -> bool:
        """True when nothing is wrong."""
        return self.defect_count == 0
