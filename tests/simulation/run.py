"""A whole simulation: days of races under faults, what must hold after each, and the figures of all."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import asyncpg
import msgspec

from arena.chain.keys import verify
from arena.race.machine import Force, force_of, paid_race
from arena.race.settle import differences, settlement_sha256
from arena.records.body import decode_content, restore_frame
from arena.records.model import AttemptRecord, EvaluationRecord, SettlementRecord, StoredBody
from arena.records.verification import verify_store
from arena.store.embedded import EmbeddedServer
from foundation.canonical import canonical_bytes
from neurons.race.log import read_race, read_settled, replay_race
from tests.arena.chain_faults import deregister, reorg, set_finality_lag
from tests.simulation.faults import FaultPlan, fault_towards, plan_faults
from tests.simulation.world import HOUR_MS, SimulatedDesk, Size, World

_COPIED = 5  # records a liar repeats


class RaceDay:
    """Runs one race of a world under a plan of faults."""

    def __init__(self, world: World, number: int, plan: FaultPlan | None = None) -> None:
        self.world, self.number = world, number
        self.race_id, self.moments = world.race_id(number), world.plan(number)
        self.dice = random.Random(f"faults {world.seed} {number}")
        self.plan = plan_faults(self.dice, world.size.stakes) if plan is None else plan
        self._ends_ms = self.moments.abandon_ms + HOUR_MS
        self._deaths = sorted(self.plan.crashes, key=lambda crash: crash.at)
        self._reorgs = sorted(self.plan.reorgs, key=lambda reorg: reorg.at)
        self._is_stalled = False

    def _at(self, share: float) -> int:
        """A moment of the race, from an hour before its close to its last."""
        begins_ms = self.moments.closing_ms - HOUR_MS
        return round(begins_ms + share * (self.moments.abandon_ms - begins_ms))

    @property
    def honest(self) -> list[SimulatedDesk]:
        """The validators that do not lie today, the absent among them."""
        return [desk for desk in self.world.desks if desk.number not in self.plan.liars]

    async def run(self) -> None:
        """Let the day pass."""
        self._set_liars()
        await self._before_the_close()
        has_left = has_copied = False
        time = self.world.time
        while time.ms < self._ends_ms:
            await self._arm_until(time.ms)
            if not has_left and time.ms >= self.moments.closing_ms + 4 * HOUR_MS:
                has_left = await self._let_go()
            if not has_copied and self.plan.copies and time.ms >= self.moments.settling_ms + HOUR_MS:
                has_copied = await self._copy()
            for desk in self._in_order():
                desk.is_absent = self._is_absent(desk.number, time.ms)
                await desk.turn()
            await self._reorganise_until(time.ms)
            time.pass_s(self.world.size.step_ms / 1_000)
        await self._mend()

    def _in_order(self) -> list[SimulatedDesk]:
        return self.dice.sample(self.world.desks, len(self.world.desks))

    def _set_liars(self) -> None:
        counts, plan = self.world.counts, self.plan
        counts["validators lying"] += len(plan.liars)
        counts["validators absent"] += len(plan.absent)
        for desk in self.world.desks:
            desk.is_liar = desk.number in plan.liars
            desk.is_boasting = plan.lies.get(desk.number) == "boast"
            counts["validators boasting"] += desk.is_boasting
            is_nonsense = desk.is_liar and plan.countersigns_nonsense
            desk.chain.lies_from_ms = self.moments.results_receipt_ms + 1 if is_nonsense else 0
            counts["countersignatures of nonsense"] += is_nonsense
        self.introduce()

    def introduce(self) -> None:
        """Tell every validator how each liar treats it."""
        for desk in self.world.desks:
            desk.peers.faults = {
                self.world.desks[liar].signer.hotkey: fault_towards(lie, desk.number, liar)
                for liar, lie in self.plan.lies.items()
                if liar != desk.number
            }

    async def _before_the_close(self) -> None:
        """Most of the day: one turn each an hour or so before the close."""
        early_ms = self.moments.closing_ms - HOUR_MS - self.world.size.step_ms // 2  # turns stand between the moments
        if self.world.time.ms < early_ms:
            self.world.time.ms = early_ms
        for desk in self.world.desks:
            await desk.turn()

    async def _arm_until(self, now_ms: int) -> None:
        """Deaths that are due wait for the next write; the chain's finality stands still around the settling block."""
        while self._deaths and self._at(self._deaths[0].at) <= now_ms:
            crash = self._deaths.pop(0)
            self.world.desks[crash.desk].store.arm(crash)
        if self.plan.finality_stalls and not self._is_stalled and now_ms >= self.moments.settling_ms - HOUR_MS:
            await set_finality_lag(self.world.chain, 100)
            self._is_stalled = True
            self.world.counts["finality stalls"] += 1
        elif self._is_stalled and now_ms >= self.moments.settling_ms + HOUR_MS:
            await set_finality_lag(self.world.chain, 3)

    async def _reorganise_until(self, now_ms: int) -> None:
        """Blocks are replaced right after everybody turned: what was said just now may be gone."""
        while self._reorgs and self._at(self._reorgs[0].at) <= now_ms:
            planned = self._reorgs.pop(0)
            depth = min(planned.depth, await self._unfinal())
            if depth:
                await reorg(self.world.chain, depth, is_accepted_again=planned.is_accepted_again)
                self.world.counts["reorgs"] += 1

    async def _unfinal(self) -> int:
        chain = self.world.chain
        return await chain.block() - await chain.finalized_block()

    async def _let_go(self) -> bool:
        """Uids change hands between the close and the settlement."""
        for _ in range(self.plan.leaving_miners):
            await self.world.leave()
            self.world.counts["miners deregistered"] += 1
        if self.plan.leaving_validator is not None:
            await deregister(self.world.chain, self.world.desks[self.plan.leaving_validator].signer.hotkey)
            self.world.counts["validators deregistered"] += 1
        return True

    async def _copy(self) -> bool:
        """Liars append what another showed, as their own: it came after their anchor, and counts for nobody."""
        if not self.plan.liars:
            return True
        shown = self.honest[0].real_store
        payloads = []
        async for record in shown.records(kinds=("evaluation", "verdict"), race_id=self.race_id):
            payloads.append(decode_content(record.content).payload)
            if len(payloads) == _COPIED:
                break
        if payloads:
            named = [payload.body_sha256 for payload in payloads if isinstance(payload, EvaluationRecord)]
            bodies = [
                StoredBody(body_sha256=frame.body_sha256, content=restore_frame(frame.content, frame.size))
                for frame in await shown.frames(named)
            ]
            for liar in self.plan.liars:
                await self.world.desks[liar].node.sequencer.append(payloads, bodies)
                self.world.desks[liar].has_copied = True
                self.world.counts["records copied"] += len(payloads)
        return True

    def _is_absent(self, number: int, now_ms: int) -> bool:
        return any(
            number == each and self._at(since) <= now_ms < self._at(until) for each, since, until in self.plan.absent
        )

    async def _mend(self) -> None:
        """The day is over: everybody is back and honest, and turns until nothing is left to do."""
        if self.plan.finality_stalls:
            await set_finality_lag(self.world.chain, 3)
        number = self.plan.leaving_validator
        if number is not None:
            await self.world.enrol(number, self.world.size.stakes[number])
        for desk in self.world.desks:
            desk.is_absent = desk.is_liar = desk.is_boasting = False
            desk.chain.lies_from_ms = 0
            desk.peers.faults = {}
        for _ in range(4):
            for desk in self.world.desks:
                await desk.turn()
            self.world.time.pass_s(self.world.size.step_ms / 1_000)


_COPIES = frozenset({"double", "attempt", "body"})  # what verification says of another's results in one's own log


class RaceEnd(msgspec.Struct, frozen=True, kw_only=True):
    """How a race ended for the honest validators. `settlement` is the one they agree on; None: all say no quorum."""

    race_id: str
    settlement: SettlementRecord | None
    own: int  # honest validators with a settlement of their own in force
    adopted: int
    without: int  # honest validators that say there is none


async def audit_race(day: RaceDay) -> RaceEnd:
    """Assert that honest validators ended the race alike, pay alike, and can each settle it again, byte for byte."""
    agreed: dict[str, SettlementRecord] = {}
    desks: dict[Force, list[SimulatedDesk]] = {"own": [], "adopted": [], "none": []}
    for desk in day.honest:
        state = next(state for state in await desk.clock.states() if state.race_id == day.race_id)
        force = force_of(state)
        desks[force].append(desk)
        if state.settlement is not None and force != "none":
            agreed[settlement_sha256(state.settlement)] = state.settlement
    assert len(agreed) <= 1, f"{day.race_id}: {len(agreed)} settlements among honest validators"
    for desk in desks["own"]:
        await settle_again(desk, *agreed.values())
    await _require_equal_weights(day, desks["own"])
    adopted, without = len(desks["adopted"]), len(desks["none"])
    settlement = next(iter(agreed.values()), None)
    return RaceEnd(race_id=day.race_id, settlement=settlement, own=len(desks["own"]), adopted=adopted, without=without)


async def settle_again(desk: SimulatedDesk, settlement: SettlementRecord) -> None:
    """Replay a race from what one validator keeps."""
    settled = await read_settled(desk.real_store, desk.signer.hotkey)
    (found,) = [each for each in settled if each.settlement.race_id == settlement.race_id]
    given = found.settlement
    assert (given, found.force) == (settlement, "own")
    records = await read_race(desk.real_store, desk.held, given)
    made, _ = replay_race(given, records, [each.settlement for each in settled])
    assert differences(made, given) == ()
    assert canonical_bytes(made) == canonical_bytes(given)


async def _require_equal_weights(day: RaceDay, own: list[SimulatedDesk]) -> None:
    vectors = {}
    for desk in own:
        if desk.number == day.plan.leaving_validator:
            continue  # it was off the subnet, and may only be back at its next try
        paid = paid_race(await desk.clock.states())
        results = await desk.real_store.weights_results(1)
        if paid is not None and paid.race_id == day.race_id and results and results[0].status == "ok":
            vectors[desk.number] = await day.world.chain.weights(desk.signer.hotkey)
    assert len(set(vectors.values())) <= 1, f"{day.race_id}: {vectors}"


async def audit_logs(world: World, owner_dsn: str) -> Counter[str]:
    """Assert that every log verifies, every lease left exactly one attempt record, and no fence came twice."""
    kinds: Counter[str] = Counter()
    for desk in world.desks:
        report = await verify_store(desk.real_store, verify)
        found = {defect.rule for defect in report.defects}
        assert found <= (_COPIES if desk.has_copied else frozenset()), report.defects
        assert bool(found) == desk.has_copied, "what a liar copied was not found in its log"
        kinds.update(report.kinds)
        attempts = [
            decode_content(record.content).payload async for record in desk.real_store.records(kinds=("attempt",))
        ]
        names = [payload.attempt_id for payload in attempts if isinstance(payload, AttemptRecord)]
        assert len(names) == len(set(names)), "an attempt has two records"
        connection = await asyncpg.connect(owner_dsn)
        try:
            rows = await connection.fetch(
                "select item_id, fence, state from arena.lease where validator = $1", desk.signer.hotkey
            )
        finally:
            await connection.close()
        assert {f"{row['item_id']}:{row['fence']}" for row in rows} == set(names), "a lease left no attempt record"
        assert not [row for row in rows if row["state"] in ("open", "lost")]
        done = Counter(row["item_id"] for row in rows if row["state"] == "done")
        assert set(done.values()) <= {1}, "an item was finished twice"
    return kinds


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
