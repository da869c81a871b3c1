"""One row of the registry, and the costs that many rows share."""

from __future__ import annotations

from foundation.errors import ErrorCode

COUNTS = "counts as a failure on this problem"
REJECTED = "the submission is rejected"
NO_SCORE = "no score is given; the attempt is recorded and retried"
STOPS = "the command stops; nothing already written is lost"
WITHDRAWN = "the problem is withdrawn; nobody is charged"


def row(code: str, title: str, cost: str, remedy: str, retry: bool = False) -> ErrorCode:
    """A code: what happened, what it costs, what to do next. `retry`: trying again later may help."""
    return ErrorCode(code=code, title=title, cost=cost, remedy=remedy, is_retryable=retry)
