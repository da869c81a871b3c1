"""What must hold after every simulated race, whatever went wrong in it, looked at through what is kept."""

from __future__ import annotations

from collections import Counter

import asyncpg
import msgspec

from arena.chain.keys import verify
from arena.race.machine import RaceState, paid_race
from arena.race.settle import settlement_sha256
from arena.records.body import decode_content
from arena.records.model import AttemptRecord, SettlementRecord
from arena.records.verification import verify_store
from foundation.canonical import canonical_bytes
from neurons.race.log import read_race, read_settled, replay_race
from tests.simulation.race_day import RaceDay
from tests.simulation.world import SimulatedDesk, World

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
    ends = [(desk, await _state_of(desk, day.race_id)) for desk in day.honest]
    agreed: dict[str, SettlementRecord] = {}
    own, adopted, without = [], 0, 0
    for desk, state in ends:
        assert state.stage in ("settled", "cancelled"), f"{day.race_id} is {state.stage} for validator {desk.number}"
        if state.settlement is None or _says_none(state):
            without += 1
            continue
        agreed[settlement_sha256(state.settlement)] = state.settlement
        adopted += state.is_adopted
        own += [] if state.is_adopted else [desk]
    assert len(agreed) <= 1, f"{day.race_id}: {len(agreed)} settlements among honest validators"
    for desk in own:
        await settle_again(desk, *agreed.values())
    await _require_equal_weights(day, own)
    settlement = next(iter(agreed.values()), None)
    return RaceEnd(race_id=day.race_id, settlement=settlement, own=len(own), adopted=adopted, without=without)


def _says_none(state: RaceState) -> bool:
    return state.settlement is not None and "quorum" in state.settlement.reason


async def _state_of(desk: SimulatedDesk, race_id: str) -> RaceState:
    return next(state for state in await desk.clock.states() if state.race_id == race_id)


async def settle_again(desk: SimulatedDesk, settlement: SettlementRecord) -> None:
    """Replay a race from what one validator keeps."""
    settled = await read_settled(desk.real_store, desk.signer.hotkey)
    (found,) = [each for each in settled if each.settlement.race_id == settlement.race_id]
    given = found.settlement
    assert (given, found.force) == (settlement, "own")
    records = await read_race(desk.real_store, desk.held, given)
    again = replay_race(given, records, [each.settlement for each in settled])
    assert again.differing == ()
    assert canonical_bytes(again.made) == canonical_bytes(given)


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
