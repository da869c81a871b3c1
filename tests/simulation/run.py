"""A whole simulation: days of races under faults, audited one by one, and its figures."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from arena.store.embedded import EmbeddedServer
from tests.simulation.audit import RaceEnd, audit_logs, audit_race
from tests.simulation.faults import FaultPlan
from tests.simulation.race_day import RaceDay
from tests.simulation.world import Size, World


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """What a simulation came to. `ends`: race by race; `records` by kind; `faults` by what happened."""

    ends: tuple[RaceEnd, ...]
    sybils: frozenset[str]
    records: dict[str, int]
    faults: dict[str, int]

    @property
    def ended(self) -> tuple[str, ...]:
        """How each race ended."""
        return tuple("no quorum" if end.settlement is None else end.settlement.state for end in self.ends)


async def simulate(
    size: Size,
    seed: int,
    folder: Path,
    server: EmbeddedServer,
    *,
    plans: tuple[FaultPlan, ...] = (),
    sybils: int = 0,
    tell: Callable[[str], None] = print,
) -> Figures:
    """Run it and assert what must hold. `plans`: the faults of each race; drawn from the seed where there are none.
    `sybils`: how many of the first miners provoke faults."""
    begun_s = time.monotonic()
    world = World(size, seed, folder)
    ends: list[RaceEnd] = []
    await world.open(server.dsn_for)
    world.sybils = frozenset(miner.agent_version_id for miner in world.miners[:sybils])
    tell(f"seed {seed}: {len(world.desks)} validators, {size.miners} miners, {size.races} races")
    try:
        for number in range(size.races):
            day = RaceDay(world, number, plans[number] if plans else None)
            await day.run()
            ends.append(end := await audit_race(day))
            how = "no quorum" if end.settlement is None else f"{end.settlement.state} {end.settlement.reason}".rstrip()
            whose = f"own {end.own}, adopted {end.adopted}, without {end.without}"
            tell(f"{end.race_id} {how}: {whose}; {day.plan}; {time.monotonic() - begun_s:.0f} s")
        kinds = await audit_logs(world, server.owner_dsn)
        tell(f"records: {dict(kinds)}\nfaults: {dict(sorted(world.counts.items()))}")
        return Figures(ends=tuple(ends), sybils=world.sybils, records=dict(kinds), faults=dict(world.counts))
    finally:
        for desk in world.desks:
            await desk.real_store.close()
