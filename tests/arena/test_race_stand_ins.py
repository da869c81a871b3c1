"""Stand-ins and validators that only say they did their work."""

from __future__ import annotations

import itertools

from arena.race.assign import assign
from arena.race.items import stand_in_items
from tests.arena.race_stand import RACE, batch, candidate, digest, drawn_of, policy

VALIDATORS = ("val-a", "val-b", "val-c", "val-d", "val-e")
RULES = policy(validators_per_problem=3, results_required=2, stand_in_ms=10)
FIELD = tuple(candidate(name) for name in "abcdef")
BATCH, SEED = batch(), digest("seed")
DRAWN = drawn_of(RULES, BATCH)
PAIRS = frozenset((who.subject.agent_version_id, problem) for who in FIELD for problem in DRAWN)


def results_of(liar: str, absent: str) -> dict[tuple[str, str], int]:
    """Results of each pair in the end, where `liar` says it did everything and shows nothing, and `absent` is away."""
    honest = [name for name in VALIDATORS if name not in (liar, absent)]
    done = dict.fromkeys([*honest, liar], PAIRS)
    results = dict.fromkeys(PAIRS, 0)
    for agent, problem in PAIRS:
        assigned = assign(SEED, agent, problem, VALIDATORS, 3).assigned
        results[agent, problem] = sum(name in honest for name in assigned)
    for name in honest:
        late = stand_in_items(
            *(RACE, FIELD, DRAWN, BATCH, RULES.race),
            seed=SEED,
            validators=VALIDATORS,
            validator=name,
            done=done,
            waited_ms=1_000,
        )
        for item in late:
            results[item.subject.agent_version_id, item.context.problem_id] += 1
    return results


def test_one_that_says_it_is_done_and_shows_nothing_takes_no_pair_from_the_race_while_another_is_away():
    for liar, absent in itertools.permutations(VALIDATORS, 2):
        assert min(results_of(liar, absent).values()) >= RULES.race.results_required
