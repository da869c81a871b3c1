"""Variants: what an agent is asked in place of a public problem, drawn for that agent alone.

A variant is a pure function of suite, catalogue, seed and the id of the suite's problem. It has the shape of
that problem (bucket, number of items, one shop or several, difficulty, every constraint in words), and other products
answer it: no product that answers anywhere in the suite satisfies any item of a variant, nor does a near-identical
listing of one answer it. So a table from public problems to ids, titles or search words says nothing about it, however
the table is keyed or hidden, and the next agent's variants are others. A requirement added to the public problem would
not do: at most `problems.synthesis.ambiguity.ACCEPTED_MAX` products satisfy an item, so a table could hold them all.

Titles are decided by `lexical/1`: a title release lists the suite's own titles and no others. Not thread-safe, as the
index is not.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from foundation.errors import ArenaError
from problems.model import Problem, variant_digest, variant_id
from problems.product import Product
from problems.scoring.soundness import check_problem
from problems.scoring.title_index import TitleIndex
from problems.scoring.title_matching import AcceptedTitles
from problems.suites.shipped import accept_lexically
from problems.synthesis.generator import ProblemMaker, TooFewProblemsError

_TRIES = 20  # draws whose title is too like an answer of the suite are thrown away


class Variant(msgspec.Struct, frozen=True, kw_only=True):
    """A variant and the titles that count for it."""

    problem: Problem
    titles: AcceptedTitles


class VariantMaker:
    """The variants of one suite over one catalogue."""

    def __init__(self, suite: Iterable[Problem], products: Iterable[Product]) -> None:
        """`suite` are all the public problems that are asked, since none of their answers may answer here."""
        self._suite = {problem.problem_id: problem for problem in suite}
        self._answers = frozenset(item.product_id for one in self._suite.values() for item in one.rewards)
        # without the long texts, which no problem asks about
        short = (
            msgspec.structs.replace(one, short_description="", description="", specification="") for one in products
        )
        self._index = TitleIndex(short)
        self._maker = ProblemMaker(self._index, exclude=self._answers)

    def variant(self, problem_id: str, seed: str) -> Variant:
        """The variant of the suite's problem under a seed.

        Raises ArenaError P4006 when the suite has no such problem, P4032 when the catalogue yields no variant of it.
        """
        model = self._suite.get(problem_id)
        if model is None:
            raise ArenaError("P4006", f"{problem_id} is not in the suite")
        named = variant_id(problem_id, seed)
        for attempt in range(_TRIES):
            number = int(variant_digest(f"draw {attempt}", problem_id, seed), 16)
            try:
                drawn = self._maker.make_like(model, seed=number, problem_id=named)
            except TooFewProblemsError as error:
                raise ArenaError("P4032", f"{problem_id}: {error.failure.detail}") from error
            titles = accept_lexically((drawn,), self._index, "variant")
            if not any(ids & self._answers for ids in titles.accepted.values()):
                check_problem(drawn)
                return Variant(problem=drawn, titles=titles)
        raise ArenaError("P4032", f"{problem_id}: all of {_TRIES} draws resemble answers of the suite")
