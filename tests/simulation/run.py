"""A whole simulation: days of races under faults, audited one by one, and its figures."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import msgspec

from arena.records.model import SettlementRecord
from arena.store.embedded import EmbeddedServer
from tests.simulation.audit import RaceEnd, audit_logs, audit_race, name_a_flip
from tests.simulation.faults import FaultPlan
from tests.simulation.race_day import RaceDay
from tests.simulation.world import Size, World


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """What a simulation came to."""

    seed: int
    races: int
    settled: int
    cancelled: int  # settled alike, as cancelled by the rules
    no_quorum: int
    ended: tuple[str, ...]  # race by race
    settlements: tuple[SettlementRecord, ...]
    sybils: frozenset[str]
    own: int  # settlements of honest validators that were their own
    adopted: int
    without: int  # honest validators that said no quorum while others settled
    disagreements: int
    records: dict[str, int]
    faults: dict[str, int]
    flips_named: int
    elapsed_s: float


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
    flips = 0
    await world.open(server.dsn_for)
    world.sybils = frozenset(miner.agent_version_id for miner in world.miners[:sybils])
    tell(f"seed {seed}: {len(world.desks)} validators, {size.miners} miners, {size.races} races")
    try:
        for number in range(size.races):
            day = RaceDay(world, number, plans[number] if plans else None)
            await day.run()
            end = await audit_race(day)
            ends.append(end)
            if end.settlement is not None and end.settlement.state == "settled" and end.records is not None:
                witness = world.desks[end.witness]
                named = await name_a_flip(witness, end.settlement, random.Random(f"flip {seed} {number}"))
                flips += 1
            else:
                named = "-"
            tell(_line(day, end, named, time.monotonic() - begun_s))
        kinds = await audit_logs(world, server.owner_dsn)
        return _figures(world, ends, kinds, flips, time.monotonic() - begun_s)
    finally:
        for desk in world.desks:
            await desk.real_store.close()


def _line(day: RaceDay, end: RaceEnd, named: str, elapsed_s: float) -> str:
    settlement, plan = end.settlement, day.plan
    how = "no quorum" if settlement is None else f"{settlement.state} {settlement.reason}".rstrip()
    return (
        f"{end.race_id} {how}: own {end.settled}, adopted {end.adopted}, without {end.without}; lies {plan.lies},"
        f" absent {[number for number, _, _ in plan.absent]}; flip named {named[:60]!r}; {elapsed_s:.0f} s"
    )


def _figures(world: World, ends: list[RaceEnd], kinds: Counter[str], flips: int, elapsed_s: float) -> Figures:
    settlements = [end.settlement for end in ends if end.settlement is not None]
    return Figures(
        seed=world.seed,
        races=len(ends),
        settled=sum(each.state == "settled" for each in settlements),
        cancelled=sum(each.state != "settled" for each in settlements),
        no_quorum=sum(end.settlement is None for end in ends),
        settlements=tuple(settlements),
        sybils=world.sybils,
        ended=tuple("no quorum" if end.settlement is None else end.settlement.state for end in ends),
        own=sum(end.settled for end in ends),
        adopted=sum(end.adopted for end in ends),
        without=sum(end.without for end in ends if end.settlement is not None),
        disagreements=0,  # the audit of each race ends the run at the first
        records=dict(kinds),
        faults=dict(sorted(world.counts.items())),
        flips_named=flips,
        elapsed_s=elapsed_s,
    )


def show(figures: Figures) -> str:
    """The figures as people read them."""
    lines = [
        f"seed {figures.seed}: {figures.races} races in {figures.elapsed_s:.0f} s: {figures.settled} settled,"
        f" {figures.cancelled} cancelled, {figures.no_quorum} without a quorum",
        f"honest validators: {figures.own} settled by themselves, {figures.adopted} adopted, {figures.without} said no"
        f" quorum alone; disagreements: {figures.disagreements}",
        f"records: {sum(figures.records.values())} ({figures.records})",
        f"faults: {sum(figures.faults.values())} ({figures.faults})",
        f"flipped bytes named: {figures.flips_named}",
    ]
    return "\n".join(lines)
