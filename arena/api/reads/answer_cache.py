"""Whole answers, kept until the board that they were made from is refreshed, around the application of the reads.

An answer is kept no longer than the board itself stands (`Board.is_fresh`: a second, or an embargo's end), so
it shows what a read at that moment may see. Only whole 200 answers with an ETag are kept, and of what is made of the
board alone that it is not there or not yet open (403, 404); memory is bounded, and refusals take no place of answers.
An answer may print the host that it was asked by, so nobody gets one that was made for another host.
Whether somebody may ask so often is decided before (`arena.api.limits`).
"""

from __future__ import annotations

import re
from typing import NamedTuple

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from arena.api.reads.board import Board
from arena.api.reads.delivery import is_known

ANSWERS_MAX, ANSWER_BYTES_MAX = 512, 64 << 10
REFUSALS_MAX, REFUSED_TARGET_BYTES_MAX = 64, 256
_OF_BOARD = re.compile(r"/v1/leaderboard|/v1/races/[^/]+(/leaderboard|/settlement)?|/v1/agents/[^/]+")
_REFUSED = frozenset({403, 404})
_OF_PARTS = frozenset({b"range", b"if-range"})
_OK, _UNCHANGED = 200, 304
_Key = tuple[bytes, ...]  # path, query, and the hosts that were named


class _Answer(NamedTuple):
    start: Message
    etag: str
    body: bytes


class AnswerCache:
    """Answers GET requests from memory where the same was asked since the board's last refresh."""

    def __init__(self, app: ASGIApp, board: Board) -> None:
        self._app, self._board = app, board
        self._epoch = -1
        self._answers: dict[_Key, _Answer] = {}
        self._refusals = 0  # of them

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        is_read = scope["type"] == "http" and scope["method"] == "GET"
        if not is_read or any(name in _OF_PARTS for name, _ in scope["headers"]):
            await self._app(scope, receive, send)
            return
        hosts = (value for name, value in scope["headers"] if name == b"host")
        key = scope["raw_path"], scope["query_string"], *hosts
        is_fresh = self._board.is_fresh
        found = self._kept().get(key) if is_fresh else None
        if found is None:  # whoever asks a board that is not fresh gets the next epoch's answer
            is_of_board = _OF_BOARD.fullmatch(scope["path"]) is not None
            keeping = self._keeping(key, self._board.epoch + (not is_fresh), send, is_of_board=is_of_board)
            await self._app(scope, receive, keeping)
        elif found.etag and is_known(found.etag, Headers(scope=scope).get("if-none-match", "")):
            bare = [(name, value) for name, value in found.start["headers"] if not name.startswith(b"content-")]
            await send({**found.start, "status": _UNCHANGED, "headers": bare})
            await send({"type": "http.response.body"})
        else:
            await send(found.start)
            await send({"type": "http.response.body", "body": found.body})

    def _kept(self) -> dict[_Key, _Answer]:
        if self._epoch != self._board.epoch:
            self._epoch = self._board.epoch
            self._answers.clear()
            self._refusals = 0
        return self._answers

    def _keeping(self, key: _Key, epoch: int, send: Send, *, is_of_board: bool) -> Send:
        """Sends an answer on, and keeps it when it is one whole piece and the board's epoch is still this one."""
        start: Message = {}

        async def kept(message: Message) -> None:
            if message["type"] == "http.response.start":
                start.update(message)
            elif (start["status"] == _OK or (is_of_board and start["status"] in _REFUSED)) and not message.get(
                "more_body"
            ):
                headers, body, answers = Headers(raw=start["headers"]), message.get("body", b""), self._kept()
                is_whole = headers.get("content-length") == str(len(body)) and len(body) <= ANSWER_BYTES_MAX
                is_current = self._board.is_fresh and self._board.epoch == epoch
                is_refusal = start["status"] != _OK
                if is_refusal:
                    has_place = self._refusals < REFUSALS_MAX and sum(map(len, key)) <= REFUSED_TARGET_BYTES_MAX
                else:
                    has_place = "etag" in headers and len(answers) - self._refusals < ANSWERS_MAX
                if is_whole and is_current and has_place:
                    self._refusals += is_refusal and key not in answers
                    answers[key] = _Answer(dict(start), headers.get("etag", ""), body)
            await send(message)

        return kept
