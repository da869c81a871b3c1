"""What validators ask each other: notes, log rows, sources and progress. One port, over HTTP or within one process.

Promise: nothing that comes through this port is believed; every answer is checked by its reader against a hash the
reader had before (on chain, or in a checked note). A peer that is away, refuses or lies costs its answer and is named;
it is never an error of ours. `arena/race/AGREEMENT.md` says what the answers are for.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Literal, Protocol

import msgspec

from arena.export.model import LogRow
from arena.submissions.model import SignedSubmission

PEER_AWAY, PEER_REFUSED = "U3040", "U3041"


class Peer(msgspec.Struct, frozen=True, kw_only=True):
    """A validator and where it answers. `endpoint` is an `http(s)://host:port` URL; "" where none is known."""

    hotkey: str
    endpoint: str


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """What a validator says of a race before its settlement: which pairs are done, never how."""

    validator: str
    race_id: str
    policy_sha256: str
    guest_sha256: str
    done: tuple[tuple[str, str], ...]  # (agent version id, problem id)


LogPurpose = Literal["field", "results"]


class Peers(Protocol):
    """The other validators. Every method asks one peer and raises ArenaError U3040 (away) or U3041 (refused).

    `validator` is whose log is asked for: a peer also answers for logs of others that it holds.
    """

    async def note(self, peer: Peer, validator: str, note_sha256: str) -> str | None:
        """The signed checkpoint with this hash, or None where the peer does not hold it."""
        ...

    def rows(self, peer: Peer, validator: str, *, after_seq: int, to_seq: int, race_id: str) -> AsyncIterator[LogRow]:
        """Rows after_seq+1 .. to_seq of a log: whole (without bodies) for records of `race_id` ("" for qualifying)
        that count (evaluation, verdict, attempt), stubs for all others."""
        ...

    async def submission(self, peer: Peer, commitment_sha256: str) -> SignedSubmission | None:
        """The submission behind a commitment on chain, or None."""
        ...

    async def progress(self, peer: Peer, race_id: str) -> Progress | None:
        """How far the peer is with a race, or None where it does not run it."""
        ...


class HeldLog(msgspec.Struct, frozen=True, kw_only=True):
    """A log of another validator that was read whole up to a note that the chain holds, and checked."""

    validator: str
    race_id: str
    note_sha256: str
    size: int
    root: str
    rows: int  # whole rows of that race


class HeldLogs(Protocol):
    """What was pulled and checked, kept in the state folder, so that a restart asks for nothing twice."""

    def held(self, race_id: str) -> Sequence[HeldLog]: ...

    def rows(self, race_id: str, validator: str) -> Sequence[LogRow]:
        """The whole rows of a held log, in order."""
        ...
