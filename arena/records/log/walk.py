"""The walk along one validator's log: whether a record follows, and head and Merkle frontier behind it.

Everybody who goes over a log goes over it with this: an export, its verification, `records verify`, another
validator, a reader of the tail. A walk can begin at any point somebody kept (`LogStart`); its root at the end can be
held against a signed checkpoint.
"""

from __future__ import annotations

import re
from typing import Literal

import msgspec

from arena.records.log.hash_chain import first_head, record_hash, signing_message
from arena.records.log.merkle import MerkleFrontier
from arena.records.model import Head
from foundation.errors import ArenaError

_SHA256 = re.compile("[0-9a-f]{64}")


class LogStart(msgspec.Struct, frozen=True, kw_only=True):
    """A point of one log: after record `after_seq`, with the hash of that record and the tree's peaks, hex, largest
    first. The beginning of a log is `LogStart(validator=...)`."""

    validator: str
    after_seq: int = 0
    head: str = ""  # hash of record `after_seq`; "" at the beginning
    peaks: tuple[str, ...] = ()  # roots of the complete subtrees


class LogWalk:
    """Where one log stands after the records that were taken."""

    def __init__(self, start: LogStart) -> None:
        """Raises ArenaError V2051 for a start that is malformed."""
        hashes = (start.head, *start.peaks) if start.after_seq or start.head else start.peaks
        if wrong := [text for text in hashes if not _SHA256.fullmatch(text)]:
            raise ArenaError("V2051", f"the start of {start.validator} holds {wrong[0]!r}, which is no sha256")
        if not start.after_seq and start.head:
            raise ArenaError("V2051", f"the start of {start.validator} names a record before the first")
        self.tree = MerkleFrontier(start.after_seq, [bytes.fromhex(peak) for peak in start.peaks])
        self.validator = start.validator
        self.head = Head(start.after_seq, start.head) if start.after_seq else first_head(start.validator)
        self.is_whole = start.after_seq == 0  # it went over every record of the log

    @property
    def seq(self) -> int:
        """The number of the last record taken."""
        return self.head.seq

    @property
    def root(self) -> str:
        """Root (hex) of the log up to here."""
        return self.tree.root().hex()

    def position(self) -> LogStart:
        """Where the walk stands, as the point where another can begin."""
        peaks = tuple(peak.hex() for peak in self.tree.peaks)
        return LogStart(
            validator=self.validator, after_seq=self.seq, head=self.head.hash if self.seq else "", peaks=peaks
        )

    def misplaced(self, seq: int, prev: str) -> tuple[Literal["sequence", "chain"], str] | None:
        """Why a record of this number and link does not come next; None where it does."""
        if seq != self.seq + 1:
            return "sequence", f"record {self.seq + 1} was expected here, {seq} came"
        return None if prev == self.head.hash else ("chain", f"it does not follow record {self.seq}")

    def take(self, seq: int, prev: str, content_sha256: str) -> bytes:
        """Go over a record, in its place or not; the message that its signature covers."""
        message = signing_message(self.validator, seq, prev, content_sha256)
        self.tree.append(message)
        self.head = Head(seq, record_hash(prev, content_sha256))
        return message

    def follow(self, seq: int, prev: str, content_sha256: str) -> bytes:
        """Go over the next record, as `take`. Raises ArenaError V2050 when it does not follow the last one."""
        if wrong := self.misplaced(seq, prev):
            raise ArenaError("V2050", f"{self.validator}: record {seq}: {wrong[1]}")
        return self.take(seq, prev, content_sha256)
