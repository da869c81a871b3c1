"""The one registry of error codes: A1xxx agent, V2xxx validator, U3xxx upstream, P4xxx problem or catalogue.

Each row says what happened, what it costs and what to do next; `arena explain CODE` prints it.
"""

from __future__ import annotations

from foundation.codes.row import ErrorCode
from foundation.codes.rows import ROWS

CODES: dict[str, ErrorCode] = {row.code: row for row in ROWS}


def lookup(code: str) -> ErrorCode:
    """The registry's row for `code`. Raises KeyError for a code that is not registered: a bug of ours."""
    return CODES[code]
