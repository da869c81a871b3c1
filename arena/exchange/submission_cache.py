"""Agents' sources between permit holders: a cache of signed submissions by commitment, and the relay that fills it.

A submission is taken from a peer only when its hotkey and source have the hash that the chain holds for that
hotkey, and the hotkey signed it; then it goes into the cache and to whoever admits submissions, as if its miner had
brought it. A peer that lies or does not answer is named and asked for nothing more in that turn; with whom a turn
begins goes round. The cache holds a bounded number, the oldest go first; files appear whole or not at all.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import msgspec

from arena.chain.keys import canonical_hotkey
from arena.chain.port import Commitment, Verifier
from arena.exchange.port import Complaint, Peer, Peers
from arena.submissions.model import SUBMISSION_BYTES_MAX, SignedSubmission, is_agent_name, is_authentic
from foundation.backoff import Backoff
from foundation.canonical import UNREADABLE_JSON
from foundation.codes.names import PEER_LIED
from foundation.durable_files import write_whole
from foundation.errors import ArenaError

CACHED_MAX = 4_096
FETCHES_AT_ONCE = 4
PAUSES = Backoff(first_ms=30_000, most_ms=1_800_000)  # before asking again for a commitment that no peer knew
_SHA256 = re.compile("[0-9a-f]{64}")


class SubmissionCache:
    """Signed submissions in a folder, by the commitment that stands on chain for each."""

    def __init__(self, folder: Path, *, most: int = CACHED_MAX) -> None:
        """Raises ArenaError V2114 when the folder can't be made."""
        self._folder, self._most = folder, most
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ArenaError("V2114", f"{folder}: {error.strerror}") from error

    def put(self, submission: SignedSubmission) -> None:
        """Keep a submission whose commitment stands on chain. Raises ArenaError V2114."""
        try:
            write_whole(self._path(submission.commitment_sha256), msgspec.json.encode(submission))
            paths = list(self._folder.glob("*.json"))
            if len(paths) > self._most:  # the oldest go
                paths.sort(key=lambda path: path.stat().st_mtime_ns)
                for path in paths[: len(paths) - self._most]:
                    path.unlink(missing_ok=True)
        except OSError as error:
            raise ArenaError("V2114", f"{self._folder}: {error.strerror}") from error

    def get(self, commitment_sha256: str) -> SignedSubmission | None:
        """The submission of a commitment, or None. A file that can't be read counts as none."""
        if not _SHA256.fullmatch(commitment_sha256):
            return None
        try:
            found = msgspec.json.decode(self._path(commitment_sha256).read_bytes(), type=SignedSubmission)
        except (FileNotFoundError, *UNREADABLE_JSON):
            return None
        except OSError as error:
            raise ArenaError("V2114", f"{self._folder}: {error.strerror}") from error
        return found if _commitment_of(found) == commitment_sha256 else None

    def has(self, commitment_sha256: str) -> bool:
        """True when `get` would look at a file."""
        return bool(_SHA256.fullmatch(commitment_sha256)) and self._path(commitment_sha256).is_file()

    def _path(self, commitment_sha256: str) -> Path:
        return self._folder / f"{commitment_sha256}.json"


class Fetched(msgspec.Struct, frozen=True, kw_only=True):
    """One turn of the relay: what was delivered, and who answered wrongly."""

    delivered: tuple[str, ...]  # commitments
    complaints: tuple[Complaint, ...]


class SourceRelay:
    """Fetches what the chain knows and the cache does not."""

    def __init__(
        self,
        peers: Peers,
        cache: SubmissionCache,
        verify_signature: Verifier,
        deliver: Callable[[SignedSubmission, int], Awaitable[object]],
        *,
        now_ms: Callable[[], int],
        is_commitment_enough: bool = False,
    ) -> None:
        """`deliver` gets each submission, and its commitment's block, once it is to be cached.
        `is_commitment_enough`: the policy's, whether a submission may have no signature."""
        self._peers, self._cache, self._verify, self._deliver = peers, cache, verify_signature, deliver
        self._now_ms, self._places = now_ms, asyncio.Semaphore(FETCHES_AT_ONCE)
        self._is_commitment_enough = is_commitment_enough
        self._asked: dict[str, tuple[int, int]] = {}  # commitment -> not before, times asked in vain
        self._turns = 0

    async def fetch(self, commitments: Sequence[Commitment], peers: Sequence[Peer]) -> Fetched:
        """Ask for those of these commitments that are unknown and due, and deliver each as soon as it was found;
        validators' own are no sources: leave them out.

        Raises ArenaError V2114, and what `deliver` does.
        """
        now_ms = self._now_ms()
        wanted = {c.sha256: c for c in commitments if _SHA256.fullmatch(c.sha256) and not self._cache.has(c.sha256)}
        self._asked = {name: asked for name, asked in self._asked.items() if name in wanted}
        due = [c for c in wanted.values() if self._asked.get(c.sha256, (0, 0))[0] <= now_ms]
        complaints: dict[str, Complaint] = {}  # by peer
        asking = []
        for number, commitment in enumerate(due, self._turns):
            turned = number % max(1, len(peers))  # so that no peer is always the first
            order = [*peers[turned:], *peers[:turned]]
            asking.append(asyncio.create_task(self._fetch_one(commitment, order, complaints)))
        self._turns += 1
        delivered = []
        try:
            for answer in asyncio.as_completed(asking):
                commitment, submission = await answer
                if submission is None:
                    times = self._asked.get(commitment.sha256, (0, 0))[1] + 1
                    self._asked[commitment.sha256] = (now_ms + PAUSES.pause_ms(times), times)
                    continue
                await self._deliver(submission, commitment.block)  # first: what is in the cache is not asked for again
                await asyncio.to_thread(self._cache.put, submission)
                delivered.append(commitment.sha256)
        finally:
            for task in asking:
                task.cancel()
            await asyncio.gather(*asking, return_exceptions=True)
        return Fetched(delivered=tuple(delivered), complaints=tuple(complaints.values()))

    async def _fetch_one(
        self, commitment: Commitment, order: Sequence[Peer], complaints: dict[str, Complaint]
    ) -> tuple[Commitment, SignedSubmission | None]:
        """The submission from the first of these peers that has it; one that a complaint is about is not asked."""
        async with self._places:
            for peer in order:
                if peer.hotkey in complaints:
                    continue
                try:
                    found = await self._peers.submission(peer, commitment.sha256)
                    if found is not None:
                        require_committed(
                            found, commitment, self._verify, is_commitment_enough=self._is_commitment_enough
                        )
                        return commitment, found
                except ArenaError as error:
                    complaints.setdefault(peer.hotkey, Complaint(peer=peer.hotkey, failure=error.failure))
        return commitment, None


def require_committed(
    submission: SignedSubmission,
    commitment: Commitment,
    verify_signature: Verifier,
    *,
    is_commitment_enough: bool = False,
) -> None:
    """Raises ArenaError U3042 unless the submission is the one that this commitment of this hotkey stands for."""
    about = f"commitment {commitment.sha256[:16]} of {commitment.hotkey}"
    if len(submission.source) > SUBMISSION_BYTES_MAX or not is_agent_name(submission.name):
        raise ArenaError(PEER_LIED, f"{about}: no submission")
    if canonical_hotkey(submission.hotkey) != canonical_hotkey(commitment.hotkey):
        raise ArenaError(PEER_LIED, f"{about}: the submission is of {submission.hotkey[:64]}")
    if _commitment_of(submission) != commitment.sha256:
        raise ArenaError(PEER_LIED, f"{about}: the source is another")
    if not is_authentic(submission, verify_signature, is_commitment_enough=is_commitment_enough):
        raise ArenaError(PEER_LIED, f"{about}: the submission is not signed by it")


def _commitment_of(submission: SignedSubmission) -> str:
    try:
        return submission.commitment_sha256
    except UnicodeEncodeError:  # lone surrogates have no UTF-8 bytes, so no hash on chain
        return ""
