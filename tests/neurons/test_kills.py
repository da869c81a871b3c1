"""SIGKILL of the validator, its workers, its serving process and its Postgres at random instants: what counts in the
end is what would have counted undisturbed, each attempt leaves one record, and no lease is given out twice."""

from __future__ import annotations

import random
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.neurons.away_stand import Away
from tests.neurons.kill_stand import AGENTS, POLICY, PROBLEMS, Kept, disturb, finish, prepare

SEED = 20_261_121
KILLS_A_RUN = 5
_PAIRS = len(AGENTS) * (POLICY.qualifying.problems + PROBLEMS) + PROBLEMS  # the control agent races, too
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


def test_a_worker_host_that_is_lost_in_a_race_changes_nothing_of_what_counts(
    arena_base: Path,
    small_catalogue: Path,
    undisturbed: Kept,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    away = Away(tmp_path)
    (tmp_path / "arena.toml").write_text(
        f"""
[[worker_hosts]]
name = "w1"
launch = {list(away.launch)}
python = "{sys.executable}"
workers = 2
catalogue_dir = "{small_catalogue}"
guest_dir = "{arena_base}"
"""
    )
    monkeypatch.setenv("ARENA_CONFIG", str(tmp_path / "arena.toml"))
    run = prepare(arena_base, small_catalogue)

    def lose() -> None:
        while away.episodes_begun() < 4:
            time.sleep(0.05)
        away.lose()

    loser = threading.Thread(target=lose, daemon=True)
    loser.start()
    kept = finish(run)
    assert not loser.is_alive()  # it ran some, then it was lost
    assert kept.counted == undisturbed.counted
    assert kept.evaluations == len(kept.counted)
    assert "slot.rests" in (run.folder / "validator.log").read_text()
