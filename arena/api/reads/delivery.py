"""Bytes as an answer: an ETag over their hash, conditional requests, one range of them.

Equal bytes have equal ETags, so a client that asks again gets 304; a range is answered from the bytes that the
ETag names, or, where `If-Range` names others, by the whole.
"""

from __future__ import annotations

import hashlib
import re

import msgspec
from fastapi import Request
from starlette.responses import Response

from arena.api.refusals import refusal
from foundation.errors import ArenaError

_RANGE = re.compile(r"bytes=(\d{0,18})-(\d{0,18})")


def deliver(request: Request, content: bytes, media_type: str, *, name: str = "") -> Response:
    """The answer with these bytes, or the part of them that was asked for. `name`: what a browser saves it as."""
    etag = f'"{hashlib.sha256(content).hexdigest()}"'
    headers = {"etag": etag, "accept-ranges": "bytes", "cache-control": "no-cache"}
    if name:
        headers["content-disposition"] = f'attachment; filename="{name}"'
    asked = request.headers
    if is_known(etag, asked.get("if-none-match", "")):
        return Response(status_code=304, headers=headers)
    wanted = _RANGE.fullmatch(asked.get("range", "").strip())
    if wanted is None or wanted.groups() == ("", "") or asked.get("if-range", etag) != etag:
        return Response(content, 200, headers, media_type)
    first, last = wanted.groups()
    start = int(first) if first else max(0, len(content) - int(last))
    end = min(int(last), len(content) - 1) if first and last else len(content) - 1
    if start >= len(content) or (first and last and int(last) < start):
        answer = refusal(ArenaError("V2081", f"range: there are {len(content)} bytes"))
        answer.status_code = 416
        answer.headers["content-range"] = f"bytes */{len(content)}"
        return answer
    headers["content-range"] = f"bytes {start}-{end}/{len(content)}"
    return Response(content[start : end + 1], 206, headers, media_type)


def is_known(etag: str, if_none_match: str) -> bool:
    """Whether a client that sent this `If-None-Match` has the bytes already."""
    known = [each.strip().removeprefix("W/") for each in if_none_match.split(",")]
    return etag in known or known == ["*"]


def deliver_json(request: Request, value: object) -> Response:
    """A value as JSON, with its ETag."""
    return deliver(request, msgspec.json.encode(value), "application/json")
