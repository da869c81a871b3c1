"""What must hold after every simulated race, whatever went wrong in it, looked at through what is kept."""

from __future__ import annotations

import random
from collections import Counter

import asyncpg
import msgspec
from msgspec.structs import replace

from arena.chain.keys import verify
from arena.race.admission import RaceRecords
from arena.race.machine import RaceState, paid_race
from arena.race.settle import settlement_sha256
from arena.records.body import decode_content
from arena.records.model import AttemptRecord, SettlementRecord
from arena.records.verification import verify_store
from foundation.canonical import canonical_bytes
from foundation.errors import ArenaError
from neurons.race.log import read_race, read_settled, replay_race
from tests.simulation.race_day import RaceDay
from tests.simulation.world import SimulatedDesk, World

_COPIES = frozenset({"double", "attempt", "body"})  # what verification says of another's results in one's own log


class RaceEnd(msgspec.Struct, frozen=True, kw_only=True):
    """How a race ended for the honest validators. `settlement` is the one they agree on; None: all say no quorum."""

    race_id: str
    settlement: SettlementRecord | None
    records: RaceRecords | None
    settled: int  # honest validators with a settlement of their own in force
    adopted: int
    without: int  # honest validators that say there is none
    witness: int = 0  # one that settled by itself


async def audit_race(day: RaceDay) -> RaceEnd:
    """Assert that honest validators ended the race alike, pay alike, and can each settle it again, byte for byte."""
    ends = [(desk, await _state_of(desk, day.race_id)) for desk in day.honest]
    agreed: dict[str, SettlementRecord] = {}
    own, adopted, without = [], [], []
    for desk, state in ends:
        assert state.stage in ("settled", "cancelled"), f"{day.race_id} is {state.stage} for validator {desk.number}"
        if state.settlement is None or _says_none(state):
            without.append(desk)
            continue
        agreed[settlement_sha256(state.settlement)] = state.settlement
        (adopted if state.is_adopted else own).append(desk)
    assert len(agreed) <= 1, f"{day.race_id}: {len(agreed)} settlements among honest validators"
    if not agreed:
        return RaceEnd(race_id=day.race_id, settlement=None, records=None, settled=0, adopted=0, without=len(without))
    (settlement,) = agreed.values()
    records = None
    for desk in own:
        records = await settle_again(desk, settlement)
    await _require_equal_weights(day, own)
    return RaceEnd(
        race_id=day.race_id,
        settlement=settlement,
        records=records,
        settled=len(own),
        adopted=len(adopted),
        without=len(without),
        witness=own[0].number if own else 0,
    )


def _says_none(state: RaceState) -> bool:
    return state.settlement is not None and "quorum" in state.settlement.reason


async def _state_of(desk: SimulatedDesk, race_id: str) -> RaceState:
    return next(state for state in await desk.clock.states() if state.race_id == race_id)


async def settle_again(desk: SimulatedDesk, settlement: SettlementRecord) -> RaceRecords:
    """Replay a race from what one validator keeps; its records."""
    settled = await read_settled(desk.real_store, desk.signer.hotkey)
    (found,) = [each for each in settled if each.settlement.race_id == settlement.race_id]
    given = found.settlement
    assert (given, found.force) == (settlement, "own")
    records = await read_race(desk.real_store, desk.held, given)
    again = replay_race(given, records, [each.settlement for each in settled])
    assert again.differing == ()
    assert canonical_bytes(again.made) == canonical_bytes(given)
    return records


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


async def name_a_flip(desk: SimulatedDesk, settlement: SettlementRecord, dice: random.Random) -> str:
    """Flip one bit in something the race was made of, and assert that replaying it names something; what it named."""
    history = [each.settlement for each in await read_settled(desk.real_store, desk.signer.hotkey)]
    kind = dice.choice(("record", "rehashed record", "statement"))
    if kind == "statement":
        changed, part = _flipped_statement(settlement, dice)
        records = await read_race(desk.real_store, desk.held, settlement)
        try:
            named = replay_race(changed, records, history).differing
        except ArenaError as error:
            named = (error.failure.detail,)
        assert named, f"{part} of {settlement.race_id} was changed, and nothing was named"
        return f"{part}: {named[0]}"
    if kind == "record":
        place = dice.randrange(1 << 20)
        with_flip = FlippedStore(desk.real_store, settlement.race_id, place)
        try:
            await read_race(with_flip, desk.held, settlement)  # type: ignore[arg-type]
        except ArenaError as error:
            assert error.failure.code == "V2050" and f"record {with_flip.flipped} of" in error.failure.detail
            return error.failure.detail
        assert with_flip.flipped == 0, "a flipped byte was not named"
        return "no record of ours"
    records = await read_race(desk.real_store, desk.held, settlement)
    row = dice.choice(records.evaluations[: _counted(settlement, records)])
    place = records.evaluations.index(row)
    records.evaluations[place] = replace(row, content_sha256=_flip_hex(row.content_sha256, dice))
    named = replay_race(settlement, records, history).differing
    assert "record_set_sha256" in named
    return f"record {row.seq}: {named[0]}"


def _counted(settlement: SettlementRecord, records: RaceRecords) -> int:
    sizes = {log.validator: log.size for log in settlement.inputs.logs} if settlement.inputs else {}
    records.evaluations.sort(key=lambda row: row.seq > sizes.get(row.validator, 0))
    return sum(row.seq <= sizes.get(row.validator, 0) for row in records.evaluations)


def _flip_hex(text: str, dice: random.Random) -> str:
    place = dice.randrange(len(text))
    return f"{text[:place]}{int(text[place], 16) ^ 1:x}{text[place + 1 :]}"


def _flipped_statement(given: SettlementRecord, dice: random.Random) -> tuple[SettlementRecord, str]:
    """The settlement with one bit of one of its parts another."""
    stated = given.inputs
    assert stated is not None
    part = dice.choice(("seed", "batch_sha256", "beacon_signature", "problem_ids", "validators", "policy", "weights"))
    if part in ("seed", "batch_sha256"):
        return replace(given, **{part: _flip_hex(getattr(given, part), dice)}), part
    if part == "weights":
        first, *rest = given.weights_u16
        return replace(given, weights_u16=(first ^ 1, *rest)), part
    if part == "beacon_signature":
        changed = replace(stated, beacon_signature=_flip_hex(stated.beacon_signature, dice))
    elif part == "policy":
        changed = replace(stated, policy=stated.policy.replace('"simulated"', '"simulatee"'))
    elif part == "problem_ids":
        changed = replace(stated, problem_ids=(stated.problem_ids[0] + "x", *stated.problem_ids[1:]))
    else:
        changed = replace(stated, validators=stated.validators[:-1])
    return replace(given, inputs=changed), part


class FlippedStore:
    """A store in which one bit of one record of a race is another. `flipped` is its number, 0 before it was read."""

    def __init__(self, store, race_id: str, place: int) -> None:
        self._store, self._race_id, self._place = store, race_id, place
        self.flipped = 0

    def __getattr__(self, name: str):
        return getattr(self._store, name)

    async def records(self, validator=None, **options):
        found = [record async for record in self._store.records(validator, **options)]
        for number, record in enumerate(found):
            if number == self._place % len(found):
                content = bytearray(record.content)
                content[self._place % len(content)] ^= 1
                self.flipped = record.seq
                yield replace(record, content=bytes(content))
            else:
                yield record


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
