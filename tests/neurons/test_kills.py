"""SIGKILL of the validator, its workers, its serving process and its Postgres at random instants: what counts in the
end is what would have counted undisturbed, each attempt leaves one record, and no lease is given out twice."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest

from tests.neurons.process_stand import AGENTS, KILLED, PROBLEMS, Kept, disturb, finish, prepare

SEED = 20_261_121
KILLS_A_RUN = 5
_PAIRS = len(AGENTS) * (KILLED.qualifying.problems + PROBLEMS) + PROBLEMS  # the control agent races, too
FEW, MANY = 1, pytest.param(10, marks=pytest.mark.prove)


@pytest.fixture(scope="module")
def undisturbed(arena_base: Path, small_catalogue: Path) -> Kept:
    """What a run without a kill counts."""
    kept = finish(prepare(arena_base, small_catalogue))
    assert kept.evaluations == len(kept.counted) == _PAIRS
    return kept


@pytest.mark.parametrize("runs", [FEW, MANY])
def test_kills_at_random_instants_change_nothing_of_what_counts(
    runs: int, arena_base: Path, small_catalogue: Path, undisturbed: Kept, capsys: pytest.CaptureFixture[str]
) -> None:
    killed: Counter[str] = Counter()
    more_attempts = 0
    for number in range(runs):
        run = prepare(arena_base, small_catalogue)
        killed += disturb(run, random.Random(f"{SEED} {number}"), KILLS_A_RUN)
        kept = finish(run)
        assert kept.counted == undisturbed.counted
        assert kept.evaluations == len(kept.counted)
        more_attempts += kept.attempts - undisturbed.attempts
    with capsys.disabled():
        print(f"\nseed {SEED}: {killed.total()} kills ({dict(killed)}), {more_attempts} attempts cut off")
    assert killed.total() == runs * KILLS_A_RUN
