"""One row of the registry, whose failure it is, and the costs that many rows share."""

from __future__ import annotations

import enum

import msgspec

COUNTS = "counts as a failure on this problem"
REJECTED = "the submission is rejected"
NO_SCORE = "no score is given; the attempt is recorded and retried"
STOPS = "the command stops; nothing already written is lost"
WITHDRAWN = "the problem is withdrawn; nobody is charged"


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


def owner_of(code: str) -> Owner:
    """The owner, whom the first letter of a code names. Raises KeyError for another letter."""
    return _OWNER_BY_LETTER[code[0]]


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
        return owner_of(self.code)


def row(code: str, title: str, cost: str, remedy: str, retry: bool = False) -> ErrorCode:
    """A code: what happened, what it costs, what to do next. `retry`: trying again later may help."""
    return ErrorCode(code=code, title=title, cost=cost, remedy=remedy, is_retryable=retry)
