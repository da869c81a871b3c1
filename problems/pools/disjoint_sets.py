"""Disjoint sets: what is joined with what, however the joins came in.

The name of a set is its smallest member, so sets and names do not depend on the order of the joins.
"""

from __future__ import annotations

from collections.abc import Iterable


class DisjointSets:
    """Texts in sets that can be joined. A text that was never joined is a set of its own."""

    def __init__(self) -> None:
        self._above: dict[str, str] = {}

    def join(self, members: Iterable[str]) -> None:
        """Make one set of the sets of all `members`."""
        names = sorted({self.name_of(member) for member in members})
        for name in names[1:]:
            self._above[name] = names[0]

    def name_of(self, member: str) -> str:
        """The smallest member of its set."""
        path = []
        while (above := self._above.get(member)) is not None:
            path.append(member)
            member = above
        for passed in path:
            self._above[passed] = member
        return member

    def joined(self) -> dict[str, tuple[str, ...]]:
        """Every set of two members or more, by its name; members sorted."""
        sets: dict[str, list[str]] = {}
        for member in self._above:
            sets.setdefault(self.name_of(member), []).append(member)
        return {name: tuple(sorted([name, *members])) for name, members in sorted(sets.items())}
