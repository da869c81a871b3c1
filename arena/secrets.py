"""Credentials in text: found by their shape, replaced by `[REDACTED:<kind>]`. Pure.

Precise before complete. A finding is a token with a published prefix, a private key block, a signed token, a
password in an address, or a random-looking value that is called a key, token, secret or bearer. Hashes, ids and prose
are none, so text of an ordinary episode holds no finding. Time is linear in the text, whatever it says. Text may be
plain or JSON, escaped any number of times: a replacement needs no escaping, so JSON stays JSON.

It won't find: passwords of fewer than 20 characters outside an address, recovery phrases that stand alone, bare hex
keys that nothing names (they look like our own hashes), or credentials that were encoded or split.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Literal

import msgspec

Kind = Literal[
    "anthropic",
    "openrouter",
    "openai",
    "huggingface",
    "github",
    "gitlab",
    "aws",
    "google",
    "slack",
    "jwt",
    "private_key",
    "bearer",
    "named",  # a random-looking value behind a name such as api_key
    "url_password",
    "phrase",  # a recovery phrase that stands with another finding
]

_LONG_BYTES = 20  # a long run of token characters; the shortest token of any prefix has as many
_CONTEXT_BYTES = 48
_VALUE_CHARS_MIN = 16
_HEX_DIGITS_MIN = 24

_IN_TOKEN = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-+/")
_MARKS = bytes(ord("x") if byte in _IN_TOKEN else ord(" ") for byte in range(256))
_LONG = b"x" * _LONG_BYTES
_HEX = b"0123456789abcdef"
_BETWEEN = b"\"'\\ \t:=>"  # between a name and its value, JSON escapes included

_CALLED_SECRET = (
    *(b"api_key", b"api-key", b"apikey", b"access_key", b"access-key", b"accesskey", b"secret_key", b"secret-key"),
    *(b"secretkey", b"private_key", b"private-key", b"privatekey", b"secret", b"token", b"password", b"passwd"),
    *(b"passphrase", b"credential", b"credentials", b"secretseed", b"secret_seed", b"authorization"),
)

_NAME_ENDS = frozenset(name[-3:] for name in (*_CALLED_SECRET, b"bearer"))

_PREFIX = re.compile(rb"sk-|hf_|api_org_|gh[opsur]_|github_pat_|glpat-|A[KS]IA|AIza|xox")  # quickly says no
_PREFIXED = re.compile(
    rb"""(?<![A-Za-z0-9])(?:
      (?P<anthropic>sk-ant-[A-Za-z0-9_-]{20,}+)
    | (?P<openrouter>sk-or-(?:v\d-)?[A-Za-z0-9]{20,}+)
    | (?P<openai>sk-(?:(?:proj|svcacct|admin|None)-[A-Za-z0-9_-]{20,}+|[A-Za-z0-9]{20,}+))
    | (?P<huggingface>(?:hf|api_org)_[A-Za-z0-9]{30,}+)
    | (?P<github>gh[pousr]_[A-Za-z0-9]{30,}+|github_pat_[A-Za-z0-9_]{22,}+)
    | (?P<gitlab>glpat-[A-Za-z0-9_-]{20,}+)
    | (?P<aws>(?:AKIA|ASIA)[A-Z0-9]{16}(?![A-Za-z0-9]))
    | (?P<google>AIza[A-Za-z0-9_-]{35})
    | (?P<slack>xox[abeoprs]-[A-Za-z0-9-]{10,}+)
    )""",
    re.VERBOSE,
)
_HEADER = re.compile(rb"(?<![A-Za-z0-9])eyJ")
_SIGNED = re.compile(rb"eyJ[A-Za-z0-9_-]{10,}+\.eyJ[A-Za-z0-9_-]{10,}+\.[A-Za-z0-9_-]{16,}+")
_VALUE = re.compile(rb"[A-Za-z0-9_+/=.~-]*+")
_SEPARATED = re.compile(rb"[-_+/]")
_BLOCK = re.compile(rb"-----BEGIN [A-Z0-9 ]{0,30}\Z")
_BLOCK_TITLE = b"PRIVATE KEY"
_BLOCK_END = re.compile(rb"-----END [A-Z0-9 ]{0,40}-----")
_BLOCK_BODY = re.compile(rb"(?: BLOCK)?-----[A-Za-z0-9+/=\\\s]*+")
_BLOCK_BYTES_MAX = 1 << 16
_ADDRESS_BYTES_MAX = 200  # of user and password
_USER = re.compile(rb"[^\s/@:\"'\\]{1,64}:((?!\[REDACTED:)[^\s/@\"'\\]{6,128})")
_PHRASE = re.compile(rb"(?i:mnemonic|phrase)[\"'\\ :=]{1,8}((?:[a-z]{3,8} ){11,23}[a-z]{3,8})(?![a-z])")


class Secret(msgspec.Struct, frozen=True):
    """One finding. `start` and `end` count bytes of the text's UTF-8."""

    kind: Kind
    start: int
    end: int


def find_secrets(text: str | bytes) -> tuple[Secret, ...]:
    """The credentials in a text, in order, none overlapping. Bytes are taken as UTF-8 and need not be valid."""
    data = text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass")
    found = [*_tokens(data), *_blocks(data)]
    at = data.find(b"@")
    while at >= 0:  # passwords in addresses: scheme://user:password@host
        opening = data.rfind(b"://", max(0, at - _ADDRESS_BYTES_MAX), at)
        if opening >= 0 and (user := _USER.fullmatch(data, opening + 3, at)):
            found.append(Secret("url_password", *user.span(1)))
        at = data.find(b"@", at + 1)
    if not found:
        return ()
    found += [Secret("phrase", *match.span(1)) for match in _PHRASE.finditer(data)]
    apart: list[Secret] = []
    for secret in sorted(found, key=lambda one: (one.start, -one.end)):
        if not apart or secret.start >= apart[-1].end:
            apart.append(secret)
        elif secret.end > apart[-1].end:
            apart[-1] = Secret(apart[-1].kind, apart[-1].start, secret.end)
    return tuple(apart)


def scrub(text: str) -> str:
    """The text with each credential replaced by `[REDACTED:<kind>]`."""
    found = find_secrets(text)
    if not found:
        return text
    data = text.encode("utf-8", "surrogatepass")
    parts: list[bytes] = []
    done = 0
    for secret in found:
        parts += (data[done : secret.start], b"[REDACTED:%s]" % secret.kind.encode())
        done = secret.end
    return b"".join((*parts, data[done:])).decode("utf-8", "surrogatepass")


def _tokens(data: bytes) -> Iterator[Secret]:
    """Findings among the long runs of token characters. All but a few texts have none that isn't a hash."""
    done = 0
    for begin, end in long_runs(data):
        at = max(begin, done)  # what is left of a run behind a finding is looked at, too
        if end - at < len(_LONG):
            continue
        name = data[max(0, at - _CONTEXT_BYTES) : at].rstrip(_BETWEEN)
        secret = _named(data, at, end) if name[-3:].lower() in _NAME_ENDS else None
        if secret is not None:
            yield secret
            done = max(end, secret.end)
        elif _PREFIX.search(data, at, end):
            for match in _PREFIXED.finditer(data, at, end):
                kind = match.lastgroup
                assert kind is not None  # every alternative is named
                if kind in ("aws", "google", "github") or _is_random(match[0][3:]):
                    yield Secret(kind, *match.span())  # type: ignore[arg-type]
        elif data.startswith(b".eyJ", end):
            header = _HEADER.search(data, at, end)
            signed = _SIGNED.match(data, header.start()) if header else None
            if signed:
                yield Secret("jwt", *signed.span())


def long_runs(data: bytes) -> Iterator[tuple[int, int]]:
    """Where the runs of at least 20 token characters begin and end."""
    marks = data.translate(_MARKS)
    at = marks.find(_LONG)
    while at >= 0:
        end = marks.find(b" ", at)
        end = len(data) if end < 0 else end
        yield at, end
        at = marks.find(_LONG, end)


def _named(data: bytes, start: int, end: int) -> Secret | None:
    """The value that begins with the run, when what stands before calls it a secret and it looks like one."""
    context = data[max(0, start - _CONTEXT_BYTES) : start]
    name = context.rstrip(_BETWEEN).lower()
    if name.endswith(b"bearer"):
        kind: Kind = "bearer"
    elif name.endswith(_CALLED_SECRET) and (b":" in context[len(name) :] or b"=" in context[len(name) :]):
        kind = "named"
    else:
        return None
    if not _is_random(data[start:end]):
        return None
    value = _VALUE.match(data, start)
    assert value is not None  # it matches nothing at least
    return Secret(kind, start, value.end())


def _is_random(value: bytes) -> bool:
    """Letters and digits mixed in one piece, as in keys, and never in words joined by dashes; or a long hex number."""
    digits = value.lower().removeprefix(b"0x").replace(b"-", b"")
    if len(digits) >= _HEX_DIGITS_MIN and not digits.strip(_HEX):
        return len(set(digits)) >= 6
    for piece in _SEPARATED.split(value):
        if len(piece) >= _VALUE_CHARS_MIN and not piece.isalpha() and not piece.isdigit() and len(set(piece)) >= 8:
            return True
    return False


def _blocks(data: bytes) -> Iterator[Secret]:
    """Private key blocks, to their end line or, where that is missing, as far as key material goes."""
    at = data.find(_BLOCK_TITLE)
    closing: re.Match[bytes] | None = None
    is_closed = True  # until a search has found that no end line is left
    while at >= 0:
        done = at + len(_BLOCK_TITLE)
        opening = _BLOCK.search(data, max(0, at - _CONTEXT_BYTES), at)
        body = _BLOCK_BODY.match(data, done)
        if opening is not None and body is not None:
            done = body.end()
            if is_closed and (closing is None or closing.start() < done):
                closing = _BLOCK_END.search(data, done)
                is_closed = closing is not None
            if closing is not None and closing.start() - done <= _BLOCK_BYTES_MAX:
                done = closing.end()
            yield Secret("private_key", opening.start(), done)
        at = data.find(_BLOCK_TITLE, done)


def holds_secret(content: bytes) -> bool:
    """Whether canonical bytes hold what looks like a credential."""
    return bool(find_secrets(content))
