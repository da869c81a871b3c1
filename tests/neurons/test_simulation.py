"""A small network in virtual time, with every kind of fault once: honest validators settle and pay alike.

The large one is `tests/prove/test_simulation.py`.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from arena.store.embedded import EmbeddedServer
from tests.simulation.faults import CrashAt, FaultPlan, ReorgAt
from tests.simulation.run import simulate
from tests.simulation.world import HOUR_MS, Size

SEED = 20_261_121
SMALL = Size(stakes=(40, 30, 29), miners=6, races=3, problems=4, step_ms=HOUR_MS)
PLANS = (
    FaultPlan(
        liars=(2,),
        lies={2: "withhold"},
        countersigns_nonsense=True,
        copies=True,
        crashes=(CrashAt(desk=0, at=0.3, writes=1, is_before=True), CrashAt(desk=1, at=0.7, writes=1, is_before=False)),
        leaving_miners=1,
    ),
    FaultPlan(
        absent=((1, 0.15, 0.5),),
        reorgs=(ReorgAt(at=0.2, depth=2, is_accepted_again=True), ReorgAt(at=0.6, depth=1, is_accepted_again=False)),
        finality_stalls=True,
        crashes=(CrashAt(desk=0, at=0.6, writes=2, is_before=True),),
    ),
    FaultPlan(liars=(0,), lies={0: "show to one"}, absent=((2, 0.4, 1.0),), leaving_validator=0),
)


BOASTED = Size(stakes=(18, 17, 16, 25, 24), miners=4, races=3, problems=3, step_ms=HOUR_MS)
BOAST = FaultPlan(liars=(3, 4), lies={3: "boast", 4: "boast"})


def test_every_kind_of_fault_leaves_honest_validators_with_equal_settlements_and_weights(
    server: EmbeddedServer, tmp_path: Path
) -> None:
    figures = asyncio.run(simulate(SMALL, SEED, tmp_path, server, plans=PLANS))
    assert len(figures.ended) == 3 and figures.ended.count("settled") >= 2
    assert figures.records["attempt"] >= figures.records["evaluation"] - figures.faults["records copied"]
    happened = {name for name, count in figures.faults.items() if count}
    assert happened >= {"crashes", "reorgs", "finality stalls", "records copied", "countersignatures of nonsense"}
    assert happened >= {"miners deregistered", "validators deregistered", "validators lying", "validators absent"}


def test_validators_that_say_they_are_done_spoil_one_race_at_most_and_sybils_are_charged_for_the_faults_they_provoke(
    server: EmbeddedServer, tmp_path: Path
) -> None:
    """What provoked faults are worth: `tests/arena/test_race_control.py`."""
    figures = asyncio.run(simulate(BOASTED, SEED + 1, tmp_path, server, plans=(FaultPlan(), BOAST, BOAST), sybils=1))
    assert figures.ended == ("settled", "settled", "settled")
    first = figures.ends[0].settlement
    assert first is not None and first.void == ()
    assert {row.agent_version_id for row in first.standings if row.faulted} == figures.sybils
    assert len(first.standings) == BOASTED.miners and not any(row.missing for row in first.standings)
