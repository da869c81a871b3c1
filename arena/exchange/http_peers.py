"""Peers over HTTP: signed requests, and answers that cost bounded memory and time, whoever sends them.

No redirect, proxy or compressed answer is followed; an answer over its size, a line over its length or a row
too many ends the connection; a peer that does not answer counts as away. Only the form of an answer is checked here.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from types import TracebackType
from typing import TypeVar
from urllib.parse import urlencode

import httpx2
import msgspec

from arena.chain.port import RequestAuth
from arena.exchange.operator_files import RELEASE_BYTES_MAX, SignedRelease
from arena.exchange.port import LINE_BYTES_MAX, NOTE_BYTES_MAX, Peer, Progress
from arena.export.files import read_row
from arena.export.model import LogRow
from arena.records.model import SettlementRecord
from arena.submissions.model import SUBMISSION_BYTES_MAX, SignedSubmission
from foundation.bounded_http import Lines, UnfitAnswerError, answering, read_whole
from foundation.canonical import UNREADABLE_JSON, read_canonical
from foundation.codes.names import PEER_AWAY, PEER_LACKS, PEER_LIED, PEER_REFUSED
from foundation.errors import ArenaError

CONNECT_S, SILENCE_S, ANSWER_S = 5.0, 20.0, 30.0
CONNECTIONS = 32
PROGRESS_BYTES_MAX, SETTLEMENT_BYTES_MAX = 16 << 20, 8 << 20
_REFUSAL_BYTES_MAX = 16 << 10

_Value = TypeVar("_Value")


class _PeerRefusal(msgspec.Struct):
    code: str
    message: str = ""


class HttpPeers:
    """The other validators at the addresses they publish. Close it when done."""

    def __init__(self, auth: RequestAuth, *, silence_s: float = SILENCE_S, answer_s: float = ANSWER_S) -> None:
        """`silence_s` without a byte, and `answer_s` for a whole answer that is not rows, count as absence."""
        self._auth, self._answer_s = auth, answer_s
        self._client = httpx2.AsyncClient(
            timeout=httpx2.Timeout(silence_s, connect=CONNECT_S),
            limits=httpx2.Limits(max_connections=CONNECTIONS, max_keepalive_connections=CONNECTIONS),
            follow_redirects=False,
            trust_env=False,
        )

    async def close(self) -> None:
        """Drop every connection."""
        await self._client.aclose()

    async def __aenter__(self) -> HttpPeers:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self.close()

    async def note(self, peer: Peer, validator: str, note_sha256: str) -> str | None:
        """As `Peers.note`."""
        return await self._value(peer, "note", str, 2 * NOTE_BYTES_MAX, validator=validator, sha256=note_sha256)

    async def rows(
        self, peer: Peer, validator: str, *, after_seq: int, to_seq: int, race_id: str
    ) -> AsyncGenerator[LogRow]:
        """As `Peers.rows`. Memory is bounded by a line; time is its reader's to bound."""
        target = _target("rows", validator=validator, after=after_seq, to=to_seq, race=race_id)
        left = to_seq - after_seq
        async with self._answer(peer, target) as answer, aclosing(_lines(peer, answer)) as lines:
            async for line in lines:
                left -= 1
                if left < 0:
                    raise ArenaError(PEER_LIED, f"{peer.hotkey}: more rows than were asked for")
                try:
                    row = read_row(line)
                except ArenaError as error:
                    raise ArenaError(PEER_LIED, f"{peer.hotkey}: no row: {error.failure.detail[:200]}") from error
                yield row

    async def submission(self, peer: Peer, commitment_sha256: str) -> SignedSubmission | None:
        """As `Peers.submission`."""
        return await self._value(
            peer, "submission", SignedSubmission, SUBMISSION_BYTES_MAX, commitment=commitment_sha256
        )  # fmt: skip

    async def settlement(self, peer: Peer, race_id: str) -> SettlementRecord | None:
        """As `Peers.settlement`."""
        found = await self._value(peer, "settlement", SettlementRecord, SETTLEMENT_BYTES_MAX, race=race_id)
        if found is not None and found.race_id != race_id:
            raise ArenaError(PEER_LIED, f"{peer.hotkey}: the settlement of another race")
        return found

    async def progress(self, peer: Peer, race_id: str) -> Progress | None:
        """As `Peers.progress`."""
        found = await self._value(peer, "progress", Progress, PROGRESS_BYTES_MAX, race=race_id)
        if found is not None and (found.validator, found.race_id) != (peer.hotkey, race_id):
            raise ArenaError(PEER_LIED, f"{peer.hotkey}: progress of another validator or race")
        return found

    async def release(self, peer: Peer, known_sha256: str) -> SignedRelease | None:
        """As `Peers.release`."""
        return await self._value(peer, "release", SignedRelease, RELEASE_BYTES_MAX, known=known_sha256)

    async def file_piece(self, peer: Peer, sha256: str, *, start: int, size: int) -> bytes | None:
        """As `Peers.file_piece`."""
        return await self._content(peer, "file", size, sha256=sha256, start=start)

    async def _value(
        self, peer: Peer, route: str, kind: type[_Value], bytes_max: int, **parameters: str | int
    ) -> _Value | None:
        content = await self._content(peer, route, bytes_max, **parameters)
        if content is None:
            return None
        try:
            return read_canonical(content, kind)
        except UNREADABLE_JSON as error:
            raise ArenaError(PEER_LIED, f"{peer.hotkey}: {route}: {str(error)[:200]}") from error

    async def _content(self, peer: Peer, route: str, bytes_max: int, **parameters: str | int) -> bytes | None:
        """A whole answer, or None where the peer does not have it."""
        try:
            async with asyncio.timeout(self._answer_s), self._answer(peer, _target(route, **parameters)) as answer:
                return await read_whole(answer, bytes_max)
        except TimeoutError as error:
            raise ArenaError(PEER_AWAY, f"{peer.hotkey}: no answer within {self._answer_s:g} s") from error
        except _UnknownError:
            return None

    @asynccontextmanager
    async def _answer(self, peer: Peer, target: str) -> AsyncIterator[httpx2.Response]:
        """An answer of 200, to be read. Raises ArenaError U3040 to U3042, _UnknownError."""
        if not peer.endpoint:
            raise ArenaError(PEER_AWAY, f"{peer.hotkey} publishes no address")
        headers = self._auth.sign("GET", target, peer.hotkey)
        try:
            async with answering(self._client, "GET", peer.endpoint.rstrip("/") + target, headers=headers) as answer:
                if answer.status_code != httpx2.codes.OK:
                    raise await _refused(peer, answer)
                yield answer
        except UnfitAnswerError as error:
            raise ArenaError(PEER_LIED, f"{peer.hotkey}: {error}") from error
        except (httpx2.TransportError, httpx2.StreamError, httpx2.InvalidURL) as error:
            raise ArenaError(PEER_AWAY, f"{peer.hotkey}: {str(error) or type(error).__name__}") from error


class _UnknownError(ArenaError):
    """The peer does not have it, or may not show it yet."""

    def __init__(self, detail: str) -> None:
        super().__init__(PEER_REFUSED, detail)


def _target(route: str, **parameters: str | int) -> str:
    return f"/v1/exchange/{route}?{urlencode(parameters)}"


async def _refused(peer: Peer, answer: httpx2.Response) -> ArenaError:
    """What an answer other than 200 means."""
    content = await read_whole(answer, _REFUSAL_BYTES_MAX)
    try:
        refusal = msgspec.json.decode(content, type=_PeerRefusal)
    except UNREADABLE_JSON:
        return ArenaError(PEER_AWAY, f"{peer.hotkey}: status {answer.status_code}")
    detail = f"{peer.hotkey}: {refusal.code[:8]} {refusal.message[:200]}"
    if answer.status_code >= 500:
        return ArenaError(PEER_AWAY, detail)
    return _UnknownError(detail) if refusal.code == PEER_LACKS else ArenaError(PEER_REFUSED, detail)


async def _lines(peer: Peer, answer: httpx2.Response) -> AsyncGenerator[bytes]:
    """The lines of a stream without their ends. Raises UnfitAnswerError for one too long, ArenaError U3040 for one cut
    short."""
    lines = Lines(LINE_BYTES_MAX)
    async for piece in answer.aiter_raw():
        for line in lines.feed(piece):
            yield line
    if lines.is_within_one:
        raise ArenaError(PEER_AWAY, f"{peer.hotkey}: the answer ended within a row")
