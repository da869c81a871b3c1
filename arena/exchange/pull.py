"""The puller: other validators' logs, read up to the note that the chain holds, from any peer that has them.

A log is held only after note, every leaf, every link, every whole record and the note's tally fit; until then
nothing of it can be read, whenever the process dies. Whether a log is held follows from its note alone, not from what
was held before. A race is read from its first record, qualifying from where the last reading ended. If the rows do not
follow on, the log is read from its beginning; if it fits then, it counts and is reported as rewritten. A peer that
lies, refuses or is too slow is named, and the next one is asked. A connection that breaks is taken up again behind the
last row. How long a peer has follows from the rows that came, never from a size that an author claims.
"""

from __future__ import annotations

import asyncio
import hashlib
import math
from collections.abc import Sequence
from contextlib import aclosing

import msgspec

from arena.chain.port import Verifier
from arena.exchange.log_digest import RowsCheck, SeamError, read_tally
from arena.exchange.operator_files import (
    PIECE_BYTES,
    Operator,
    ReleaseStore,
    SharedFile,
    SignedRelease,
    check_release,
)
from arena.exchange.peer_logs import HeldEntry, PeerLogStore, RowsWriter
from arena.exchange.port import (
    Complaint,
    Count,
    HeldLog,
    LogDigest,
    Peer,
    Peers,
)
from arena.export.model import LogRow
from arena.records.log import Checkpoint, LogStart, read_checkpoint
from arena.records.log import note_sha256 as sha256_of
from foundation.codes.names import (
    LOG_REWRITTEN,
    LOG_UNFIT,
    PEER_AWAY,
    PEER_LIED,
    PEER_REFUSED,
    RELEASE_OLDER,
    RELEASE_TWICE,
    RELEASE_UNSIGNED,
)
from foundation.errors import ArenaError, Failure

BATCH_ROWS = 256  # checked at a time, beside the event loop
PULL_ROWS_MAX = 50_000_000  # from a tally's start to its note
BREAKS_MAX = 5  # connections of one peer that may break
_PEER_CODES = (PEER_AWAY, PEER_REFUSED, PEER_LIED)


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """A log to be held: whose, up to which note on chain, for which race ("": its qualifying records)."""

    validator: str
    note_sha256: str
    race_id: str


class Pulled(msgspec.Struct, frozen=True, kw_only=True):
    """How a pull ended. `log` None: not held, for `complaints` against peers, or `unfit`: its author's own fault, which
    no other peer can mend. `rewritten`: what the log contradicts that was held before."""

    wanted: Wanted
    log: HeldLog | None
    complaints: tuple[Complaint, ...] = ()
    unfit: Failure | None = None
    rewritten: Failure | None = None


class PullPace(msgspec.Struct, frozen=True, kw_only=True):
    """How slow a peer may be: `window_rows` more rows, or the last, come within each `window_s`. A pull that goes on is
    given up after `most_s`, half of which one peer may take, so that others are asked too."""

    window_s: float = 30.0
    window_rows: int = 1_500  # fewer than 64 a second, the largest rows at the pace of a caller's share
    most_s: float = 1_800.0
    logs_at_once: int = 4


class _Claim(msgspec.Struct, frozen=True):
    """A note that the chain holds, read."""

    note: str
    point: Checkpoint
    due: LogDigest


class _Start(msgspec.Struct, frozen=True):
    """Where a pull may begin: a point, what counted up to there, and the entry it continues."""

    mark: LogStart
    counted: Count
    before: HeldEntry | None = None


class Puller:
    """Pulls into one folder."""

    def __init__(
        self, peers: Peers, logs: PeerLogStore, verify_signature: Verifier, *, pace: PullPace | None = None
    ) -> None:
        self._peers, self._logs, self._verify = peers, logs, verify_signature
        self._pace = pace or PullPace()
        self._places = asyncio.Semaphore(self._pace.logs_at_once)
        self._locks: dict[str, asyncio.Lock] = {}

    async def pull(self, wanted: Wanted, peers: Sequence[Peer], *, within_s: float = math.inf) -> Pulled:
        """Hold one log, unless it is held; its author is asked first, then the others in order. Several may be pulled
        at once, some of which then wait for a place. Given up after `within_s`, when nobody needs it any more.

        Raises V2114 when it can't be written, V2115 when the disk is nearly full; all else is in the answer."""
        lock = self._locks.setdefault(wanted.validator, asyncio.Lock())
        until_s = asyncio.get_running_loop().time() + within_s
        complaints: list[Complaint] = []
        unfit: Failure | None = None
        try:
            async with asyncio.timeout_at(until_s) as limit, lock, self._places:
                entry = self._logs.find(wanted.validator, wanted.race_id, wanted.note_sha256)
                if entry is not None:
                    return Pulled(wanted=wanted, log=entry.log)
                until_s = min(until_s, asyncio.get_running_loop().time() + self._pace.most_s)
                limit.reschedule(until_s)
                order = sorted(peers, key=lambda peer: peer.hotkey != wanted.validator)
                claim = await self._claim(wanted, order, complaints)
                if claim is not None:
                    return await self._pull(wanted, claim, order, complaints, until_s)
        except TimeoutError:
            pass  # whoever was slow stands in the complaints
        except ArenaError as error:
            if error.failure.code != LOG_UNFIT:
                raise
            unfit = error.failure
        return Pulled(wanted=wanted, log=None, complaints=tuple(complaints), unfit=unfit)

    async def _claim(self, wanted: Wanted, peers: Sequence[Peer], complaints: list[Complaint]) -> _Claim | None:
        """The note, from our own folder or a peer. Raises ArenaError U3043 for one that its author made wrong."""
        note = self._logs.note(wanted.validator, wanted.note_sha256)
        for peer in peers if note is None else ():
            try:
                found = await self._peers.note(peer, wanted.validator, wanted.note_sha256)
                if found is not None and sha256_of(found) != wanted.note_sha256:
                    raise ArenaError(PEER_LIED, f"{peer.hotkey}: a note with another hash than the chain holds")
            except ArenaError as error:
                complaints.append(Complaint(peer=peer.hotkey, failure=error.failure))
                continue
            if found is not None:
                note = found
                break
        if note is None:
            return None
        try:
            point = read_checkpoint(note, self._verify)
        except ArenaError as error:
            raise ArenaError(LOG_UNFIT, error.failure.detail) from error
        if point.validator != wanted.validator:
            raise ArenaError(LOG_UNFIT, f"{wanted.validator} anchored the note of {point.validator}")
        due = read_tally(note, wanted.validator, wanted.race_id, self._verify)
        if not 0 <= point.size - due.start.after_seq <= PULL_ROWS_MAX:
            about = f"records {due.start.after_seq + 1} to {point.size} of {wanted.validator}"
            raise ArenaError(LOG_UNFIT, f"{about} are none, or over {PULL_ROWS_MAX}")
        return _Claim(note, point, due)

    async def _pull(
        self, wanted: Wanted, claim: _Claim, peers: Sequence[Peer], complaints: list[Complaint], until_s: float
    ) -> Pulled:
        # Reading begins, for qualifying, behind the newest note held of it, whose rows go on counting, unless the log
        # was rewritten; else where the tally does.
        name, due = claim.point.validator, claim.due
        held = [] if due.race_id else self._logs.entries("", name)
        fitting = [e for e in held if e.tally.start == due.start and e.log.size < claim.point.size]
        later = max(fitting, key=lambda entry: entry.log.size, default=None)
        starts = [_Start(later.end, later.tally.count, later)] if later else []
        starts.append(_Start(due.start, Count()))
        if due.start.after_seq == claim.point.size:  # nothing counts: no peer is needed
            log, _ = await self._read(None, claim, starts[-1], until_s)
            return Pulled(wanted=wanted, log=log, complaints=tuple(complaints))
        for peer in peers:
            try:
                for start in starts:
                    try:
                        log, rewritten = await self._read(peer, claim, start, until_s)
                    except SeamError:  # the peer's rows do not follow this start
                        if start is starts[-1]:
                            raise
                        continue
                    return Pulled(wanted=wanted, log=log, complaints=tuple(complaints), rewritten=rewritten)
            except ArenaError as error:
                if error.failure.code not in _PEER_CODES:
                    raise
                complaints.append(Complaint(peer=peer.hotkey, failure=error.failure))
        return Pulled(wanted=wanted, log=None, complaints=tuple(complaints))

    async def _read(
        self, peer: Peer | None, claim: _Claim, start: _Start, until_s: float
    ) -> tuple[HeldLog, Failure | None]:
        """Read the rows behind `start` from one peer, and hold the log; and what it contradicts that was held before.

        Raises ArenaError U3040 to U3043, V2114, V2115; without a peer, when what needs no row does not fit, U3043."""
        known = [entry.end for entry in self._logs.entries(None, claim.point.validator)]
        check = RowsCheck(claim.point, claim.due, self._verify, start.mark, start.counted, known)
        writer = self._logs.writer(claim.due.race_id)
        try:
            if peer is not None:
                pace, share_s = self._pace, (until_s - asyncio.get_running_loop().time()) / 2
                try:
                    async with asyncio.timeout(share_s), asyncio.timeout(pace.window_s) as window:
                        await self._take_all(peer, claim, check, writer, window)
                except TimeoutError as error:
                    if window.expired():
                        raise ArenaError(
                            PEER_AWAY, f"{peer.hotkey}: fewer than {pace.window_rows} rows within {pace.window_s:g} s"
                        ) from error
                    raise ArenaError(PEER_AWAY, f"{peer.hotkey}: not done within {share_s:.0f} s") from error
            try:
                end = check.finish()
            except ArenaError as error:
                if peer is not None:
                    raise
                raise ArenaError(LOG_UNFIT, error.failure.detail) from error
            log = await asyncio.to_thread(
                self._logs.put,
                writer,
                point=claim.point,
                note=claim.note,
                tally=claim.due,
                end=end,
                before=start.before,
            )
            mark = check.contradicted
            if mark is None:
                return log, None
            other = f"the {mark.after_seq} records held before are not the first of its {claim.point.size}"
            return log, Failure(code=LOG_REWRITTEN, detail=f"{mark.validator}: {other}")
        finally:
            writer.abandon()

    async def _take_all(
        self, peer: Peer, claim: _Claim, check: RowsCheck, writer: RowsWriter, window: asyncio.Timeout
    ) -> None:
        """Take rows until the log's size, over as many answers as it takes."""
        breaks = 0
        while check.at < claim.point.size:
            before = check.at
            try:
                await self._take_answer(peer, claim, check, writer, window)
            except ArenaError as error:
                breaks += 1
                if error.failure.code != PEER_AWAY or check.at == before or breaks > BREAKS_MAX:
                    raise
            if check.at == before:
                raise ArenaError(PEER_LIED, f"{peer.hotkey}: no record {before + 1} of {claim.point.validator}")

    async def _take_answer(
        self, peer: Peer, claim: _Claim, check: RowsCheck, writer: RowsWriter, window: asyncio.Timeout
    ) -> None:
        name, size, pace = claim.point.validator, claim.point.size, self._pace
        rows = self._peers.rows(peer, name, after_seq=check.at, to_seq=size, race_id=claim.due.race_id)
        is_open = True
        async with aclosing(rows):
            while is_open:
                waiting, windows = list[LogRow](), check.at // pace.window_rows
                broken: ArenaError | None = None
                try:
                    async for row in rows:
                        waiting.append(row)
                        if len(waiting) == BATCH_ROWS:
                            break
                except ArenaError as error:
                    broken = error
                await asyncio.to_thread(_take, check, writer, waiting)  # what came before a break stands
                if check.at // pace.window_rows > windows:
                    window.reschedule(asyncio.get_running_loop().time() + pace.window_s)
                if broken is not None:
                    raise broken
                is_open = len(waiting) == BATCH_ROWS


def _take(check: RowsCheck, writer: RowsWriter, rows: list[LogRow]) -> None:
    for row in rows:
        check.take(row)
    writer.write(rows)


ASKED_AT_ONCE = 8
_RELEASE_PEER_CODES = (PEER_AWAY, PEER_REFUSED, PEER_LIED, RELEASE_UNSIGNED)
_RELEASE_CODES = (*_RELEASE_PEER_CODES, RELEASE_OLDER, RELEASE_TWICE)


class ReleaseTurn(msgspec.Struct, frozen=True, kw_only=True):
    """How one turn ended. `is_new`: a newer release was seen; `is_whole`: the newest is whole since this turn."""

    complaints: tuple[Complaint, ...]
    fetched: tuple[SharedFile, ...]
    lacking: int  # files of the newest release that are still not here
    is_new: bool = False
    is_whole: bool = False


class ReleasePuller:
    """Pulls one operator's releases into one store."""

    def __init__(self, peers: Peers, store: ReleaseStore, operator: Operator, verify_signature: Verifier) -> None:
        self._peers, self._store, self._operator, self._verify = peers, store, operator, verify_signature

    async def turn(self, peers: Sequence[Peer]) -> ReleaseTurn:
        """Ask everybody for a newer release, then for the files that are lacking.

        Raises ArenaError V2114 and V2115; what peers did wrong is in the answer.
        """
        complaints: list[Complaint] = []
        is_new = await self._look(peers, complaints)
        newest = await asyncio.to_thread(self.newest)
        lacking = self._store.missing(newest.release) if newest else ()
        self._store.require_room(lacking)
        fetched = []
        answering = list(peers)
        for number, file in enumerate(lacking):
            turned = number % max(1, len(answering))  # so that files come from different peers
            if await self._fetch(file, answering[turned:] + answering[:turned], answering, complaints):
                fetched.append(file)
        is_whole = await asyncio.to_thread(self._store.settle)
        return ReleaseTurn(
            complaints=tuple(complaints),
            fetched=tuple(fetched),
            lacking=len(lacking) - len(fetched),
            is_new=is_new,
            is_whole=is_whole,
        )

    def newest(self) -> SignedRelease | None:
        """The newest release kept, if it is this operator's. Raises ArenaError V2114."""
        return of_operator(self._store.newest(), self._operator, self._verify)

    async def _look(self, peers: Sequence[Peer], complaints: list[Complaint]) -> bool:
        """Ask every peer for the release it holds, and keep the newest that fits; whether one was new."""
        held, places = await asyncio.to_thread(self.newest), asyncio.Semaphore(ASKED_AT_ONCE)
        known = held.release.release_sha256 if held else ""

        async def ask(peer: Peer) -> SignedRelease | None:
            async with places:
                try:
                    found = await self._peers.release(peer, known)
                    if found is not None:
                        await asyncio.to_thread(check_release, found, self._operator, self._verify)
                    return found
                except ArenaError as error:
                    _blame(peer, error, complaints, _RELEASE_PEER_CODES)
                    return None

        shown = zip(peers, await asyncio.gather(*map(ask, peers)), strict=True)
        releases = [(found, peer) for peer, found in shown if found is not None]
        is_new = False
        for found, peer in sorted(releases, key=lambda pair: pair[0].release.sequence):  # lower numbers first
            try:
                is_new |= await asyncio.to_thread(self._store.keep, found)
            except ArenaError as error:
                _blame(peer, error, complaints, _RELEASE_CODES)
        return is_new

    async def _fetch(
        self, file: SharedFile, order: Sequence[Peer], answering: list[Peer], complaints: list[Complaint]
    ) -> bool:
        """Fetch one file from the first of these peers that has it, or from several in turn; whether it is here."""
        for peer in order:
            try:
                if await self._take_pieces(peer, file):
                    await asyncio.to_thread(self._store.finish, file)
                    return True
            except ArenaError as error:
                _blame(peer, error, complaints, _RELEASE_PEER_CODES)
                answering.remove(peer)
        return False

    async def _take_pieces(self, peer: Peer, file: SharedFile) -> bool:
        """Take the pieces that are lacking from one peer; False where it does not have the file. Raises U3040 to U3042,
        U3045."""
        hashes = file.piece_sha256s
        for number in range(await asyncio.to_thread(self._store.pieces_held, file), len(hashes)):
            size = file.piece_bytes(number)
            found = await self._peers.file_piece(peer, file.sha256, start=number * PIECE_BYTES, size=size)
            if found is None:
                return False
            if len(found) != size or hashlib.sha256(found).hexdigest() != hashes[number]:
                about = f"piece {number + 1} of {len(hashes)} of {file.name}"
                raise ArenaError(RELEASE_UNSIGNED, f"{peer.hotkey}: {about} is another")
            await asyncio.to_thread(self._store.add_piece, file, found)
        return True


def of_operator(signed: SignedRelease | None, operator: Operator, verify: Verifier) -> SignedRelease | None:
    """A kept release, if it is this operator's for this subnet; None otherwise: settings may name another by now."""
    if signed is None:
        return None
    try:
        check_release(signed, operator, verify)
    except ArenaError:
        return None
    return signed


def _blame(peer: Peer, error: ArenaError, complaints: list[Complaint], codes: Sequence[str]) -> None:
    """Note what a peer did wrong; failures of our own are raised again."""
    if error.failure.code not in codes:
        raise error
    complaints.append(Complaint(peer=peer.hotkey, failure=error.failure))
