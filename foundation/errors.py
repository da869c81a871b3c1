"""The vocabulary of failure: who owns it, what it costs, what to do next.

A failure is data with an owner. `Failure` is a failure that happened and may be written into a record, `ArenaError` is
the same thing in flight; the codes of both are rows of the registry (`foundation.codes`).
"""

from __future__ import annotations

import msgspec

from foundation.codes import lookup
from foundation.codes.row import ErrorCode, Owner, owner_of


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """A failure that happened, as it stands in records and API answers."""

    code: str
    detail: str = ""

    @property
    def owner(self) -> Owner:
        """The owner, read from the first letter of the code."""
        return owner_of(self.code)


class ArenaError(Exception):
    """A coded failure in flight. `str()` is the text a person sees; `failure` is what a record keeps."""

    def __init__(self, code: str, detail: str = "") -> None:
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
