"""One row of the registry, and whose failure it is."""

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
