"""The body of a submission: taken apart by a strict reader of multipart/form-data, and its file parsed in a process
that may die.

Memory is bounded by the size, work is linear in it, and nothing is unpacked: a compressed body is refused, and so is a
part in a transfer encoding. A file's name is never looked at. Own code, since no multipart library is among the
dependencies, and the standard library reads a header's parameters in quadratic time; of RFC 7578 it reads what clients
send and refuses the rest (no preamble, no unknown or doubled part).
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import re
import resource
import sys
from collections import OrderedDict
from pathlib import Path

import msgspec

from arena.gate.report import Finding
from arena.gate.source import parse, read_text
from arena.policy import GateRules
from foundation.errors import ArenaError

UNSIGNED_PARTS = ("agent_name", "file")
PARTS = (*UNSIGNED_PARTS, "submitted_ms", "signature")
HEADER_BYTES_MAX = 512  # of a content type or a line of a part's head
_PART_HEAD_BYTES, _TEXT_BYTES, _DIGITS = 2_048, 1_024, 15
_PLAIN = frozenset({"", "7bit", "8bit", "binary"})
_PARAMETER = re.compile(r"""\s*+;\s*+(?:([^\s;="]++)\s*+=\s*+(?:"((?:[^"\\]|\\.)*+)"|([^;"]*+)))?+""")
_BOUNDARY = re.compile(r"[0-9A-Za-z'()+_,./:=? -]{0,69}[0-9A-Za-z'()+_,./:=?-]")  # RFC 2046


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
    kind, parameters = _header("the content type", content_type)
    if kind != "multipart/form-data":
        raise ArenaError("V2081", "the content type is not multipart/form-data")
    boundary = parameters.get("boundary", "")
    if not _BOUNDARY.fullmatch(boundary):
        raise ArenaError("V2081", "the boundary is missing, too long or has a character that none may have")
    before, *sections = (b"\r\n" + body).split(b"\r\n--" + boundary.encode(), len(names) + 2)
    if before or not sections or sections[-1].rstrip(b"\r\n") != b"--":
        raise ArenaError("V2081", f"not between boundaries, or not {len(names)} parts")
    parts: dict[str, bytes] = {}
    for section in sections[:-1]:
        name, content = _part(section)
        if name not in names or name in parts:
            raise ArenaError("V2081", f"part {name[:64]!a} is unknown or there twice")
        parts[name] = content
    if missing := [name for name in names if name not in parts]:
        raise ArenaError("V2081", f"part {missing[0]} is missing")
    return parts


def _part(section: bytes) -> tuple[str, bytes]:
    head, is_ended, content = section.partition(b"\r\n\r\n")
    if not is_ended or not head.startswith(b"\r\n") or len(head) > _PART_HEAD_BYTES:
        raise ArenaError("V2081", "a part has no head, or too long a one")
    name = ""
    for line in head.decode("latin-1").split("\r\n")[1:]:
        field, _, value = line.partition(":")
        if field.lower() == "content-transfer-encoding" and value.strip().lower() not in _PLAIN:
            raise ArenaError("V2081", "a part is encoded")
        if field.lower() == "content-disposition":
            name = _header("a part's disposition", value)[1].get("name", "")
    return name, content


def _header(which: str, value: str) -> tuple[str, dict[str, str]]:
    """What a header says before its parameters, in lower case, and these by their names in lower case, the first of
    each. No character is read twice. A backslash within quotes stays, as no name or boundary here has one."""
    if len(value) > HEADER_BYTES_MAX:
        raise ArenaError("V2081", f"{which} has more than {HEADER_BYTES_MAX} bytes")
    kind, _, _ = value.partition(";")
    at, parameters = len(kind), dict[str, str]()
    while (found := _PARAMETER.match(value, at)) is not None:
        at = found.end()
        name, quoted, plain = found.groups()
        if name is not None:
            parameters.setdefault(name.lower(), plain.strip() if quoted is None else quoted)
    if value[at:].strip():
        raise ArenaError("V2081", f"{which} has parameters that cannot be read")
    return kind.strip().lower(), parameters


def _text(content: bytes) -> str:
    if len(content) > _TEXT_BYTES:
        raise ArenaError("V2081", f"a text of more than {_TEXT_BYTES} bytes")
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ArenaError("V2081", "a text that is not UTF-8") from error


LENGTH_BYTES = 4
MEMORY_BYTES = 1 << 30  # address space
ANSWER_BYTES_MAX = 1 << 20
DECIDED_MAX = 1_024
_ROOT = Path(__file__).parents[2]


class Parser:
    """Asks the parser's process, and replaces one that died or is too slow."""

    def __init__(self, rules: GateRules, *, within_s: float = 5.0) -> None:
        """`within_s`: how long one source may take, a start of the process included."""
        self._rules, self._within_s = rules, within_s
        self._process: asyncio.subprocess.Process | None = None
        self._turn = asyncio.Lock()
        self._decided: OrderedDict[bytes, Finding | None] = OrderedDict()

    async def first_finding(self, source: bytes) -> Finding | None:
        """What keeps a source from the gate; None where nothing does, or nobody could say in time."""
        key = hashlib.sha256(source).digest()
        if key not in self._decided:
            try:
                async with asyncio.timeout(self._within_s), self._turn:
                    found = await self._ask(source)
            except TimeoutError:
                return None
            if found is None:
                return None
            self._decided[key] = found[0] if found else None
            if len(self._decided) > DECIDED_MAX:
                self._decided.popitem(last=False)
        return self._decided[key]

    async def close(self) -> None:
        """End the process."""
        process, self._process = self._process, None
        if process is not None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()

    async def _ask(self, source: bytes) -> list[Finding] | None:
        """All that keeps a source from the gate; None where the process ended over it."""
        is_answered = False
        try:
            if self._process is None:
                kept = {name: os.environ[name] for name in ("PATH", "LD_LIBRARY_PATH") if name in os.environ}
                self._process = await asyncio.create_subprocess_exec(
                    *(sys.executable, "-P", "-m", "arena.door.form", msgspec.json.encode(self._rules).decode()),
                    stdin=asyncio.subprocess.PIPE,
                    stdout=asyncio.subprocess.PIPE,
                    stderr=asyncio.subprocess.DEVNULL,
                    env={**kept, "PYTHONPATH": str(_ROOT), "OPENBLAS_NUM_THREADS": "1"},
                    limit=ANSWER_BYTES_MAX,
                    start_new_session=True,
                )
            process = self._process
            assert process.stdin is not None and process.stdout is not None
            process.stdin.write(len(source).to_bytes(LENGTH_BYTES) + source)
            await process.stdin.drain()
            line = await process.stdout.readline()
            found = msgspec.json.decode(line, type=list[Finding]) if line else None
            is_answered = found is not None
            return found
        except (OSError, ValueError, msgspec.DecodeError):  # it died while it was told; a line over the limit
            return None
        finally:
            if not is_answered:
                await self.close()


FORM_RULES = frozenset({"encoding", "size", "parse", "depth", "entry"})


def form_findings(source: bytes, rules: GateRules) -> list[Finding]:
    """The findings of class `form`: they cost a miner nothing, and are said at once."""
    text, found = read_text(source, rules)
    if not found:
        _, found = parse(text, rules)
    return [each for each in found if each.rule in FORM_RULES]


def main() -> None:
    """The parser's process: limits its own memory, then answers one source after the other until the input ends. One
    that takes too long is ended from outside."""
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    most = MEMORY_BYTES if hard == resource.RLIM_INFINITY else min(MEMORY_BYTES, hard)
    resource.setrlimit(resource.RLIMIT_AS, (most, hard))
    rules = msgspec.json.decode(sys.argv[1], type=GateRules)
    stream = sys.stdin.buffer
    while len(length := stream.read(LENGTH_BYTES)) == LENGTH_BYTES:
        found = form_findings(stream.read(int.from_bytes(length)), rules)
        sys.stdout.buffer.write(msgspec.json.encode(found) + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
