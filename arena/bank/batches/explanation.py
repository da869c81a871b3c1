"""What a raced problem asked and what an agent's answer had, constraint by constraint, out of the batch a node keeps.

An explanation says what the signed score says, axis by axis, or there is none. It takes the batch that the
record names, byte for byte, the catalogue that the episode was run over, and the titles that decided it; where this
machine lacks one of them, nothing is explained. It asks nobody who may see it: whoever shows it asks
`arena.visibility.rule` for the problem first.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import get_args

import msgspec

from arena.bank.batches.batch import KeptBatch
from arena.records.model import EvaluationRecord
from foundation.errors import ArenaError
from problems.scoring.constraints import Constraint, ConstraintAxis, explain_outcome
from problems.scoring.outcome import Axis, OutcomeScore
from problems.scoring.score import ProductOf
from problems.scoring.title_matching import MATCHERS, TitleMatcher


class AcceptedProduct(msgspec.Struct, frozen=True, kw_only=True):
    """A product that the rule accepts in a slot, counted from 1: the problem's own answer, or another that an agent
    recommended and that meets all that is asked."""

    slot: int
    product_id: str
    title: str
    price: str
    is_answer: bool


class Explained(msgspec.Struct, frozen=True, kw_only=True):
    """What a problem asked, and what one result had. `accepted`: the answers, and what this result recommended besides
    that counts in full; other products of the catalogue may count, too."""

    constraints: tuple[Constraint, ...] = ()
    accepted: tuple[AcceptedProduct, ...] = ()


NOTHING = Explained()
Explain = Callable[[EvaluationRecord, str], Explained]  # of a record, over the catalogue of that hash


class BatchExplainer:
    """Explains results on raced problems. `folder` holds `RACE.batch.json`; `products_of` gives the products of the
    catalogue with a hash, None where it is not here. Safe to use from several threads."""

    def __init__(self, folder: Path, products_of: Callable[[str], ProductOf | None]) -> None:
        self._folder, self._products_of = folder, products_of
        self._batches, self._lock = KeptBatch(), threading.Lock()

    def explain(self, record: EvaluationRecord, catalogue_sha256: str) -> Explained:
        """Every constraint of the record's problem with both values, and what is accepted; empty where that is not
        known here."""
        context, outcome = record.context, record.outcome
        if context.stage != "race" or not isinstance(outcome, OutcomeScore):
            return NOTHING
        try:
            with self._lock:
                batch = self._batches.read(self._folder / f"{context.race_id}.batch.json")
                product_of = self._products_of(catalogue_sha256)
            if product_of is None or batch.batch_sha256 != context.batch_sha256:
                return NOTHING
            titles: TitleMatcher | None = batch.titles or MATCHERS.get(outcome.titles)
            if titles is None or titles.name != outcome.titles:
                return NOTHING
            problem = batch.problem(context.problem_id)
            found = explain_outcome(problem, outcome, product_of, titles)
            if not _says_the_same(found, outcome):
                return NOTHING
            accepted = []
            for number, (item, slot) in enumerate(zip(problem.rewards, outcome.slots, strict=True), 1):
                ids = [item.product_id]
                if slot.is_found and slot.recommended_id and slot.rule_hits == slot.rule_total:
                    ids.append(slot.recommended_id)
                accepted += [
                    AcceptedProduct(
                        slot=number,
                        product_id=product_id,
                        title=product.title,
                        price=f"{product.price:g} PHP",
                        is_answer=product_id == item.product_id,
                    )
                    for product_id in dict.fromkeys(ids)
                    if (product := product_of(product_id)) is not None
                ]
            return Explained(constraints=found, accepted=tuple(accepted))
        except (ArenaError, KeyError, ValueError):  # no batch here, or one that is not this problem's
            return NOTHING


def explain_nothing(record: EvaluationRecord, catalogue_sha256: str) -> Explained:
    """Where no batch is at hand."""
    return NOTHING


def _says_the_same(found: Sequence[Constraint], outcome: OutcomeScore) -> bool:
    """Whether on every axis of every product as many constraints are asked and met as the score counts."""
    asked = Counter((one.slot, one.axis) for one in found)
    met = Counter((one.slot, one.axis) for one in found if one.is_met)
    for number, slot in enumerate(outcome.slots, 1):
        for axis in get_args(ConstraintAxis):
            counted: Axis | None = getattr(slot, axis, None)
            if counted is None or (slot.is_found and slot.is_answer):
                continue
            if (met[number, axis], asked[number, axis]) != (counted.hits, counted.total):
                return False
    return True
