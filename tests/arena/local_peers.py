"""Peers within one process: their services themselves, with faults that can be set. The twin of `HttpPeers`.

The same answers and the same codes as over HTTP, signatures of requests left out. Simulations and tests run on
it; a fault is a value, and waiting goes through the sleep passed in.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import aclosing, contextmanager
from typing import Any

import msgspec

from arena.exchange.peer_service import PeerService
from arena.exchange.port import Answer, Peer, Question, RowsQuestion
from arena.export.model import LogRow
from arena.records.model import SettlementRecord
from arena.submissions.submission import SignedSubmission
from foundation.codes import PEER_AWAY, PEER_REFUSED
from foundation.errors import ArenaError


class PeerFault(msgspec.Struct, frozen=True, kw_only=True):
    """How a peer misbehaves, until it is set otherwise."""

    is_away: bool = False
    slow_s: float = 0.0  # before each answer
    is_lying: bool = False  # notes, sources, settlements and whole rows come with other contents
    is_withholding: bool = False  # whole rows come as stubs
    rows_max: int | None = None  # an answer breaks off behind so many rows


class LocalPeers:
    """The other services as one validator sees them."""

    def __init__(self, caller: str, *, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep) -> None:
        self.services: dict[str, PeerService] = {}
        self.faults: dict[str, PeerFault] = {}
        self._caller, self._sleep = caller, sleep

    async def ask(self, peer: Peer, question: Question[Answer]) -> Answer | None:
        """As `HttpPeers.ask`."""
        service, fault = await self._reach(peer)
        with _refusals(peer):
            found: Any = await service.answer(self._caller, question)
        return _falsified(found) if fault.is_lying else found

    async def rows(self, peer: Peer, question: RowsQuestion) -> AsyncGenerator[LogRow]:
        """As `HttpPeers.rows`."""
        service, fault = await self._reach(peer)
        sent = 0
        with _refusals(peer):
            async with aclosing(await service.rows(self._caller, question)) as rows:
                async for row in rows:
                    if sent == fault.rows_max:
                        raise ArenaError(PEER_AWAY, f"{peer.hotkey} broke off")
                    if row.content is not None and fault.is_withholding:
                        row = msgspec.structs.replace(row, content=None, body=None, withheld="unreleased")
                    elif row.content is not None and fault.is_lying:
                        other = bytes(row.content).replace(b"true", b"null")
                        row = msgspec.structs.replace(row, content=msgspec.Raw(other))
                    yield row
                    sent += 1

    async def _reach(self, peer: Peer) -> tuple[PeerService, PeerFault]:
        service, fault = self.services.get(peer.hotkey), self.faults.get(peer.hotkey, PeerFault())
        if fault.slow_s:
            await self._sleep(fault.slow_s)
        if service is None or fault.is_away:
            raise ArenaError(PEER_AWAY, peer.hotkey)
        return service, fault


def _falsified(found: Any) -> Any:
    match found:
        case str():
            return found + "\n"
        case bytes():
            return bytes(byte ^ 1 for byte in found)
        case SignedSubmission():
            return msgspec.structs.replace(found, source=found.source + "#\n")
        case SettlementRecord():
            return msgspec.structs.replace(found, seed="00" * 32)
    return found


@contextmanager
def _refusals(peer: Peer) -> Iterator[None]:
    """A service's own codes as its caller sees them: its server's troubles are an absence, the rest a refusal."""
    try:
        yield
    except ArenaError as error:
        code = error.failure.code
        if code.startswith("U304"):
            raise
        away = code.startswith("V202") or code == "V2064"
        raise ArenaError(
            PEER_AWAY if away else PEER_REFUSED, f"{peer.hotkey}: {code} {error.failure.detail}"
        ) from error
