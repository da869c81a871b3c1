"""What is pulled from other validators: their logs, read up to the note that the chain holds, from any peer that has
them; the operator's releases; and agents' sources.

A log is held only after note, every leaf, every link, every whole record and the note's digest fit; until then
nothing of it can be read, whenever the process dies. Whether a log is held follows from its note alone, not from what
was held before. A race is read from its first record, qualifying from where the last reading ended. If the rows do not
follow on, the log is read from its beginning; if it fits then, it counts as it stands. A peer that
lies, refuses or is too slow is named, and the next one is asked. A connection that breaks is taken up again behind the
last row. How long a peer has follows from the rows that came, never from a size that an author claims.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import hashlib
import math
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import aclosing

import msgspec

from arena.chain.keys import canonical_hotkey
from arena.chain.port import Commitment, Verifier
from arena.exchange import port
from arena.exchange.log_digest import RowsCheck, SeamError, read_digest
from arena.exchange.operator_files import (
    PIECE_BYTES,
    Operator,
    ReleaseStore,
    SharedFile,
    SignedRelease,
    check_release,
    of_operator,
    require_room,
)
from arena.exchange.peer_logs import ROUND_ROWS_MAX, HeldLog, PeerLogStore, RowsWriter
from arena.export.model import LogRow
from arena.records.log import SHA256, read_checkpoint
from arena.records.log import note_sha256 as sha256_of
from arena.records.port import EVERY_STATE
from arena.store.postgres import PostgresStore
from arena.submissions.submission import (
    SUBMISSION_BYTES_MAX,
    SignedSubmission,
    is_agent_name,
    is_authentic,
    waiting_row,
)
from foundation.backoff import Backoff, NextTry
from foundation.codes import LOG_UNFIT, PEER_AWAY, PEER_LIED, PEER_REFUSED, RELEASE_OLDER
from foundation.errors import ArenaError, Failure

BATCH_ROWS = 32  # checked at a time, beside the event loop; of the largest, from everybody at once, a gigabyte
PULL_ROWS_MAX = 50_000_000  # from a digest's start to its note
BREAKS_MAX = 5  # connections of one peer that may break
_PEER_CODES = (PEER_AWAY, PEER_REFUSED, PEER_LIED, RELEASE_OLDER)


class PullJob(msgspec.Struct, frozen=True, kw_only=True):
    """A log to be held: whose, up to which note on chain, for which race ("": its qualifying records)."""

    validator: str
    note_sha256: str
    race_id: str


class PullResult(msgspec.Struct, frozen=True, kw_only=True):
    """How a pull ended. `log` None: not held, for `complaints` against peers, or `unfit`: its author's own fault, which
    no other peer can mend."""

    log: HeldLog | None
    complaints: tuple[port.Complaint, ...] = ()
    unfit: Failure | None = None


class PullPace(msgspec.Struct, frozen=True, kw_only=True):
    """How slow a peer may be: `window_rows` more rows, or the last, come within each `window_s`. A pull that goes on is
    given up after `most_s`, half of which one peer may take, so that others are asked too."""

    window_s: float = 30.0
    window_rows: int = 1_500  # fewer than 64 a second, the largest rows at the pace of a caller's share
    most_s: float = 1_800.0


class Puller:
    """Pulls into one folder."""

    def __init__(
        self, peers: port.HttpPeers, logs: PeerLogStore, verify_signature: Verifier, *, pace: PullPace | None = None
    ) -> None:
        self._peers, self._logs, self._verify = peers, logs, verify_signature
        self._pace = pace or PullPace()
        self._locks: dict[str, asyncio.Lock] = {}

    async def pull(self, wanted: PullJob, peers: Sequence[port.Peer], *, within_s: float = math.inf) -> PullResult:
        """Hold one log, unless it is held; its author is asked first, then the others in order. Several may be pulled
        at once. Given up after `within_s`, when nobody needs it any more.

        Raises V2064 when it can't be written, V2115 when the disk is nearly full; all else is in the answer."""
        lock = self._locks.setdefault(wanted.validator, asyncio.Lock())
        until_s = asyncio.get_running_loop().time() + within_s
        complaints: list[port.Complaint] = []
        log, unfit = None, None
        try:
            async with asyncio.timeout_at(until_s) as limit, lock:
                log = self._logs.find(wanted.validator, wanted.race_id, wanted.note_sha256)
                if log is None:
                    until_s = min(until_s, asyncio.get_running_loop().time() + self._pace.most_s)
                    limit.reschedule(until_s)
                    order = sorted(peers, key=lambda peer: peer.hotkey != wanted.validator)
                    if (claim := await self._claim(wanted, order, complaints, until_s)) is not None:
                        log = await self._pull(claim, order, complaints, until_s)
        except TimeoutError:
            pass  # the slow ones stand in the complaints
        except ArenaError as error:
            if error.failure.code != LOG_UNFIT:
                raise
            unfit = error.failure
        return PullResult(log=log, complaints=tuple(complaints), unfit=unfit)

    async def _claim(
        self, wanted: PullJob, peers: Sequence[port.Peer], complaints: list[port.Complaint], until_s: float
    ) -> port.Claim | None:
        """The note, from our own folder or a peer. Raises ArenaError U3043 for one that its author made wrong."""
        note = self._logs.note(wanted.validator, wanted.note_sha256)
        question = port.NoteQuestion(validator=wanted.validator, sha256=wanted.note_sha256)
        for peer in peers if note is None else ():
            with _blaming(peer, complaints):
                async with _half_of_the_time(peer, until_s):
                    note = await self._peers.ask(peer, question)
                if note is not None and sha256_of(note) != wanted.note_sha256:
                    note = None
                    raise ArenaError(PEER_LIED, f"{peer.hotkey}: a note with another hash than the chain holds")
            if note is not None:
                break
        if note is None:
            return None
        try:
            point = read_checkpoint(note, self._verify)
        except ArenaError as error:
            raise ArenaError(LOG_UNFIT, error.failure.detail) from error
        if point.validator != wanted.validator:
            raise ArenaError(LOG_UNFIT, f"{wanted.validator} anchored the note of {point.validator}")
        due = read_digest(note, wanted.validator, wanted.race_id, self._verify)
        rows, most = point.size - due.start.after_seq, ROUND_ROWS_MAX if wanted.race_id else PULL_ROWS_MAX
        most = most if due.count.rows else 0  # where none counts there is none to ask for
        if not due.count.rows <= rows <= most:
            about = f"{rows} records up to {point.size} of {wanted.validator}"
            raise ArenaError(LOG_UNFIT, f"{about}, of which {due.count.rows} count; {most} are read at most")
        return port.Claim(note=note, point=point, due=due)

    async def _pull(
        self, claim: port.Claim, peers: Sequence[port.Peer], complaints: list[port.Complaint], until_s: float
    ) -> HeldLog | None:
        """The log, from the first peer whose rows fit."""
        if claim.due.start.after_seq == claim.point.size:  # nothing counts: no peer is needed
            return await self._read(None, claim, None, until_s)
        # Reading begins, for qualifying, behind the newest note held of it, whose rows go on counting, unless the log
        # was rewritten; else where the digest does.
        held = [] if claim.due.race_id else self._logs.held("", claim.point.validator)
        fitting = [log for log in held if log.due.start == claim.due.start and log.point.size < claim.point.size]
        before = max(fitting, key=lambda log: log.point.size, default=None)
        for peer in peers:
            with _blaming(peer, complaints):
                if before is not None:
                    with contextlib.suppress(SeamError):  # the peer's rows do not follow what is held
                        return await self._read(peer, claim, before, until_s)
                return await self._read(peer, claim, None, until_s)
        return None

    async def _read(self, peer: port.Peer | None, claim: port.Claim, before: HeldLog | None, until_s: float) -> HeldLog:
        """Read the rows behind `before` (None: behind the digest's start) from one peer, and hold the log.

        Raises ArenaError U3040 to U3043, V2064, V2115."""
        start, counted = (before.end, before.due.count) if before else (claim.due.start, port.Count())
        check = RowsCheck(claim, self._verify, start, counted)
        writer = self._logs.writer(claim.due.race_id)
        try:
            if peer is not None:
                await self._take_rows(peer, claim, check, writer, until_s)
            end = check.finish()
            return await asyncio.to_thread(self._logs.put, writer, claim, end=end, before=before)
        finally:
            writer.abandon()

    async def _take_rows(
        self, peer: port.Peer, claim: port.Claim, check: RowsCheck, writer: RowsWriter, until_s: float
    ) -> None:
        """Take rows up to the note's size, over as many answers as it takes, at the pace that is asked of a peer."""
        pace, loop, size, breaks = self._pace, asyncio.get_running_loop(), claim.point.size, 0

        async def take(rows: list[LogRow]) -> None:
            windows, left_s = check.at // pace.window_rows, (window.when() or 0.0) - loop.time()
            window.reschedule(None)  # the peer does not answer for how long we take
            await asyncio.to_thread(_take, check, writer, rows)
            window.reschedule(loop.time() + (pace.window_s if check.at // pace.window_rows > windows else left_s))
            rows.clear()

        try:
            async with _half_of_the_time(peer, until_s), asyncio.timeout(pace.window_s) as window:
                while (before := check.at) < size:
                    question = port.RowsQuestion(
                        validator=claim.point.validator, after=before, to=size, race=claim.due.race_id
                    )
                    try:
                        batch: list[LogRow] = []
                        async with aclosing(self._peers.rows(peer, question)) as rows:
                            async for row in rows:
                                batch.append(row)
                                if len(batch) == BATCH_ROWS:
                                    await take(batch)
                    except ArenaError as error:
                        breaks += 1
                        if error.failure.code != PEER_AWAY or not (batch or check.at > before) or breaks > BREAKS_MAX:
                            raise
                    await take(batch)
                    if check.at == before:
                        raise ArenaError(PEER_LIED, f"{peer.hotkey}: no record {before + 1} of {question.validator}")
        except TimeoutError as error:
            told = f"fewer than {pace.window_rows} rows within {pace.window_s:g} s"
            raise ArenaError(PEER_AWAY, f"{peer.hotkey}: {told}") from error


def _take(check: RowsCheck, writer: RowsWriter, rows: list[LogRow]) -> None:
    for row in rows:
        check.take(row)
    writer.write(rows)


@contextlib.asynccontextmanager
async def _half_of_the_time(peer: port.Peer, until_s: float) -> AsyncIterator[None]:
    """One peer takes no more of what is left of a pull, so that others are asked too. Raises ArenaError U3040."""
    share_s = (until_s - asyncio.get_running_loop().time()) / 2
    try:
        async with asyncio.timeout(share_s):
            yield
    except TimeoutError as error:
        raise ArenaError(PEER_AWAY, f"{peer.hotkey}: not done within {share_s:.0f} s") from error


@contextlib.contextmanager
def _blaming(peer: port.Peer, complaints: list[port.Complaint]) -> Iterator[None]:
    """Note what a peer did wrong; failures of our own are raised again."""
    try:
        yield
    except ArenaError as error:
        if error.failure.code not in _PEER_CODES:
            raise
        complaints.append(port.Complaint(peer=peer.hotkey, failure=error.failure))


ASKED_AT_ONCE = 8


class ReleaseTurn(msgspec.Struct, frozen=True, kw_only=True):
    """How one turn ended. `is_new`: a newer release was seen; `is_whole`: the newest is whole since this turn."""

    complaints: tuple[port.Complaint, ...]
    fetched: tuple[SharedFile, ...]
    lacking: int  # files of the newest release that are still not here
    is_new: bool = False
    is_whole: bool = False


class ReleasePuller:
    """Pulls one operator's releases into one store."""

    def __init__(
        self, peers: port.HttpPeers, store: ReleaseStore, operator: Operator, verify_signature: Verifier
    ) -> None:
        self._peers, self._store, self._operator, self._verify = peers, store, operator, verify_signature

    async def turn(self, peers: Sequence[port.Peer]) -> ReleaseTurn:
        """Ask everybody for a newer release, then for the files that are lacking.

        Raises ArenaError V2064 and V2115; what peers did wrong is in the answer.
        """
        complaints: list[port.Complaint] = []
        is_new = await self._look(peers, complaints)
        newest = await asyncio.to_thread(self.newest)
        lacking = self._store.missing(newest.release) if newest else ()
        require_room(self._store.folder, sum(file.size_bytes for file in lacking))
        fetched, answering = list[SharedFile](), list(peers)
        for number, file in enumerate(lacking):
            turned = number % max(1, len(answering))  # so that files come from different peers
            for peer in answering[turned:] + answering[:turned]:
                blamed = len(complaints)
                with _blaming(peer, complaints):
                    if await self._take_pieces(peer, file):
                        await asyncio.to_thread(self._store.finish, file)
                        fetched.append(file)
                        break
                if len(complaints) > blamed:
                    answering.remove(peer)
        return ReleaseTurn(
            complaints=tuple(complaints),
            fetched=tuple(fetched),
            lacking=len(lacking) - len(fetched),
            is_new=is_new,
            is_whole=await asyncio.to_thread(self._store.settle),
        )

    def newest(self) -> SignedRelease | None:
        """The newest release kept, if it is this operator's. Raises ArenaError V2064."""
        return of_operator(self._store.newest(), self._operator)

    async def _look(self, peers: Sequence[port.Peer], complaints: list[port.Complaint]) -> bool:
        """Ask every peer for the release it holds, and keep the newest that fits; whether one was new."""
        held, places = await asyncio.to_thread(self.newest), asyncio.Semaphore(ASKED_AT_ONCE)
        question = port.ReleaseQuestion(known=held.release.release_sha256 if held else "")
        shown: list[tuple[SignedRelease, port.Peer]] = []

        async def ask(peer: port.Peer) -> None:
            async with places:
                with _blaming(peer, complaints):
                    if (found := await self._peers.ask(peer, question)) is not None:
                        await asyncio.to_thread(check_release, found, self._operator, self._verify)
                        shown.append((found, peer))

        await asyncio.gather(*map(ask, peers))
        is_new = False
        for found, peer in sorted(shown, key=lambda pair: pair[0].release.sequence):  # lower numbers first
            with _blaming(peer, complaints):
                is_new |= await asyncio.to_thread(self._keep, found)
        return is_new

    def _keep(self, found: SignedRelease) -> bool:
        with self._store.locked():
            return self._store.keep(found)

    async def _take_pieces(self, peer: port.Peer, file: SharedFile) -> bool:
        """Take the pieces that are lacking from one peer; False where it does not have the file. Raises U3040 to
        U3042."""
        hashes = file.piece_sha256s
        for number in range(await asyncio.to_thread(self._store.pieces_held, file), len(hashes)):
            found = await self._peers.ask(peer, port.FileQuestion(sha256=file.sha256, start=number * PIECE_BYTES))
            if found is None:
                return False
            if hashlib.sha256(found).hexdigest() != hashes[number]:
                about = f"piece {number + 1} of {len(hashes)} of {file.name}"
                raise ArenaError(PEER_LIED, f"{peer.hotkey}: {about} is another")
            await asyncio.to_thread(self._store.add_piece, file, found)
        return True


FETCHES_AT_ONCE = 4
SOURCE_PAUSES = Backoff(first_ms=30_000, most_ms=1_800_000)  # before asking again for a commitment that no peer knew


@dataclasses.dataclass(eq=False)
class SourceRelay:
    """Fetches agents' sources that the chain knows and the store does not, from permit holders.

    A submission is taken only when its hotkey and source have the hash that the chain holds for that hotkey, and the
    hotkey signed it; then it goes to admission, as if its miner had brought it. A peer that lies or does not answer is
    asked for nothing more in that turn; with whom a turn begins goes round. `is_commitment_enough`: the policy's,
    whether a submission may have no signature.
    """

    peers: port.HttpPeers
    store: PostgresStore
    verify_signature: Verifier
    now_ms: Callable[[], int]
    is_commitment_enough: bool = False

    def __post_init__(self) -> None:
        self._places = asyncio.Semaphore(FETCHES_AT_ONCE)
        self._here: set[str] = set()  # commitments whose submission is in the store
        self._asked: dict[str, NextTry] = {}  # by commitment
        self._turns = 0

    async def fetch(
        self, commitments: Sequence[Commitment], peers: Sequence[port.Peer]
    ) -> tuple[list[str], list[port.Complaint]]:
        """Ask for those of these commitments that are unknown and due, and store each as soon as it was found, to wait
        for the gate; those stored, and who answered wrongly. Validators' own are no sources: leave them out.

        Raises ArenaError V2021, V2025.
        """
        now_ms = self.now_ms()
        wanted = {c.sha256: c for c in commitments if SHA256.fullmatch(c.sha256) and not await self._is_here(c)}
        self._asked = {name: asked for name, asked in self._asked.items() if name in wanted}
        due = [c for c in wanted.values() if self._asked.get(c.sha256, NextTry()).not_before_ms <= now_ms]
        complaints, delivered = list[port.Complaint](), list[str]()

        async def bring(number: int, commitment: Commitment) -> None:
            turned = number % max(1, len(peers))  # so that no peer is always the first
            submission = await self._fetch_one(commitment, [*peers[turned:], *peers[:turned]], complaints)
            if submission is None:
                asked = self._asked.get(commitment.sha256, NextTry())
                self._asked[commitment.sha256] = SOURCE_PAUSES.after(asked, now_ms)
            else:
                await self.store.put_submission(waiting_row(submission, commitment.block), submission.source)
                delivered.append(commitment.sha256)

        self._turns += 1
        await asyncio.gather(*(bring(number, each) for number, each in enumerate(due, self._turns)))
        return delivered, list({each.peer: each for each in complaints}.values())

    async def _is_here(self, commitment: Commitment) -> bool:
        if commitment.sha256 not in self._here:
            rows = await self.store.submissions(EVERY_STATE, miner_hotkey=commitment.hotkey)
            self._here.update(row.subject.commitment_sha256 for row in rows)
        return commitment.sha256 in self._here

    async def _fetch_one(
        self, commitment: Commitment, order: Sequence[port.Peer], complaints: list[port.Complaint]
    ) -> SignedSubmission | None:
        """The submission from the first of these peers that has it; one that a complaint is about is not asked."""
        question = port.SubmissionQuestion(hotkey=commitment.hotkey, sha256=commitment.sha256)
        async with self._places:
            for peer in order:
                if any(each.peer == peer.hotkey for each in complaints):
                    continue
                with _blaming(peer, complaints):
                    found = await self.peers.ask(peer, question)
                    if found is not None:
                        require_committed(
                            found, commitment, self.verify_signature, is_commitment_enough=self.is_commitment_enough
                        )
                        return found
        return None


def require_committed(
    submission: SignedSubmission,
    commitment: Commitment,
    verify_signature: Verifier,
    *,
    is_commitment_enough: bool = False,
) -> None:
    """Raises ArenaError U3042 unless the submission is the one that this commitment of this hotkey stands for."""
    about = f"commitment {commitment.sha256[:16]} of {commitment.hotkey}"
    if len(submission.source.encode(errors="replace")) > SUBMISSION_BYTES_MAX or not is_agent_name(submission.name):
        raise ArenaError(PEER_LIED, f"{about}: no submission")
    if canonical_hotkey(submission.hotkey) != canonical_hotkey(commitment.hotkey):
        raise ArenaError(PEER_LIED, f"{about}: the submission is of {submission.hotkey[:64]}")
    if submission.commitment_sha256 != commitment.sha256:
        raise ArenaError(PEER_LIED, f"{about}: the source is another")
    if not is_authentic(submission, verify_signature, is_commitment_enough=is_commitment_enough):
        raise ArenaError(PEER_LIED, f"{about}: the submission is not signed by it")
