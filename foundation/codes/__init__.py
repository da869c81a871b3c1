"""The one registry of error codes: A1xxx agent, V2xxx validator, U3xxx upstream, P4xxx problem or catalogue.

Each row says what happened, what it costs and what to do next; `arena explain CODE` prints it. Codes are never
reused or renumbered: records name them for ever.
"""

from __future__ import annotations

from foundation.codes import agent, corpus, door, exchange, practice, problem, training, upstream, validator
from foundation.codes.row import ErrorCode

CODES: dict[str, ErrorCode] = {
    row.code: row
    for part in (agent, validator, practice, door, exchange, corpus, training, upstream, problem)
    for row in part.ROWS
}


def lookup(code: str) -> ErrorCode:
    """The registry's row for `code`. Raises KeyError for a code that is not registered: a bug of ours."""
    return CODES[code]
