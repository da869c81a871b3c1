"""One day of a simulated network: faults are set, time passes, everybody turns, and the day's race is over."""

from __future__ import annotations

import random

from arena.records.body import decode_content, restore_frame
from arena.records.model import EvaluationRecord, StoredBody
from tests.arena.chain_faults import deregister, reorg, set_finality_lag
from tests.neurons.shared_stand import HOUR_MS
from tests.simulation.faults import FaultPlan, fault_towards, plan_faults
from tests.simulation.world import SimulatedDesk, World

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
