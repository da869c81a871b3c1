"""The vocabulary of failure: who owns it, what it costs, what to do next.

A failure is data with an owner. `Failure` is a failure that happened and may be written into a record, `ArenaError` is
the same thing in flight; the codes of both are rows of the registry (`foundation.codes`).
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from typing import Annotated

import msgspec

from foundation.codes import ErrorCode, Owner, lookup, owner_of

_LINE = 100
_MASK = "***"
# A password may hold blanks: what begins with `name:`, no port, goes up to the last `@` of the line before another URL.
_LOGIN = r"""[^\s"'<>\\/:@]*:(?!\s|\d{1,5}(?:[\s/?#,;:)]|$))(?:(?!://)[^\n"'<>\\])*@"""
_URL = re.compile(rf"""([A-Za-z][A-Za-z0-9+.-]*://)((?:{_LOGIN})?[^\s"'<>\\]*)""")
_VALUE = re.compile(r"(?:(?<=[?&;#])|(?<=%3F)|(?<=%26)|(?<=%23))([^=&;#]+?)(=|%3D)[^&;#]*", re.IGNORECASE)
# Names whose values are no secret.
_SHOWN = frozenset({"endpoint", "region", "host", "sslmode", "ssl", "after", "limit", "follow", "race"})
_KEY_IN_PATH = re.compile(r"(?<=/)(?=[\w-]*\d)[\w-]{16,}")  # some providers of chain nodes take a key so


def redacted(text: str) -> str:
    """The text without the secrets of the URLs in it: what stands before an `@`, the values of a query, and what may be
    a key in the path of a chain's address. Whatever is shown, logged or stored goes through here."""
    return _URL.sub(_without_secrets, text) if "://" in text else text


def _without_secrets(found: re.Match[str]) -> str:
    scheme, rest = found.groups()
    before, at, place = rest.rpartition("@")
    place = _VALUE.sub(lambda pair: pair[0] if pair[1].lower() in _SHOWN else pair[1] + pair[2] + _MASK, place)
    if scheme.lower() in ("ws://", "wss://"):
        place = _KEY_IN_PATH.sub(_MASK, place)
    return f"{scheme}{_MASK if before else ''}{at}{place}"


def printable(text: str) -> str:
    """The text with control characters replaced, so that a trace can't drive the reader's terminal."""
    return "".join(mark if mark.isprintable() or mark == "\n" else "\N{REPLACEMENT CHARACTER}" for mark in text)


def counted(count: int, noun: str) -> str:
    """`1 record`, `12,000 records`, `2 bodies`, `3 batches`."""
    if count != 1:
        noun = f"{noun[:-1]}ies" if noun.endswith(("dy", "ry")) else f"{noun}{'es' if noun.endswith('ch') else 's'}"
    return f"{count:,} {noun}"


def nearest(word: str, known: Iterable[str]) -> list[str]:
    """The known name that a word most likely means: it begins so, or hardly differs; none where nothing is near."""
    bare = {name.lstrip("-").casefold(): name for name in known}
    meant = word.lstrip("-").casefold()
    begun = [name for name in bare if len(meant) > 2 and name.startswith(meant)]
    return [bare[name] for name in begun[:1] or difflib.get_close_matches(meant, bare, n=1, cutoff=0.75)]


Code = Annotated[str, msgspec.Meta(pattern="^[AVUP][0-9]{4}$")]  # of a later release, too: its letter tells whose


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """A failure that happened, as it stands in records and API answers."""

    code: Code
    detail: str = ""

    @property
    def owner(self) -> Owner:
        """The owner, read from the first letter of the code."""
        return owner_of(self.code)


class ArenaError(Exception):
    """A coded failure in flight. `str()` is the text a person sees; `failure` is what a record keeps."""

    def __init__(self, code: str, detail: str = "", *, fix: str = "") -> None:
        """`fix`: what to do about this one, where that is more exact than what the registry says of its code; `detail`
        then says by itself what happened."""
        self.entry: ErrorCode = lookup(code)
        if self.entry.owner is not Owner.AGENT:  # what an agent said stays as it was said
            detail, fix = redacted(detail), redacted(fix)
        self.failure = Failure(code=code, detail=detail)
        self.fix = fix or self.entry.remedy
        super().__init__(render(self.entry, detail, fix))

    def __reduce__(self) -> tuple[object, ...]:
        """Pickled by what it says, whatever a subclass takes, so that it can cross a process pool."""
        return type(self).__new__, (type(self), *self.args), vars(self)

    @property
    def owner(self) -> Owner:
        """Whose fault it is."""
        return self.entry.owner


def render(entry: ErrorCode, detail: str = "", fix: str = "") -> str:
    """The text shown everywhere: `error[CODE]: what happened, with the value; what to do`.

    One line where it is short, else what to do stands on the next. Whose failure it is and what
    it costs is in `arena explain CODE`. It may quote what others wrote, and drives no terminal.
    """
    happened = detail if fix else ": ".join(filter(None, (entry.title, detail)))
    happened = f"error[{entry.code}]: {printable(happened)}"
    to_do = fix or entry.remedy
    whole = f"{happened}; {to_do}"
    return whole if len(whole) <= _LINE and "\n" not in detail else f"{happened};\n  {to_do}"
