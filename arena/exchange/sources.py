"""Agents' sources between permit holders: the relay that fetches those the chain knows and our store does not.

A submission is taken from a peer only when its hotkey and source have the hash that the chain holds for that
hotkey, and the hotkey signed it; then it goes to admission, as if its miner had brought it. A peer
that lies or does not answer is named and asked for nothing more in that turn; with whom a turn begins goes round.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from arena.chain.keys import canonical_hotkey
from arena.chain.port import Commitment, Verifier
from arena.exchange.http_peers import HttpPeers
from arena.exchange.port import Complaint, Peer, SubmissionQuestion
from arena.records.log import SHA256
from arena.records.port import EVERY_STATE
from arena.store.postgres import PostgresStore
from arena.submissions.model import SUBMISSION_BYTES_MAX, SignedSubmission, is_agent_name, is_authentic
from foundation.backoff import Backoff, NextTry
from foundation.codes import PEER_LIED
from foundation.errors import ArenaError

FETCHES_AT_ONCE = 4
PAUSES = Backoff(first_ms=30_000, most_ms=1_800_000)  # before asking again for a commitment that no peer knew


class SourceRelay:
    """Fetches what the chain knows and the store does not."""

    def __init__(
        self,
        peers: HttpPeers,
        store: PostgresStore,
        verify_signature: Verifier,
        deliver: Callable[[SignedSubmission, int], Awaitable[object]],
        *,
        now_ms: Callable[[], int],
        is_commitment_enough: bool = False,
    ) -> None:
        """`deliver` gets each submission, with its commitment's block, and puts it into the store.
        `is_commitment_enough`: the policy's, whether a submission may have no signature."""
        self._peers, self._store, self._verify, self._deliver = peers, store, verify_signature, deliver
        self._now_ms, self._places = now_ms, asyncio.Semaphore(FETCHES_AT_ONCE)
        self._is_commitment_enough = is_commitment_enough
        self._here: set[str] = set()  # commitments whose submission is in the store
        self._asked: dict[str, NextTry] = {}  # by commitment
        self._turns = 0

    async def fetch(
        self, commitments: Sequence[Commitment], peers: Sequence[Peer]
    ) -> tuple[list[str], list[Complaint]]:
        """Ask for those of these commitments that are unknown and due, and deliver each as soon as it was found; those
        delivered, and who answered wrongly. Validators' own are no sources: leave them out.

        Raises ArenaError V2021, and what `deliver` does.
        """
        now_ms = self._now_ms()
        wanted = {c.sha256: c for c in commitments if SHA256.fullmatch(c.sha256) and not await self._is_here(c)}
        self._asked = {name: asked for name, asked in self._asked.items() if name in wanted}
        due = [c for c in wanted.values() if self._asked.get(c.sha256, NextTry()).not_before_ms <= now_ms]
        complaints, delivered = dict[str, Complaint](), list[str]()  # complaints by peer

        async def bring(number: int, commitment: Commitment) -> None:
            turned = number % max(1, len(peers))  # so that no peer is always the first
            submission = await self._fetch_one(commitment, [*peers[turned:], *peers[:turned]], complaints)
            if submission is None:
                asked = self._asked.get(commitment.sha256, NextTry())
                self._asked[commitment.sha256] = PAUSES.after(asked, now_ms)
            else:
                await self._deliver(submission, commitment.block)
                delivered.append(commitment.sha256)

        self._turns += 1
        await asyncio.gather(*(bring(number, each) for number, each in enumerate(due, self._turns)))
        return delivered, list(complaints.values())

    async def _is_here(self, commitment: Commitment) -> bool:
        if commitment.sha256 not in self._here:
            rows = await self._store.submissions(EVERY_STATE, miner_hotkey=commitment.hotkey)
            self._here.update(row.subject.commitment_sha256 for row in rows)
        return commitment.sha256 in self._here

    async def _fetch_one(
        self, commitment: Commitment, order: Sequence[Peer], complaints: dict[str, Complaint]
    ) -> SignedSubmission | None:
        """The submission from the first of these peers that has it; one that a complaint is about is not asked."""
        question = SubmissionQuestion(hotkey=commitment.hotkey, sha256=commitment.sha256)
        async with self._places:
            for peer in order:
                if peer.hotkey in complaints:
                    continue
                try:
                    found = await self._peers.ask(peer, question)
                    if found is not None:
                        require_committed(
                            found, commitment, self._verify, is_commitment_enough=self._is_commitment_enough
                        )
                        return found
                except ArenaError as error:
                    complaints.setdefault(peer.hotkey, Complaint(peer=peer.hotkey, failure=error.failure))
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
