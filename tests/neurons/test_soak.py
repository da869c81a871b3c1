"""A validator that races on holds no more from race to race: processes, threads, files; over thirty races, memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.neurons.process_stand import Seen, growth_mb, rest, soak

SLACK = 4  # a pool of threads or connections that fills by and by


def nothing_piles_up(seen: list[Seen]) -> None:
    """The last race holds open what the second did: the first one starts pools."""
    second, last = seen[1], seen[-1]
    assert last.processes <= second.processes + 1  # an episode's jail may be among them
    assert last.threads <= second.threads + SLACK
    assert last.files <= second.files + SLACK


def test_races_leave_no_process_thread_or_file_behind(arena_base: Path, small_catalogue: Path) -> None:
    nothing_piles_up(soak(arena_base, small_catalogue, 3))


@pytest.mark.prove
def test_thirty_races_hold_no_more_memory_than_the_first_ones(
    arena_base: Path, small_catalogue: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    resting_mb, _ = rest(arena_base, small_catalogue)
    races = soak(arena_base, small_catalogue, 30)
    first, last, growth = races[0], races[-1], growth_mb(races)
    with capsys.disabled():
        print(f"\nat rest {resting_mb:.0f} MB; by race {[round(one.most_mb) for one in races]}")
        print(f"growth {growth:.2f} MB a race; validator alone {first.own_mb:.0f} to {last.own_mb:.0f} MB")
    nothing_piles_up(races)
    assert growth <= 2.0
