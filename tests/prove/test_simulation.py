"""Thirty days of races between five validators with 64 miners, in virtual time, under drawn faults: some 25 minutes.

And eight with liars that do no work and say that it is done, with just under half of the stake: some five.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from arena.store.embedded import start_embedded
from tests.neurons.arena_stand import forgo_durability, short_folder
from tests.simulation.faults import FaultPlan
from tests.simulation.run import Figures, simulate
from tests.simulation.world import Size

BOASTED = Size(stakes=(18, 17, 16, 25, 24), miners=16, races=8, problems=8)
BOAST = FaultPlan(liars=(3, 4), lies={3: "boast", 4: "boast"}, copies=True)
SEED = int(os.environ.get("SIMULATION_SEED", "7"))
FULL = Size(stakes=(26, 24, 20, 17, 13), miners=64, races=30, problems=10)


def run(size: Size, folder: Path, plans: tuple[FaultPlan, ...] = ()) -> Figures:
    with short_folder() as state:
        server = start_embedded(state)
        try:
            forgo_durability(server)
            return asyncio.run(simulate(size, SEED, folder, server, plans=plans))
        finally:
            server.stop()


@pytest.mark.prove
def test_thirty_races_under_faults_end_alike_for_every_honest_validator(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with capsys.disabled():
        figures = run(FULL, tmp_path)
    assert len(figures.ended) == FULL.races
    assert figures.ended.count("settled") > FULL.races // 2


@pytest.mark.prove
def test_forty_nine_per_cent_that_say_they_are_done_and_show_nothing_spoil_no_race(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with capsys.disabled():
        figures = run(BOASTED, tmp_path, (FaultPlan(), *[BOAST] * (BOASTED.races - 1)))
    assert figures.ended == ("settled",) * BOASTED.races
    assert not any(end.adopted or end.without for end in figures.ends)
