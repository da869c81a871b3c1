"""Stand-ins, and whose word that work is done is taken."""

from __future__ import annotations

import itertools
from collections.abc import Collection

import pytest

from arena.race.decider import stand_in_items
from arena.race.draw import assign
from arena.race.logs import RACES_REMEMBERED, Pair, ProgressClaims, believed, compare_words
from tests.arena.race_stand import batch, candidate, digest, drawn_of, drawn_race, inputs, policy

VALIDATORS = ("val-a", "val-b", "val-c", "val-d", "val-e")
RULES = policy(validators_per_problem=3, results_required=2, stand_in_ms=10)
FIELD = tuple(candidate(name) for name in "abcdef")
BATCH, SEED = batch(), digest("seed")
DRAWN = drawn_of(RULES, BATCH)
PAIRS = frozenset((who.subject.agent_version_id, problem) for who in FIELD for problem in DRAWN)


def results_of(liars: Collection[str], absent: Collection[str], trusted: Collection[str]) -> dict[Pair, int]:
    """Results of each pair in the end, where `liars` say they did everything and show nothing, `absent` are away, and
    the honest believe `trusted`."""
    honest = [name for name in VALIDATORS if name not in (*liars, *absent)]
    done = {name: PAIRS for name in (*honest, *liars) if name in trusted}
    results = dict.fromkeys(PAIRS, 0)
    for agent, problem in PAIRS:
        assigned = assign(SEED, agent, problem, VALIDATORS, 3).assigned
        results[agent, problem] = sum(name in honest for name in assigned)
    for name in honest:
        race = drawn_race(FIELD, RULES, DRAWN, VALIDATORS, SEED)
        late = stand_in_items(race, name, done, waited_ms=1_000)
        for item in late:
            results[item.subject.agent_version_id, item.context.problem_id] += 1
    return results


def test_one_that_says_it_is_done_and_shows_nothing_takes_no_pair_from_the_race_while_another_is_away():
    for liar, absent in itertools.permutations(VALIDATORS, 2):
        assert min(results_of([liar], [absent], VALIDATORS).values()) >= RULES.race.results_required


def test_two_of_five_that_are_not_believed_take_no_pair_from_the_race():
    for liars in itertools.combinations(VALIDATORS, 2):
        trusted = frozenset(VALIDATORS) - frozenset(liars)
        assert min(results_of(liars, (), trusted).values()) >= RULES.race.results_required
        assert min(results_of(liars, (), ()).values()) >= RULES.race.results_required


# -- belief
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
