"""Foreign JSON values, held against what they should be.

Promise: whatever is not what a format says raises ArenaError V2097 naming the place in the row; nothing is coerced that
would lose something.
"""

from __future__ import annotations

from typing import Any

import msgspec

from foundation.errors import ArenaError
from training.corpus.model import EXPORTED_FACTS, TraceFacts


def broken(place: str, wanted: str, value: object) -> ArenaError:
    """What is wrong with a value."""
    return ArenaError("V2097", f"{place} is {type(value).__name__}, not {wanted}")


def as_object(value: object, place: str) -> dict[str, Any]:
    """A JSON object. Raises ArenaError V2097."""
    if not isinstance(value, dict):
        raise broken(place, "an object", value)
    return value


def as_list(value: object, place: str) -> list[Any]:
    """A JSON array, empty for null. Raises ArenaError V2097."""
    if value is None:
        return []
    if not isinstance(value, list):
        raise broken(place, "a list", value)
    return value


def as_text(value: object, place: str) -> str:
    """A string, "" for null. Raises ArenaError V2097."""
    if value is None:
        return ""
    if not isinstance(value, str):
        raise broken(place, "text", value)
    return value


def json_text(value: object, place: str) -> str:
    """A string as it is, any other value as JSON text. Raises ArenaError V2097 for what JSON can't say."""
    if isinstance(value, str):
        return value
    try:
        return msgspec.json.encode(value).decode()
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise ArenaError("V2097", f"{place}: {error}") from error


def read_facts(*rows: dict[str, Any]) -> TraceFacts:
    """The facts that objects of a row state by a known name, the first that states one. Raises ArenaError V2097."""
    stated: dict[str, object] = {}
    for row in rows:
        found = {fact: row[name] for name, fact in EXPORTED_FACTS.items() if row.get(name) not in (None, "")}
        category = row.get("category")
        if isinstance(category, str) and category.lower() in ("product", "shop", "voucher"):
            found.setdefault("bucket", category.lower())
        if isinstance(row.get("recommended"), str):
            found["recommended"] = [one for one in row["recommended"].split(",") if one]
        stated = found | stated
    try:
        return msgspec.convert(stated, TraceFacts)
    except msgspec.ValidationError as error:
        raise ArenaError("V2097", f"facts: {error}") from error
