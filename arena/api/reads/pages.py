"""Pages of a list by cursor: opaque text that names the last row a client has.

A cursor is a place between two rows and no number of rows, so rows that are added meanwhile move nothing: no
row comes twice and none is passed over. A cursor of another list, or text that is none, is V2081.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Iterable
from typing import Annotated, Generic, TypeVar

import msgspec
from fastapi import Query

from foundation.canonical import UNREADABLE_JSON
from foundation.errors import ArenaError

ROWS_MAX = 500
Key = str | int
Row = TypeVar("Row")

CursorOption = Annotated[
    str, Query(max_length=512, alias="cursor", description="`next` of the page before; empty: from the beginning.")
]
RowsOption = Annotated[int, Query(ge=1, le=ROWS_MAX, alias="limit", description="Most rows of a page.")]


class ListPage(msgspec.Struct, Generic[Row], frozen=True, kw_only=True):
    """Some rows of a list. `next` is the cursor of the page after this one, "" where the list ends for now."""

    items: tuple[Row, ...]
    next: str = ""


def page_of(
    rows: Iterable[Row],
    key: Callable[[Row], tuple[Key, ...]],
    *,
    scope: str,
    cursor: str,
    limit: int,
    is_newest_first: bool = False,
) -> ListPage[Row]:
    """The next `limit` rows behind a cursor, in the order of their keys, which tell all rows apart.

    `scope` names the list, and so whose cursors it takes. Raises ArenaError V2081 for a cursor that is not its own.
    """
    ordered = sorted(rows, key=key, reverse=is_newest_first)
    if cursor:
        after = read_cursor(cursor, scope)
        try:
            ordered = [row for row in ordered if (key(row) < after if is_newest_first else key(row) > after)]
        except TypeError as error:
            raise ArenaError("V2081", "cursor: it is of another list") from error
    shown = ordered[:limit]
    following = write_cursor(scope, key(shown[-1])) if len(ordered) > limit else ""
    return ListPage(items=tuple(shown), next=following)


def write_cursor(scope: str, key: tuple[Key, ...]) -> str:
    """A cursor behind the row with this key."""
    return base64.urlsafe_b64encode(msgspec.json.encode([scope, *key])).decode().rstrip("=")


def read_cursor(cursor: str, scope: str) -> tuple[Key, ...]:
    """The key of a cursor of this list. Raises ArenaError V2081."""
    try:
        text = base64.urlsafe_b64decode(cursor.encode("ascii") + b"=" * (-len(cursor) % 4))
        found, *key = msgspec.json.decode(text, type=list[str | int])
    except (*UNREADABLE_JSON, ValueError, binascii.Error) as error:
        raise ArenaError("V2081", "cursor: it is none of ours") from error
    if found != scope or not key:
        raise ArenaError("V2081", "cursor: it is of another list")
    return tuple(key)
