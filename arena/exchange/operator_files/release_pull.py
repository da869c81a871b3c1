"""Fetching the operator's files: the newest release from any peer, then each file, piece by piece, from any that has
it.

A release counts once its signature, subnet and number fit; a piece is kept once its hash is the release's. A
peer that lies or does not answer is named and asked for nothing more in this turn; the next one is asked. Memory is
bounded by a piece, time by what one answer may take. What was fetched stays, however a turn ends.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Sequence

import msgspec

from arena.chain.port import Verifier
from arena.exchange.operator_files.release import (
    PIECE_BYTES,
    Operator,
    SharedFile,
    SignedRelease,
    check_release,
)
from arena.exchange.operator_files.release_store import ReleaseStore
from arena.exchange.port import Complaint, Peer, Peers
from foundation.codes.names import PEER_AWAY, PEER_LIED, PEER_REFUSED, RELEASE_OLDER, RELEASE_TWICE, RELEASE_UNSIGNED
from foundation.errors import ArenaError

ASKED_AT_ONCE = 8
_PEER_CODES = (PEER_AWAY, PEER_REFUSED, PEER_LIED, RELEASE_UNSIGNED)
_RELEASE_CODES = (*_PEER_CODES, RELEASE_OLDER, RELEASE_TWICE)


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
                    _blame(peer, error, complaints, _PEER_CODES)
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
                _blame(peer, error, complaints, _PEER_CODES)
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
