"""Races as the log tells them: settlements in order, and the records that each was made of.

Promise: it reads records and nothing else: this store's logs, and the logs of other validators that were pulled and
checked. Nothing of a running race is shown: a race is readable here once its settlement stands in the log.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from arena.exchange.port import HeldLogs
from arena.policy import Policy
from arena.race.fold import RaceRecords
from arena.race.settle import settle
from arena.race.statement import differences, inputs_again, policy_of, settlement_sha256
from arena.records.body import decode_content
from arena.records.model import SettlementRecord
from arena.store.port import Store


class Replay(msgspec.Struct, frozen=True, kw_only=True):
    """A race settled again. `differing` names what came out otherwise than recorded; empty: equal bytes."""

    given: SettlementRecord
    made: SettlementRecord
    differing: tuple[str, ...]
    evaluations: int
    verdicts: int


async def read_settlements(store: Store, validator: str) -> list[SettlementRecord]:
    """The settlements of a validator's log, the first of each race, oldest first."""
    found: dict[str, SettlementRecord] = {}
    async for record in store.records(validator, kinds=("settlement",)):
        payload = decode_content(record.content).payload
        if isinstance(payload, SettlementRecord):
            found.setdefault(payload.race_id, payload)
    return list(found.values())


async def read_race(store: Store, held: HeldLogs | None, race_id: str) -> RaceRecords:
    """Every record of a race in the logs this store shows and in those that were pulled."""
    records = RaceRecords()
    own = await store.validators()
    for validator in own:
        async for record in store.records(validator, race_id=race_id):
            records.take(validator, record.seq, record.content_sha256, decode_content(record.content).payload)
    for log in held.held(race_id) if held else ():
        if log.validator in own or held is None:
            continue
        for row in held.rows(race_id, log.validator):
            if row.content is not None:
                payload = decode_content(bytes(row.content)).payload
                records.take(row.validator, row.seq, row.content_sha256, payload)
    return records


def replay_race(
    given: SettlementRecord,
    records: RaceRecords,
    settlements: Sequence[SettlementRecord],
    policy: Policy | None = None,
) -> Replay:
    """Settle a race again from its records, under its own policy or another.

    `settlements` are those of the log, the race's own among them. Raises ArenaError V2102 where the record states no
    inputs, or something it names is missing or another.
    """
    earlier = _before(given, settlements)
    inputs = inputs_again(given, records.evaluations, records.verdicts, earlier, policy=policy)
    made = settle(inputs)
    return Replay(
        given=given,
        made=made,
        differing=differences(made, given),
        evaluations=len(inputs.evaluations),
        verdicts=len(inputs.verdicts),
    )


def with_lambda(given: SettlementRecord, lambda_e4: int) -> Policy:
    """The race's own policy with another weight on the agentic share, in ten-thousandths. Raises ArenaError V2102."""
    policy = policy_of(given)
    race = msgspec.structs.replace(policy.race, lambda_e4=lambda_e4)
    return msgspec.structs.replace(policy, name=f"{policy.name}, lambda {lambda_e4}", race=race)


def identity_of(record: SettlementRecord) -> str:
    """The hash that validators countersign."""
    return settlement_sha256(record)


def _before(given: SettlementRecord, settlements: Sequence[SettlementRecord]) -> list[SettlementRecord]:
    earlier: list[SettlementRecord] = []
    for settlement in settlements:
        if settlement.race_id == given.race_id:
            break
        earlier.append(settlement)
    return earlier
