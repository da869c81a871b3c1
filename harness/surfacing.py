"""The surfaced rule: an id counts only if the catalogue's search put it before the agent.

An id is surfaced by the first `find_*` result that holds it and whose own arguments do not
(docs/architecture.md#scores): ids that an agent brings along, views, checks or searches by number stay unsurfaced.
Pure; fed with each executed call in order.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator

import orjson

from harness.emission.wording import compose
from harness.trace import Surfaced

_FINDERS = "find_"


class Surfacing:
    """Which ids have been surfaced so far."""

    def __init__(self) -> None:
        self._ids: set[str] = set()

    def observe(self, name: str, arguments: str, found_ids: tuple[str, ...]) -> tuple[Surfaced, ...]:
        """The ids that this call surfaces for the first time, each with its rank in the result, from 1."""
        if not found_ids or not name.startswith(_FINDERS):
            return ()
        text = compose("NFKC", "\n".join(texts_in(arguments)))
        new = []
        for rank, product_id in enumerate(found_ids, start=1):
            # As a word of its own, so that "7" is not found in "700".
            word = rf"(?<![0-9A-Za-z]){re.escape(product_id)}(?![0-9A-Za-z])"
            if product_id in self._ids or (product_id in text and re.search(word, text)):
                continue
            self._ids.add(product_id)
            new.append(Surfaced(product_id=product_id, rank=rank))
        return tuple(new)

    def missing(self, product_ids: tuple[str, ...]) -> tuple[str, ...]:
        """Those of `product_ids` that have not been surfaced, in their order, each once."""
        return tuple(dict.fromkeys(product_id for product_id in product_ids if product_id not in self._ids))


def texts_in(arguments: str) -> Iterator[str]:
    """Every text in the arguments: as it stands, and decoded, also from JSON inside a string, where escapes could hide
    an id from the eye but not from the tool."""
    stack: list[object] = [arguments]
    while stack:
        value = stack.pop()
        if isinstance(value, dict):
            stack.extend((*value.keys(), *value.values()))
        elif isinstance(value, list):
            stack.extend(value)
        else:
            yield str(value)
            if isinstance(value, str) and value.lstrip()[:1] in ("{", "["):
                with contextlib.suppress(orjson.JSONDecodeError):
                    stack.append(orjson.loads(value))
