"""The body of a submission: read within a size and a time, and taken apart by a strict reader of multipart/form-data.

Memory is bounded by the size, work is linear in it, and nothing is unpacked: a compressed body is refused, and
so is a part in a transfer encoding. A file's name is never looked at. Own code, since no multipart library is among the
dependencies; of RFC 7578 it reads what clients send and refuses the rest (no preamble, no unknown or doubled part).
"""

from __future__ import annotations

import asyncio
import contextlib
from email.message import Message

import msgspec
from starlette.requests import ClientDisconnect, Request

from foundation.errors import ArenaError

UNSIGNED_PARTS = ("agent_name", "file")
PARTS = (*UNSIGNED_PARTS, "submitted_ms", "signature")
DISCARD_BYTES, DISCARD_S = 4 << 20, 2.0
_PART_HEAD_BYTES, _BOUNDARY_CHARS, _TEXT_BYTES, _DIGITS = 2_048, 70, 1_024, 15
_PLAIN = frozenset({"", "7bit", "8bit", "binary"})


class SubmissionForm(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of a submission; nothing of them is checked."""

    agent_name: str
    source: bytes
    submitted_ms: int
    signature: str


async def read_body(request: Request, most_bytes: int, within_s: float) -> bytes:
    """The whole body. Raises ArenaError V2202 beyond `most_bytes`, V2203 beyond `within_s`, V2204 if encoded."""
    if request.headers.get("content-encoding", "identity").lower() != "identity":
        raise ArenaError("V2204", "the body is compressed")
    declared = request.headers.get("content-length", "0")
    if declared.isdecimal() and int(declared[:20]) > most_bytes:
        await discard_body(request)
        raise ArenaError("V2202", f"more than {most_bytes} bytes")
    body = bytearray()
    try:
        async with asyncio.timeout(within_s):
            async for piece in request.stream():
                body += piece
                if len(body) > most_bytes:
                    raise ArenaError("V2202", f"more than {most_bytes} bytes")
    except TimeoutError as error:
        raise ArenaError("V2203", f"not whole after {within_s:g} s") from error
    except ClientDisconnect as error:
        raise ArenaError("V2203", "the client left") from error
    return bytes(body)


async def discard_body(request: Request) -> None:
    """Let a body of a stated length go by, within a size and a time, before it is refused: a connection that is closed
    while its client sends loses the answer."""
    if request.headers.get("content-length", "0") == "0":
        return
    left = DISCARD_BYTES
    with contextlib.suppress(TimeoutError, ClientDisconnect):
        async with asyncio.timeout(DISCARD_S):
            async for piece in request.stream():
                left -= len(piece)
                if left < 0:
                    return


def read_form(content_type: str, body: bytes) -> SubmissionForm:
    """The parts of a body. Raises ArenaError V2204 for anything that is not exactly the four PARTS."""
    parts = _read_parts(content_type, body, PARTS)
    submitted = _text(parts["submitted_ms"])
    if not (submitted.isascii() and submitted.isdecimal() and len(submitted) <= _DIGITS):
        raise ArenaError("V2204", "submitted_ms is not unix milliseconds")
    return SubmissionForm(
        agent_name=_text(parts["agent_name"]),
        source=parts["file"],
        submitted_ms=int(submitted),
        signature=_text(parts["signature"]),
    )


def read_unsigned_form(content_type: str, body: bytes, now_ms: int) -> SubmissionForm:
    """As `read_form`, of a body with the UNSIGNED_PARTS alone, submitted now."""
    parts = _read_parts(content_type, body, UNSIGNED_PARTS)
    return SubmissionForm(
        agent_name=_text(parts["agent_name"]), source=parts["file"], submitted_ms=now_ms, signature=""
    )


def _read_parts(content_type: str, body: bytes, names: tuple[str, ...]) -> dict[str, bytes]:
    header = _header("content-type", content_type)
    boundary = header.get_param("boundary", "")
    if header.get_content_type() != "multipart/form-data" or not isinstance(boundary, str):
        raise ArenaError("V2204", "the content type is not multipart/form-data")
    if not 0 < len(boundary) <= _BOUNDARY_CHARS or not boundary.isascii():
        raise ArenaError("V2204", "the boundary is missing or too long")
    before, *sections = (b"\r\n" + body).split(b"\r\n--" + boundary.encode(), len(names) + 2)
    if before or not sections or sections[-1].rstrip(b"\r\n") != b"--":
        raise ArenaError("V2204", f"not between boundaries, or not {len(names)} parts")
    parts: dict[str, bytes] = {}
    for section in sections[:-1]:
        name, content = _part(section)
        if name not in names or name in parts:
            raise ArenaError("V2204", f"part {name[:64]!a} is unknown or there twice")
        parts[name] = content
    if missing := [name for name in names if name not in parts]:
        raise ArenaError("V2204", f"part {missing[0]} is missing")
    return parts


def _part(section: bytes) -> tuple[str, bytes]:
    head, is_ended, content = section.partition(b"\r\n\r\n")
    if not is_ended or not head.startswith(b"\r\n") or len(head) > _PART_HEAD_BYTES:
        raise ArenaError("V2204", "a part has no head, or too long a one")
    name = ""
    for line in head.decode("latin-1").split("\r\n")[1:]:
        field, _, value = line.partition(":")
        if field.lower() == "content-transfer-encoding" and value.strip().lower() not in _PLAIN:
            raise ArenaError("V2204", "a part is encoded")
        if field.lower() == "content-disposition":
            named = _header(field, value.strip()).get_param("name", "", header=field)
            name = named if isinstance(named, str) else ""
    return name, content


def _header(field: str, value: str) -> Message:
    message = Message()
    message[field] = value.replace("\r", "").replace("\n", "")
    return message


def _text(content: bytes) -> str:
    if len(content) > _TEXT_BYTES:
        raise ArenaError("V2204", f"a text of more than {_TEXT_BYTES} bytes")
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ArenaError("V2204", "a text that is not UTF-8") from error
