"""Races as the log tells them: settlements in order, and the records that each was made of.

It reads records and nothing else: this store's logs, and the logs of other validators that were pulled and
checked. A record whose bytes are not those of its hash is named, and so is a counted log that is not here. Nothing of a
running race is shown: a race is readable here once its settlement stands in the log. Which settlement is in force, this
validator's own or one adopted from others, stands in the race's events.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Sequence
from typing import Literal

import msgspec
from msgspec.structs import replace

from arena.exchange.port import HeldLogs
from arena.policy import Policy
from arena.race.consensus.reducer import RaceRecords
from arena.race.settlement.provenance import differences, inputs_again, policy_of
from arena.race.settlement.settle import settle
from arena.records.body import decode_content
from arena.records.model import Payload, SettlementRecord, SignedRecord
from arena.store.port import Store
from foundation.errors import ArenaError
from neurons.race.listing import race_names, read_state


class Replay(msgspec.Struct, frozen=True, kw_only=True):
    """A race settled again. `differing` names what came out otherwise than recorded; empty: equal bytes."""

    given: SettlementRecord
    made: SettlementRecord
    differing: tuple[str, ...]
    evaluations: int
    verdicts: int


Force = Literal["own", "adopted", "none", ""]


class Settled(msgspec.Struct, frozen=True, kw_only=True):
    """One race as this validator has it. `force`: whose settlement is in force here; none: nothing had a quorum, and
    the record is this validator's word alone; "": not decided yet, or this login can't read the events. `differing`: of
    an adopted one, what this validator's own record states otherwise; None: it has no record of its own."""

    settlement: SettlementRecord
    force: Force
    differing: tuple[str, ...] | None = ()


async def read_settled(store: Store, validator: str) -> list[Settled]:
    """Every settled race of a validator, oldest first: what its log says, and what it adopted instead.

    Raises ArenaError V2050 for a record whose bytes are not those of its hash.
    """
    own = {each.race_id: each for each in await read_settlements(store, validator)}
    found = {name: Settled(settlement=each, force="") for name, each in own.items()}
    for name in await race_names(store) if store.validator == validator else ():
        state = await read_state(store, name)
        ended = (state.settlement,) if state.settlement is not None and state.is_adopted else ()
        for given in (*state.adopted_history, *ended):
            mine = own.get(given.race_id)
            differing = None if mine is None else differences(mine, given)
            found[given.race_id] = Settled(settlement=given, force="adopted", differing=differing)
        mine = own.get(state.race_id)
        if state.settlement is not None and not state.is_adopted and mine is not None:
            force: Force = "own" if mine == state.settlement else "none"
            found[state.race_id] = Settled(settlement=mine, force=force)
    return sorted(found.values(), key=lambda each: each.settlement.inputs.closes_ms if each.settlement.inputs else 0)


async def read_settlements(store: Store, validator: str) -> list[SettlementRecord]:
    """The settlements of a validator's log, the first of each race, oldest first.

    Raises ArenaError V2050 for a record whose bytes are not those of its hash.
    """
    found: dict[str, SettlementRecord] = {}
    async for record in store.records(validator, kinds=("settlement",)):
        payload = _payload(record)
        if isinstance(payload, SettlementRecord):
            found.setdefault(payload.race_id, payload)
    return list(found.values())


async def read_race(store: Store, held: HeldLogs | None, given: SettlementRecord) -> RaceRecords:
    """Every record of a settled race in the logs this store shows and in the counted ones that were pulled.

    Raises ArenaError V2050 for a record whose bytes are not those of its hash, V2102 for a counted log that is not
    here, V2114 for a pulled one that was changed.
    """
    records, race_id = RaceRecords(), given.race_id
    own = await store.validators()
    for validator in own:
        async for record in store.records(validator, race_id=race_id):
            records.take(validator, record.seq, record.content_sha256, _payload(record))
    counted = given.inputs.logs if given.inputs else ()
    for log in (log for log in counted if log.validator not in own):
        rows = held.rows(race_id, log.validator, note_sha256=log.note_sha256) if held else []
        if not rows and not (held and any(each.note_sha256 == log.note_sha256 for each in held.held(race_id))):
            raise ArenaError("V2102", f"{race_id}: the log of {log.validator} is not held here")
        for row in rows:
            if row.content is not None:
                payload = _checked(row.validator, row.seq, row.content_sha256, bytes(row.content))
                records.take(row.validator, row.seq, row.content_sha256, payload)
    return records


def replay_race(
    given: SettlementRecord,
    records: RaceRecords,
    settlements: Sequence[SettlementRecord],
    policy: Policy | None = None,
) -> Replay:
    """Settle a race again from its records, under its own policy or another.

    `settlements` are those in force, oldest first, the race's own among them. Another policy ranks, promotes and pays;
    what was drawn, and how many raced each problem, stays as it was. Raises ArenaError V2102 where the record states no
    inputs, or something it names is missing or another.
    """
    earlier = list(itertools.takewhile(lambda each: each.race_id != given.race_id, settlements))
    other = None if policy is None else as_raced(policy, policy_of(given))
    inputs = inputs_again(
        given, records.evaluations, records.verdicts, earlier, policy=other, attempts=records.attempts
    )
    made = settle(inputs)
    return Replay(
        given=given,
        made=made,
        differing=differences(made, given),
        evaluations=len(inputs.evaluations),
        verdicts=len(inputs.verdicts),
    )


def as_raced(policy: Policy, raced: Policy) -> Policy:
    """A policy with the sizes of a race that was run under `raced`: its records can answer no other question."""
    race = replace(
        policy.race,
        problems=raced.race.problems,
        batch_problems=raced.race.batch_problems,
        validators_per_problem=raced.race.validators_per_problem,
        results_required=raced.race.results_required,
        control_sha256=raced.race.control_sha256,
    )
    return replace(policy, race=race, rubric=raced.rubric, guest=raced.guest)


def with_lambda(given: SettlementRecord, lambda_e4: int) -> Policy:
    """The race's own policy with another weight on the agentic share, in ten-thousandths. Raises ArenaError V2102."""
    policy = policy_of(given)
    return replace(policy, name=f"{policy.name}, lambda {lambda_e4}", race=replace(policy.race, lambda_e4=lambda_e4))


def _payload(record: SignedRecord) -> Payload:
    return _checked(record.validator, record.seq, record.content_sha256, record.content)


def _checked(validator: str, seq: int, content_sha256: str, content: bytes) -> Payload:
    if hashlib.sha256(content).hexdigest() != content_sha256:
        raise ArenaError("V2050", f"record {seq} of {validator}: its bytes are not those of its hash")
    return decode_content(content).payload
