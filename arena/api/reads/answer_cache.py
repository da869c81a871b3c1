"""Whole answers, kept until the board that they were made from is refreshed, around the application of the reads.

Promise: an answer is kept no longer than the board itself stands (`Board.is_fresh`: a second, or until an embargo ends),
so it shows what a read at that moment may see. Only whole 200 answers with an ETag are kept, and memory is bounded.
Whether somebody may ask so often is decided before (`arena.api.limits`).
"""

from __future__ import annotations

from typing import NamedTuple

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from arena.api.reads.board import Board

ANSWERS_MAX, ANSWER_BYTES_MAX = 512, 64 << 10
_OF_PARTS = frozenset({b"range", b"if-range"})


class _Answer(NamedTuple):
    start: Message
    body: bytes


class AnswerCache:
    """Answers GET requests from memory where the same was asked since the board's last refresh."""

    def __init__(self, app: ASGIApp, board: Board) -> None:
        self._app, self._board = app, board
        self._epoch = -1
        self._answers: dict[tuple[bytes, bytes], _Answer] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if (
            scope["type"] != "http"
            or scope["method"] != "GET"
            or any(name in _UNCACHED for name, _ in scope["headers"])
        ):
            await self._app(scope, receive, send)
            return
        key = scope["raw_path"], scope["query_string"]
        found = self._kept().get(key) if self._board.is_fresh else None
        if found is None:
            await self._app(scope, receive, self._keeping(key, send))
        else:
            await send(found.start)
            await send({"type": "http.response.body", "body": found.body})

    def _kept(self) -> dict[tuple[bytes, bytes], _Answer]:
        if self._epoch != self._board.epoch:
            self._epoch = self._board.epoch
            self._answers.clear()
        return self._answers

    def _keeping(self, key: tuple[bytes, bytes], send: Send) -> Send:
        start: Message = {}

        async def kept(message: Message) -> None:
            if message["type"] == "http.response.start":
                start.update(message)
            elif start["status"] == 200 and "etag" in Headers(raw=start["headers"]) and not message.get("more_body"):
                body, answers = message.get("body", b""), self._kept()
                if self._board.is_fresh and len(answers) < ANSWERS_MAX and len(body) <= ANSWER_BYTES_MAX:
                    answers[key] = _Answer(dict(start), body)
            await send(message)

        return kept
