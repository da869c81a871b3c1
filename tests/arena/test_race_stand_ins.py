"""Stand-ins, and whose word that work is done is taken."""

from __future__ import annotations

import pytest

from arena.race.agreement import RACES_REMEMBERED, believed, compare_words
from arena.race.machine import ProgressClaims
from tests.arena.race_stand import batch, candidate, digest, drawn_of, inputs, policy

VALIDATORS = ("val-a", "val-b", "val-c", "val-d", "val-e")
RULES = policy(validators_per_problem=3, results_required=2, stand_in_ms=10)
FIELD = tuple(candidate(name) for name in "abcdef")
BATCH, SEED = batch(), digest("seed")
DRAWN = drawn_of(RULES, BATCH)
PAIRS = frozenset((who.subject.agent_version_id, problem) for who in FIELD for problem in DRAWN)


def shown(*validators: str):
    """A race in which these did every pair, and their logs show it."""
    return inputs(FIELD, lambda *_: (True, 9_000), rules=RULES, validators=validators)


def test_a_word_is_kept_when_the_log_holds_all_that_was_said_and_broken_when_it_lacks_one_pair():
    (one, *_) = PAIRS
    said = {"val-a": PAIRS, "val-b": {one}, "val-c": {one}, "val-d": (), "val-e": {*PAIRS, ("v-a", "never drawn")}}
    words = compare_words(said, shown("val-a", "val-b", "val-d", "val-e"))
    assert words == ProgressClaims(kept=("val-a", "val-b"), broken=("val-c", "val-e"))


def test_a_success_without_a_verdict_bears_out_no_word():
    raced = inputs(FIELD, lambda *_: (True, None), rules=RULES, validators=("val-a",))
    assert compare_words({"val-a": PAIRS}, raced).broken == ("val-a",)


def test_nobody_is_believed_before_it_kept_its_word():
    assert believed([]) == frozenset()
    assert believed([ProgressClaims(), ProgressClaims(kept=("val-a",))]) == {"val-a"}


@pytest.mark.parametrize("races", [1, RACES_REMEMBERED - 1, RACES_REMEMBERED])
def test_who_broke_its_word_is_not_believed_until_it_is_forgotten_whatever_it_does_meanwhile(races):
    since = [ProgressClaims(kept=("val-a", "val-b"))] * races
    is_forgotten = races >= RACES_REMEMBERED
    assert believed([ProgressClaims(broken=("val-b",)), *since]) == ({"val-a", "val-b"} if is_forgotten else {"val-a"})
