"""The body of a submission: taken apart by a strict reader of multipart/form-data, and its file parsed in a process
that may die.

Memory is bounded by the size, work is linear in it, and nothing is unpacked. Own code, since no multipart library is
among the dependencies; of RFC 7578 it reads what clients send and refuses the rest.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import resource
import sys

import msgspec

from arena.gate.inspection import child_environment, parse, read_text
from arena.gate.rules import Finding, GateRules
from foundation.errors import ArenaError

UNSIGNED_PARTS = ("agent_name", "file")
PARTS = (*UNSIGNED_PARTS, "submitted_ms", "signature")
HEADER_BYTES_MAX = 512  # of a content type
_PART_HEAD_BYTES, _TEXT_BYTES, _DIGITS = 2_048, 1_024, 15
_BOUNDARY = r"[0-9A-Za-z'()+_,./:=? -]{0,69}[0-9A-Za-z'()+_,./:=?-]"  # RFC 2046
_KIND = re.compile(rf"multipart/form-data\s*;(?:.*;)?\s*boundary=(\"?)({_BOUNDARY})\1\s*(?:;.*)?", re.I)
_NAME = re.compile(r"^content-disposition:[^\r\n]*;[ \t]*name=(\"?)(\w{1,64})\1[ \t]*(?:;|\r|$)", re.I | re.M)
_ENCODED = re.compile(r"^content-transfer-encoding:[ \t]*+(?!(?:7bit|8bit|binary)?[ \t]*\r?$)", re.I | re.M)


class SubmissionForm(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of a submission; nothing of them is checked."""

    agent_name: str
    source: bytes
    submitted_ms: int
    signature: str


def read_form(content_type: str, body: bytes, now_ms: int | None = None) -> SubmissionForm:
    """The parts of a body. Raises ArenaError V2081 for anything that is not exactly the four PARTS; with `now_ms`, the
    UNSIGNED_PARTS alone, submitted now."""
    parts = _read_parts(content_type, body, PARTS if now_ms is None else UNSIGNED_PARTS)
    if now_ms is None:
        submitted = _text(parts["submitted_ms"])
        if not (submitted.isascii() and submitted.isdecimal() and len(submitted) <= _DIGITS):
            raise ArenaError("V2081", "submitted_ms is not unix milliseconds")
        now_ms = int(submitted)
    return SubmissionForm(
        agent_name=_text(parts["agent_name"]),
        source=parts["file"],
        submitted_ms=now_ms,
        signature=_text(parts.get("signature", b"")),
    )


def _read_parts(content_type: str, body: bytes, names: tuple[str, ...]) -> dict[str, bytes]:
    kind = _KIND.fullmatch(content_type) if len(content_type) <= HEADER_BYTES_MAX else None
    if kind is None:
        raise ArenaError("V2081", "the content type is not multipart/form-data with a boundary, or too long")
    before, *sections = (b"\r\n" + body).split(b"\r\n--" + kind[2].encode(), len(names) + 2)
    if before or not sections or sections[-1].rstrip(b"\r\n") != b"--":
        raise ArenaError("V2081", f"not between boundaries, or not {len(names)} parts")
    parts: dict[str, bytes] = {}
    for section in sections[:-1]:
        head, is_ended, content = section.partition(b"\r\n\r\n")
        told = head.decode("latin-1") if len(head) <= _PART_HEAD_BYTES else ""
        name = _NAME.search(told)
        if not is_ended or name is None or _ENCODED.search(told):
            raise ArenaError("V2081", "a part has no name, too long a head, or is encoded")
        if name[2] not in names or name[2] in parts:
            raise ArenaError("V2081", f"part {name[2]} is unknown or there twice")
        parts[name[2]] = content
    if missing := [name for name in names if name not in parts]:
        raise ArenaError("V2081", f"part {missing[0]} is missing")
    return parts


def _text(content: bytes) -> str:
    if len(content) > _TEXT_BYTES:
        raise ArenaError("V2081", f"a text of more than {_TEXT_BYTES} bytes")
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ArenaError("V2081", "a text that is not UTF-8") from error


MEMORY_BYTES = 1 << 30  # address space
AT_ONCE = 4


class Parser:
    """Says what keeps a source from the gate, by a process for each that may die of it."""

    def __init__(self, rules: GateRules, *, within_s: float = 5.0) -> None:
        """`within_s`: how long one source may take, the turns before it and a start of the process included."""
        self._rules, self._within_s = rules, within_s
        self._turn = asyncio.Semaphore(AT_ONCE)

    async def first_finding(self, source: bytes) -> Finding | None:
        """What keeps a source from the gate; None where nothing does, or nobody could say in time."""
        text, found = read_text(source, self._rules)
        if found:
            return found[0]
        try:
            async with asyncio.timeout(self._within_s), self._turn:
                return await self._parse(text)
        except (TimeoutError, OSError, msgspec.DecodeError):  # too slow, or it ended over it
            return None

    async def _parse(self, text: str) -> Finding | None:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", "arena.door.form", msgspec.json.encode(self._rules).decode()),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            env=child_environment(),
            start_new_session=True,
        )
        try:
            answer, _ = await process.communicate(text.encode())
            return msgspec.json.decode(answer, type=Finding | None)
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.kill()


FORM_RULES = frozenset({"parse", "depth", "entry"})  # they cost a miner nothing, and are said at once


def main() -> None:
    """The parser's process: limits its own memory and answers one source. One that takes too long is ended from
    outside."""
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    most = MEMORY_BYTES if hard == resource.RLIM_INFINITY else min(MEMORY_BYTES, hard)
    resource.setrlimit(resource.RLIMIT_AS, (most, hard))
    _, found = parse(sys.stdin.buffer.read().decode(), msgspec.json.decode(sys.argv[1], type=GateRules))
    first = next((each for each in found if each.rule in FORM_RULES), None)
    sys.stdout.buffer.write(msgspec.json.encode(first))


if __name__ == "__main__":
    main()
