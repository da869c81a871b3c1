"""Which products the results of a foreign conversation returned.

Pure and total. Ids are those that a result gives as a `product_id` (or `item_id`), in JSON or in text that
prints it; what `recommend_product` and `terminate` answer is no search. It is what the row shows, and no record of a
host: a result that was shortened names fewer.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from harness.chat import Message
from training.corpus.filter.gates import RECOMMEND, TERMINATE

_QUOTES = r"[\\\"'’”]*"
_NAMED = re.compile(rf"\b(?:product|item)[ _-]?id{_QUOTES}\s*[:=]?\s*{_QUOTES}([A-Za-z0-9][\w-]*)", re.IGNORECASE)


def surfaced_in(messages: Iterable[Message]) -> tuple[str, ...] | None:
    """The ids in order of appearance; None where no result names one."""
    silent: set[str] = set()
    found: dict[str, None] = {}
    for message in messages:
        silent.update(call.id for call in message.calls if call.name in (RECOMMEND, TERMINATE))
        if message.role == "tool" and message.call_id not in silent:
            found.update(dict.fromkeys(_NAMED.findall(message.content)))
    return tuple(found) or None
