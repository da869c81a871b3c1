"""Walking through JSON that somebody else wrote."""

from __future__ import annotations

from collections.abc import Iterator


def objects_in(value: object) -> Iterator[dict[str, object]]:
    """Every object in a decoded value, without recursion."""
    stack = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, dict):
            yield item
            stack.extend(item.values())
        elif isinstance(item, list):
            stack.extend(item)
