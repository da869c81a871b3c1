"""Title matchers: whether a product's title says the same as a reward title.

A matcher is a pure function that gives the same answer on every machine. The similarity model itself never
runs here: a bank release lists, per reward title, the product ids that passed it, and `AcceptedTitles` looks them up.
`LexicalTitles` needs no release and serves the synthetic catalogue and the golden vectors. The matcher's name is in
every outcome.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Sequence
from typing import Protocol

import msgspec

from foundation.errors import ArenaError
from problems.model import Problem, Product

_WORD = re.compile(r"[a-z0-9]+")


class TitleMatcher(Protocol):
    """Decides the title axis."""

    @property
    def name(self) -> str:
        """Stable name of the matcher and its threshold, e.g. `lexical/1`."""
        ...

    def matches(self, product: Product, reward_title: str) -> bool:
        """True when the product's title counts as `reward_title`.

        Raises ArenaError V2040 when the matcher has no knowledge of `reward_title`.
        """
        ...


@functools.lru_cache(maxsize=65_536)
def title_words(title: str) -> frozenset[str]:
    """The set of `[a-z0-9]+` words of the lower-cased title."""
    return frozenset(_WORD.findall(title.lower()))


def resemble(one: str, other: str) -> bool:
    """Whether |A ∩ B| / |A ∪ B| of the titles' word sets is at least 7/10, compared in integers."""
    ours, theirs = title_words(one), title_words(other)
    shared = len(ours & theirs)
    return shared > 0 and 10 * shared >= 7 * (len(ours) + len(theirs) - shared)


class LexicalTitles(msgspec.Struct, frozen=True):
    """Word-set Jaccard similarity of at least 7/10. Titles without a single word match nothing."""

    name: str = "lexical/1"

    def matches(self, product: Product, reward_title: str) -> bool:
        """Whether the two titles resemble each other."""
        return resemble(product.title, reward_title)


class AcceptedTitles(msgspec.Struct, frozen=True, kw_only=True):
    """A release's verdict: per reward title, the ids of the products whose title passed the similarity model."""

    name: str
    accepted: dict[str, frozenset[str]]

    def matches(self, product: Product, reward_title: str) -> bool:
        """Set membership. Raises ArenaError V2040 when the release does not list `reward_title`."""
        try:
            return product.product_id in self.accepted[reward_title]
        except KeyError:
            raise ArenaError("V2040", f"{self.name} does not list the title {reward_title!r}") from None


def join_titles(releases: Sequence[AcceptedTitles]) -> AcceptedTitles:
    """Several releases as one: each title is decided by the first that lists it. Named after each, once, in order."""
    accepted: dict[str, frozenset[str]] = {}
    for release in releases[::-1]:
        accepted |= release.accepted
    return AcceptedTitles(name=" + ".join(dict.fromkeys(one.name for one in releases)), accepted=accepted)


def decode_accepted(text: str | bytes) -> AcceptedTitles:
    """An `AcceptedTitles` from its JSON: `{"name": str, "accepted": {title: [product_id, ...]}}`.

    Raises ArenaError P4001 when it has another shape or takes the name of a built-in matcher.
    """
    try:
        release = msgspec.json.decode(text, type=AcceptedTitles)
    except (msgspec.MsgspecError, UnicodeError) as error:
        raise ArenaError("P4001", str(error)) from error
    if not release.name or release.name in MATCHERS:
        raise ArenaError("P4001", f"{release.name!r} is not a name for a release")
    return release


def encode_accepted(release: AcceptedTitles) -> bytes:
    """A title release as `decode_accepted` reads it: titles and ids sorted, so that equal releases are equal bytes."""
    accepted = {title: sorted(ids) for title, ids in sorted(release.accepted.items())}
    return msgspec.json.encode({"name": release.name, "accepted": accepted}) + b"\n"


def reward_titles(problems: Iterable[Problem]) -> frozenset[str]:
    """Every reward title of these problems: what a release that scores them has to list."""
    return frozenset(title for problem in problems for item in problem.rewards for title in item.title)


def cut_titles(release: AcceptedTitles, problems: Iterable[Problem]) -> AcceptedTitles:
    """What the release says of these problems' reward titles, and of no others, under its name.

    Raises ArenaError P4001 when it does not list one of them.
    """
    wanted = reward_titles(problems)
    if missing := wanted - release.accepted.keys():
        raise ArenaError("P4001", f"{release.name} does not list the title {min(missing)!r}")
    return AcceptedTitles(name=release.name, accepted={title: release.accepted[title] for title in sorted(wanted)})


MATCHERS: dict[str, TitleMatcher] = {"lexical/1": LexicalTitles()}


def matcher_named(name: str) -> TitleMatcher:
    """The built-in matcher of that name. Raises ArenaError V2040 when there is none."""
    if name not in MATCHERS:
        raise ArenaError("V2040", f"{name!r} is not one of {sorted(MATCHERS)}")
    return MATCHERS[name]
