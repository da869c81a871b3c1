"""The reader's check of a log: rows as they come, against the note that the chain holds. Pure, but for its own state.

`finish` returns only when every leaf, link, whole content and signature fits, the tree has the note's root at
its size, and the whole rows are exactly those of the note's tally. If a peer could have made the fault, the peer is
blamed (U3042). If only the author can have written it (a record that can't be read, under the right root), the author
is (U3043), so an honest peer that passes a bad log on is not blamed. A stub's signature is not checked: the root covers
what it says, and nothing is counted from it.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable

from arena.chain.port import Verifier
from arena.exchange.log_digest import counts, extend
from arena.exchange.port import ROW_BYTES_MAX, Count, LogDigest
from arena.export.model import LogRow
from arena.records.body import is_canonical, read_content
from arena.records.log.checkpoint import Checkpoint
from arena.records.log.hash_chain import signing_message
from arena.records.log.walk import LogStart, LogWalk
from arena.records.model import RecordContent
from foundation.codes.names import LOG_UNFIT, PEER_LIED
from foundation.errors import ArenaError

WHOLE_BYTES_MAX = 4 << 30  # of one pull
_SHA256 = re.compile("[0-9a-f]{64}")
_SIGNATURE = re.compile("[0-9a-f]{128}")


class SeamError(ArenaError):
    """U3042: the first row does not follow the start: the peer lies, or the log was rewritten since."""

    def __init__(self, detail: str) -> None:
        super().__init__(PEER_LIED, detail)


class RowsCheck:
    """Checks rows start.after_seq+1 .. point.size of one log. `at` is the last one taken."""

    def __init__(
        self,
        point: Checkpoint,
        due: LogDigest,
        verify_signature: Verifier,
        start: LogStart,
        counted: Count,
        known: Iterable[LogStart] = (),
    ) -> None:
        """`due` is the note's tally, `counted` what was counted up to `start`, where the check begins: the tally's
        start, or a later point that was checked. `known` are other points of this log that were checked before."""
        self._point, self._due, self._verify = point, due, verify_signature
        self._start = start
        self._walk = LogWalk(start)
        self._counted = counted
        self._known = {mark.after_seq: mark for mark in known}
        self.contradicted: LogStart | None = None  # a known point that is not one of this log
        self._unfit = ""
        self._bytes = 0

    @property
    def at(self) -> int:
        """The number of the last record taken."""
        return self._walk.seq

    def take(self, row: LogRow) -> None:
        """Take the next row. Raises ArenaError U3042 for one that can't stand there; SeamError for a first one that
        does not follow the start."""
        about = f"record {row.seq} of {row.validator}"
        if row.validator != self._point.validator or row.seq != self.at + 1 or row.seq > self._point.size:
            raise ArenaError(PEER_LIED, f"{about} came after record {self.at} of {self._point.validator}")
        if not (
            _SHA256.fullmatch(row.prev)
            and _SHA256.fullmatch(row.content_sha256)
            and _SIGNATURE.fullmatch(row.signature)
        ):
            raise ArenaError(PEER_LIED, f"{about} has a malformed envelope")
        if self._walk.misplaced(row.seq, row.prev):
            detail = f"{about} does not follow record {self.at}"
            raise SeamError(detail) if self.at == self._start.after_seq else ArenaError(PEER_LIED, detail)
        if row.content is None:
            if row.withheld is None or row.body is not None:
                raise ArenaError(PEER_LIED, f"{about} is neither whole nor a stub")
        else:
            self._take_whole(row, bytes(row.content), about)
        self._walk.take(row.seq, row.prev, row.content_sha256)
        if self.at in self._known and self._known[self.at] != self._walk.position():
            self.contradicted = self._known[self.at]

    def finish(self) -> LogStart:
        """Where the log stands at the note's size: another check can begin there.

        Raises ArenaError U3042 when root or tally don't fit, U3043 when they do but a record is none.
        """
        name, size = self._point.validator, self._point.size
        if self.at != size or self._walk.root != self._point.root:
            raise ArenaError(PEER_LIED, f"the {self.at} records of {name} don't have the root of its note of {size}")
        if self._counted != self._due.count:
            detail = f"{self._counted.rows} records of {name} came whole, its note counts {self._due.count.rows}"
            raise ArenaError(PEER_LIED, detail)
        if self._unfit:
            raise ArenaError(LOG_UNFIT, self._unfit)
        return self._walk.position()

    def _take_whole(self, row: LogRow, content: bytes, about: str) -> None:
        if row.withheld is not None or row.body is not None:
            raise ArenaError(PEER_LIED, f"{about} is neither whole nor a stub")
        if len(content) > ROW_BYTES_MAX or hashlib.sha256(content).hexdigest() != row.content_sha256:
            raise ArenaError(PEER_LIED, f"{about}: the content does not have the hash that is signed")
        self._bytes += len(content)
        if self._bytes > WHOLE_BYTES_MAX:
            raise ArenaError(LOG_UNFIT, f"the records of {row.validator} that count are over {WHOLE_BYTES_MAX} bytes")
        message = signing_message(row.validator, row.seq, row.prev, row.content_sha256)
        if not self._verify(row.validator, message, bytes.fromhex(row.signature)):
            raise ArenaError(PEER_LIED, f"{about} is not signed by it")
        try:
            read = read_content(content)
        except ArenaError as error:
            self._unfit = self._unfit or f"{about}: {error.failure.detail}"
        else:
            if not isinstance(read, RecordContent):
                self._unfit = self._unfit or f"{about} is of a later format, {read.name}"
            elif not is_canonical(content, read):
                self._unfit = self._unfit or f"{about} is not in canonical form"
            elif not counts(read, len(content), self._due.race_id):
                raise ArenaError(PEER_LIED, f"{about} does not count for {self._due.race_id or 'qualifying'}")
        self._counted = extend(self._counted, row.seq, row.content_sha256)
        if self._counted.rows > self._due.count.rows:
            raise ArenaError(PEER_LIED, f"{about} is whole beyond the {self._due.count.rows} that its note counts")
