"""The walk along a log: chain head and Merkle frontier behind each record, and the cursor the next export starts from.

A walk refuses the first record that does not follow the one before, and its root at the end can be held
against a signed checkpoint. The next cursor is in front of the first record that waits for its release.
"""

from __future__ import annotations

import msgspec

from arena.export.model import Cursor
from arena.records.log.hash_chain import first_head, record_hash, signing_message
from arena.records.log.merkle import MerkleFrontier
from foundation.errors import ArenaError


def first_cursor(validator: str) -> Cursor:
    """The cursor in front of a log's first record."""
    return Cursor(validator=validator, head=first_head(validator).hash)


class LogWalk:
    """Head and frontier after the records that were taken."""

    def __init__(self, start: Cursor) -> None:
        """Raises ArenaError V2072 when the cursor can't stand where it says."""
        self.validator = start.validator
        try:
            self._tree = MerkleFrontier(start.after_seq, [_hash(peak) for peak in start.peaks])
            self._head = _hash(start.head).hex()
        except ValueError as error:
            raise ArenaError("V2072", f"cursor: {error}") from error
        if start.after_seq == 0 and self._head != first_head(start.validator).hash:
            raise ArenaError("V2072", "cursor: an empty log has another head")
        self.is_whole = start.after_seq == 0  # it went over every record of the log

    @property
    def seq(self) -> int:
        """The number of the last record taken."""
        return self._tree.size

    @property
    def root(self) -> str:
        """Root (hex) of the log up to here."""
        return self._tree.root().hex()

    def cursor(self) -> Cursor:
        """Where the walk stands."""
        peaks = tuple(peak.hex() for peak in self._tree.peaks)
        return Cursor(validator=self.validator, after_seq=self.seq, head=self._head, peaks=peaks)

    def is_followed_by(self, seq: int, prev: str) -> bool:
        """Whether a record of this number and link comes next."""
        return seq == self.seq + 1 and prev == self._head

    def take(self, seq: int, prev: str, content_sha256: str) -> bytes:
        """Go over the next record; returns the message its signature covers.

        Raises ArenaError V2050 when it does not follow the last one.
        """
        if seq != self.seq + 1:
            raise ArenaError("V2050", f"{self.validator}: record {self.seq + 1} was expected, {seq} came")
        if prev != self._head:
            raise ArenaError("V2050", f"{self.validator}: record {seq} does not follow record {seq - 1}")
        message = signing_message(self.validator, seq, prev, content_sha256)
        self._tree.append(message)
        self._head = record_hash(prev, content_sha256)
        return message


class Waiting(msgspec.Struct):
    """What a walk has to remember for the next cursor: where the first record waits, and the races told behind it."""

    front: Cursor | None = None
    races: list[str] = []

    def note(self, walk: LogWalk, race_id: str, *, is_released: bool) -> None:
        """Look at the record that `walk` takes next, before it does."""
        if not is_released and self.front is None:
            self.front = walk.cursor()
        if is_released and race_id and self.front is not None and race_id not in self.races:
            self.races.append(race_id)

    def next_cursor(self, end: Cursor) -> Cursor:
        """The cursor for the export after the one that ends at `end`."""
        if self.front is None:
            return msgspec.structs.replace(end, exported_to=end.after_seq)
        return msgspec.structs.replace(self.front, races=tuple(sorted(self.races)), exported_to=end.after_seq)


def _hash(text: str) -> bytes:
    content = bytes.fromhex(text)
    if len(content) != 32 or content.hex() != text:
        raise ValueError(f"{text!r} is not a sha256")
    return content
