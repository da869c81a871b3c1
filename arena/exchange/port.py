"""What validators ask each other: notes, log rows, sources and progress. One port, over HTTP or within one process.

Nothing that comes through this port is believed; every answer is checked by its reader against a hash the
reader had before (on chain, or in a checked note). A peer that is away, refuses or lies costs its answer and is named;
it is never an error of ours. `arena/race/AGREEMENT.md` says what the answers are for.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from typing import Literal, Protocol

import msgspec

from arena.exchange.operator_files import SignedRelease
from arena.export.model import LogRow
from arena.records.log import LogStart
from arena.records.model import SettlementRecord
from arena.submissions.model import SignedSubmission
from foundation.errors import Failure

# Limits of the protocol: the same for everybody, since they decide which logs can be held at all.
ROW_BYTES_MAX = 256 << 10  # content of a record that may count; a larger one never does
LINE_BYTES_MAX = ROW_BYTES_MAX + (4 << 10)
NOTE_BYTES_MAX = 16 << 10


class Peer(msgspec.Struct, frozen=True, kw_only=True):
    """A validator and where it answers. `endpoint` is an `http(s)://host:port` URL; "" where none is known."""

    hotkey: str
    endpoint: str


class Complaint(msgspec.Struct, frozen=True, kw_only=True):
    """A peer and what was wrong with its answer."""

    peer: str
    failure: Failure


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """What a validator says of a race before its settlement: which pairs are done, never how."""

    validator: str
    race_id: str
    policy_sha256: str
    guest_sha256: str
    done: tuple[tuple[str, str], ...]  # (agent version id, problem id)


LogPurpose = Literal["field", "results"]


class Count(msgspec.Struct, frozen=True, kw_only=True):
    """Some records of a log, in order: how many, and `arena.exchange.log_digest.extend` over number and hash of
    each."""

    rows: int = 0
    rows_sha256: str = ""


class LogDigest(msgspec.Struct, frozen=True, kw_only=True):
    """Which records of a log count for a race ("": qualifying), as its author says in the note it anchors.

    A stub says nothing about what it hides, so without this an author could show a record to some readers and hide it
    from others, and honest validators would settle differently. With it a log is held whole or not at all. `start` is
    where the records that count begin (the log's size where none do): readers begin there, and need nothing of before,
    since the anchored root shows whether its peaks are those of this log.
    """

    race_id: str
    count: Count
    start: LogStart


class Reveal(msgspec.Struct, frozen=True, kw_only=True):
    """One roll whose anchor block is final: our own records up to `to_seq`, under the anchored root, may be shown."""

    race_id: str
    purpose: LogPurpose
    to_seq: int


class RevealGate(msgspec.Struct, frozen=True, kw_only=True):
    """What may be shown now. Empty: nothing."""

    reveals: tuple[Reveal, ...] = ()

    def to_seq(self, race_id: str) -> int:
        """Up to which own record rows of a race ("": qualifying) may be shown; 0: none."""
        return max((r.to_seq for r in self.reveals if _is_about(r, race_id)), default=0)

    def is_open(self, race_id: str) -> bool:
        """True when rows of that race, of whatever log, may be shown."""
        return any(_is_about(reveal, race_id) for reveal in self.reveals)


def _is_about(reveal: Reveal, race_id: str) -> bool:
    return reveal.race_id == race_id and reveal.purpose == "results" if race_id else reveal.purpose == "field"


class Peers(Protocol):
    """The other validators. Every method asks one peer and raises ArenaError U3040 (away), U3041 (refused) or U3042
    (the answer can't be one).

    `validator` is whose log is asked for: a peer also answers for logs of others that it holds.
    """

    async def note(self, peer: Peer, validator: str, note_sha256: str) -> str | None:
        """The signed checkpoint with this hash, or None where the peer does not hold it."""
        ...

    def rows(self, peer: Peer, validator: str, *, after_seq: int, to_seq: int, race_id: str) -> AsyncGenerator[LogRow]:
        """Rows after_seq+1 .. to_seq of a log, or the first of them: whole (without bodies) for records of `race_id`
        ("" for qualifying) that count (`arena.exchange.log_digest.counts`), stubs for all others. Ask again behind the
        last one for the rest."""
        ...

    async def submission(self, peer: Peer, commitment_sha256: str) -> SignedSubmission | None:
        """The submission behind a commitment on chain, or None."""
        ...

    async def settlement(self, peer: Peer, race_id: str) -> SettlementRecord | None:
        """The settlement the peer holds in force for a race, its own or adopted, or None. The reader checks its hash
        against what the chain holds."""
        ...

    async def progress(self, peer: Peer, race_id: str) -> Progress | None:
        """How far the peer is with a race, or None where it does not run it."""
        ...

    async def release(self, peer: Peer, known_sha256: str) -> SignedRelease | None:
        """The newest release of the operator's files that the peer knows; None where it knows none, or the one with
        this hash ("": none is known)."""
        ...

    async def file_piece(self, peer: Peer, sha256: str, *, start: int, size: int) -> bytes | None:
        """`size` bytes of one of the operator's files from byte `start` on, at most PIECE_BYTES; None where the peer
        does not have it. The reader checks them against the hash in the release."""
        ...


class HeldLog(msgspec.Struct, frozen=True, kw_only=True):
    """A log of another validator that was read whole up to a note that the chain holds, and checked."""

    validator: str
    race_id: str  # "": its qualifying records
    note_sha256: str
    size: int
    root: str
    rows: int  # whole rows of that race


class HeldLogs(Protocol):
    """What was pulled and checked, kept in the state folder, so that a restart asks for nothing twice."""

    def held(self, race_id: str) -> Sequence[HeldLog]:
        """The logs held for a race, oldest first. For qualifying ("") a validator may stand there several times, once
        for each note: take the one whose hash the chain held at the anchor block."""
        ...

    def rows(self, race_id: str, validator: str, *, note_sha256: str = "", after_seq: int = 0) -> Sequence[LogRow]:
        """The whole rows of a held log (of the newest, or of the one of that note), in order. Raises ArenaError V2114
        for files that were damaged; such a log is no longer held."""
        ...

    def keep_note(self, note: str) -> None:
        """Keep a note of our own that is to be anchored, so that it can be served. Raises ArenaError V2114."""
        ...

    def note(self, validator: str, note_sha256: str) -> str | None:
        """The kept note of a validator with this hash, or None."""
        ...
