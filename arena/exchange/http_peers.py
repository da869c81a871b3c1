"""Peers over HTTP: signed requests, and answers that cost bounded memory and time, from any sender.

No redirect, proxy or compressed answer is followed; an answer over its size or a line over its length ends the
connection; a peer that does not answer counts as away. Only the form of an answer is checked here.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast
from urllib.parse import urlencode

import httpx2
import msgspec

from arena.chain.keys import HttpAuth
from arena.exchange.port import LINE_BYTES_MAX, Answer, Peer, Question, RowsQuestion
from arena.export.files import read_row
from arena.export.model import LogRow
from foundation.bounded_http import Lines, UnfitAnswerError, answering, read_whole
from foundation.canonical import UNREADABLE_JSON, read_canonical
from foundation.codes import PEER_AWAY, PEER_LACKS, PEER_LIED, PEER_REFUSED
from foundation.errors import ArenaError

CONNECT_S, SILENCE_S, ANSWER_S = 5.0, 20.0, 30.0
CONNECTIONS = 512  # 128 validators may each keep some of them waiting
_REFUSAL_BYTES_MAX = 16 << 10


class ServedRefusal(msgspec.Struct):
    """What a client reads of an answer that is an error."""

    code: str
    message: str = ""


class HttpPeers:
    """The other validators at the addresses they publish. Close it when done.

    Asking raises ArenaError U3040 where the peer is away, U3041 where it refuses, U3042 for what can't be an answer.
    """

    def __init__(self, auth: HttpAuth, *, silence_s: float = SILENCE_S, answer_s: float = ANSWER_S) -> None:
        """`silence_s` without a byte, and `answer_s` for a whole answer that is not rows, count as absence."""
        self._auth, self._answer_s = auth, answer_s
        self._client = httpx2.AsyncClient(
            timeout=httpx2.Timeout(silence_s, connect=CONNECT_S),
            limits=httpx2.Limits(max_connections=CONNECTIONS, max_keepalive_connections=CONNECTIONS),
            follow_redirects=False,
            trust_env=False,
        )

    async def aclose(self) -> None:
        """Drop every connection."""
        await self._client.aclose()

    async def ask(self, peer: Peer, question: Question[Answer]) -> Answer | None:
        """The answer; None where the peer does not have it."""
        try:
            async with asyncio.timeout(self._answer_s), self._answer(peer, question) as answer:
                content = await read_whole(answer, question.bytes_max)
        except TimeoutError as error:
            raise ArenaError(PEER_AWAY, f"{peer.hotkey}: no answer within {self._answer_s:g} s") from error
        except _UnknownError:
            return None
        try:
            found: Any = content if question.answer is bytes else read_canonical(content, question.answer)
        except UNREADABLE_JSON as error:
            raise ArenaError(PEER_LIED, f"{peer.hotkey}: {question.kind}: {str(error)[:200]}") from error
        return cast("Answer", found)

    async def rows(self, peer: Peer, question: RowsQuestion) -> AsyncGenerator[LogRow]:
        """The rows, in order. Memory is bounded by a line; time is its reader's to bound."""
        lines = Lines(LINE_BYTES_MAX)
        async with self._answer(peer, question) as answer:
            async for piece in answer.aiter_raw():
                for line in lines.feed(piece):
                    try:
                        row = read_row(line)
                    except ArenaError as error:
                        raise ArenaError(PEER_LIED, f"{peer.hotkey}: no row: {error.failure.detail[:200]}") from error
                    yield row
            if lines.is_within_one:
                raise ArenaError(PEER_AWAY, f"{peer.hotkey}: the answer ended within a row")

    @asynccontextmanager
    async def _answer(self, peer: Peer, question: Question[Answer] | RowsQuestion) -> AsyncIterator[httpx2.Response]:
        """An answer of 200, to be read. Raises ArenaError U3040 to U3042, _UnknownError."""
        if not peer.endpoint:
            raise ArenaError(PEER_AWAY, f"{peer.hotkey} publishes no address")
        target = f"/v1/exchange/{question.kind}?{urlencode(msgspec.to_builtins(question))}"
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


async def _refused(peer: Peer, answer: httpx2.Response) -> ArenaError:
    """What an answer other than 200 means."""
    content = await read_whole(answer, _REFUSAL_BYTES_MAX)
    try:
        refusal = msgspec.json.decode(content, type=ServedRefusal)
    except UNREADABLE_JSON:
        return ArenaError(PEER_AWAY, f"{peer.hotkey}: status {answer.status_code}")
    detail = f"{peer.hotkey}: {refusal.code[:8]} {refusal.message[:200]}"
    if answer.status_code >= 500:
        return ArenaError(PEER_AWAY, detail)
    return (_UnknownError if refusal.code == PEER_LACKS else ArenaError)(PEER_REFUSED, detail)
