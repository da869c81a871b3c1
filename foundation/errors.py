"""The vocabulary of failure: who owns it, what it costs, what to do next.

A failure is data with an owner. `ErrorCode` is one row of the registry (`foundation.codes`), `Failure` is a
failure that happened and may be written into a record, `ArenaError` is the same thing in flight. The first
character of a code names the owner: A1xxx agent, V2xxx validator, U3xxx upstream, P4xxx problem or catalogue.
This file lives in the leftmost room because every room raises from the one registry.
"""

from __future__ import annotations

import enum

import msgspec


class Owner(enum.Enum):
    """Whose failure it is. Only the agent's own failures count against its score."""

    AGENT = "agent"
    VALIDATOR = "validator"
    UPSTREAM = "upstream"
    PROBLEM = "problem"


_OWNER_BY_LETTER = {
    "A": Owner.AGENT,
    "V": Owner.VALIDATOR,
    "U": Owner.UPSTREAM,
    "P": Owner.PROBLEM,
}


class ErrorCode(msgspec.Struct, frozen=True, kw_only=True):
    """One row of the registry; every field is a sentence shown to people."""

    code: str
    title: str  # what happened, lower case, no full stop
    cost: str  # what it costs whom
    remedy: str  # the next command or action
    is_retryable: bool = False

    @property
    def owner(self) -> Owner:
        """The owner, read from the first letter of the code."""
        return _OWNER_BY_LETTER[self.code[0]]


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """A failure that happened, as it stands in records and API answers."""

    code: str
    detail: str = ""

    @property
    def owner(self) -> Owner:
        """The owner, read from the first letter of the code."""
        return _OWNER_BY_LETTER[self.code[0]]


class ArenaError(Exception):
    """A coded failure in flight. `str()` is the text a person sees; `failure` is what a record keeps."""

    def __init__(self, code: str, detail: str = "") -> None:
        from foundation.codes import lookup

        self.entry: ErrorCode = lookup(code)
        self.failure = Failure(code=code, detail=detail)
        super().__init__(render(self.entry, detail))

    def __reduce__(self) -> tuple[object, ...]:
        """Pickled by what it says, whatever a subclass takes, so that it can cross a process pool."""
        return _restored, (type(self), self.failure, vars(self))

    @property
    def owner(self) -> Owner:
        """Whose fault it is."""
        return self.entry.owner


def _restored(kind: type[ArenaError], failure: Failure, fields: dict[str, object]) -> ArenaError:
    error = kind.__new__(kind)
    ArenaError.__init__(error, failure.code, failure.detail)
    vars(error).update(fields)
    return error


_WHOSE = {
    Owner.AGENT: "your agent",
    Owner.VALIDATOR: "this validator",
    Owner.UPSTREAM: "an upstream service",
    Owner.PROBLEM: "the problem or the catalogue",
}


def render(entry: ErrorCode, detail: str = "") -> str:
    """The two lines shown everywhere: `CODE title (detail) · owner · cost` and `fix: remedy`."""
    about = f" ({detail})" if detail else ""
    return f"{entry.code} {entry.title}{about} · {_WHOSE[entry.owner]} · {entry.cost}\n      fix: {entry.remedy}"
