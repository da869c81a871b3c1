"""Belief: whose word that a pair is done keeps a stand-in from doing it, learnt from what their logs showed.

Pure, and no part of the agreement: whom one validator believes changes what it evaluates, never what counts.
Nobody is believed before its log bore out what it said, and whoever's did not is not believed for the next
`RACES_REMEMBERED` races. So a validator that says its work is done and shows nothing can hold back stand-ins in one
race of so many, after it did its work in others. AGREEMENT.md, "Work".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from arena.race.model import SettlementInputs
from arena.race.settlement.results import pairs_given

Pair = tuple[str, str]  # (agent version id, problem id)

RACES_REMEMBERED = 30


class ProgressClaims(msgspec.Struct, frozen=True, kw_only=True):
    """Validators that said in a race that pairs are done: whose log held them all, and whose did not. Both sorted."""

    kept: tuple[str, ...] = ()
    broken: tuple[str, ...] = ()


def compare_words(said: Mapping[str, Iterable[Pair]], inputs: SettlementInputs) -> ProgressClaims:
    """What each validator said it did, against the results of its own that the settlement's records hold.

    One that said nothing is in neither list; what comes after the anchors counts for nobody, so what was `said` must
    have been heard before them.
    """
    given = pairs_given(inputs)
    told = {validator: frozenset(pairs) for validator, pairs in said.items()}
    kept = {validator for validator, pairs in told.items() if pairs and pairs <= given.get(validator, frozenset())}
    broken = {validator for validator, pairs in told.items() if pairs and validator not in kept}
    return ProgressClaims(kept=tuple(sorted(kept)), broken=tuple(sorted(broken)))


def believed(earlier: Iterable[ProgressClaims]) -> frozenset[str]:
    """Who is believed now, given what came of the races before, oldest first."""
    remembered = list(earlier)[-RACES_REMEMBERED:]
    kept = frozenset(validator for words in remembered for validator in words.kept)
    return kept - frozenset(validator for words in remembered for validator in words.broken)
