"""Thirty days of races between five validators with 64 miners, in virtual time, under drawn faults. Some 40 minutes."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from arena.store.embedded import start_embedded
from tests.neurons.arena_stand import short_folder
from tests.simulation.run import forgo_durability, show, simulate
from tests.simulation.world import Size

SEED = int(os.environ.get("SIMULATION_SEED", "7"))
FULL = Size(stakes=(26, 24, 20, 17, 13), miners=64, races=30, problems=10)


@pytest.mark.prove
def test_thirty_races_under_faults_end_alike_for_every_honest_validator(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with short_folder() as state, capsys.disabled():
        server = start_embedded(state)
        try:
            forgo_durability(server)
            figures = asyncio.run(simulate(FULL, SEED, tmp_path, server))
        finally:
            server.stop()
        print(show(figures))
    assert (figures.races, figures.disagreements) == (FULL.races, 0)
    assert figures.settled + figures.cancelled + figures.no_quorum == FULL.races
    assert figures.settled > FULL.races // 2
    assert len(figures.crownings) == 6
