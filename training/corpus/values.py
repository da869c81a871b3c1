"""Foreign JSON values, held against what they should be.

Whatever is not what a format says raises ArenaError V2097 naming the place in the row; nothing is coerced that
would lose something.
"""

from __future__ import annotations

from typing import Any, get_type_hints

import msgspec

from foundation.errors import ArenaError
from training.corpus.model import EXPORTED_FACTS, TraceFacts

_HELD_OUT = ("pool", "suite")
_FACT_TYPES = get_type_hints(TraceFacts)


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


def as_id(value: object, place: str) -> str:
    """A string or whole number as text, "" for null. Raises ArenaError V2097."""
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else as_text(value, place)


def decoded(value: str, place: str) -> Any:
    """What a JSON text says. Raises ArenaError V2097."""
    try:
        return msgspec.json.decode(value)
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError) as error:
        raise ArenaError("V2097", f"{place}: {error}") from error


def json_text(value: object, place: str) -> str:
    """A string as it is, any other value as JSON text. Raises ArenaError V2097 for what JSON can't say."""
    if isinstance(value, str):
        return value
    try:
        return msgspec.json.encode(value).decode()
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise ArenaError("V2097", f"{place}: {error}") from error


def read_facts(*rows: dict[str, Any]) -> TraceFacts:
    """The facts that objects of a row state by a known name, the first that states one.

    The last of `rows` is the object that an export keeps its facts in: what it states has to be one. In the others
    (`stop`, `team` and such are common words) a value of another type is another thing, and left. A pool or a suite
    that is not ours is refused wherever it stands: it may mean that the row is held out. Raises ArenaError V2097.
    """
    stated: dict[str, object] = {}
    for number, row in enumerate(rows, 1):
        found = {fact: row[name] for name, fact in EXPORTED_FACTS.items() if row.get(name) not in (None, "")}
        if isinstance(one := found.get("problem_id"), int) and not isinstance(one, bool):
            found["problem_id"] = str(one)
        if number < len(rows):
            found = {fact: one for fact, one in found.items() if fact in _HELD_OUT or _is_fact(fact, one)}
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


def _is_fact(name: str, value: object) -> bool:
    try:
        msgspec.convert(value, _FACT_TYPES[name])
    except msgspec.ValidationError:
        return False
    return True
