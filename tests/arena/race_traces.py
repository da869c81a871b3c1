"""What the race's state machine asks for, turn by turn, in worlds drawn from a seed: alone, sole validator, several.

A trace is everything `decide` answered and everything that was appended, as JSON lines: two machines with equal traces
drive races alike.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator

import msgspec
from msgspec.structs import replace

from arena.chain.port import Metagraph, Neuron
from arena.race.decider import decide
from arena.race.events import (
    BatchReleased,
    ChainRead,
    Event,
    FieldFixed,
    FixField,
    ItemsEnqueued,
    RaceObservation,
    ReadChain,
    ReleaseBatch,
    SealBatch,
    Settle,
    encode_event,
)
from arena.race.machine import Succession, open_race, settlement_inputs
from arena.race.model import Top
from arena.race.settle import settle
from tests.arena import agreement_world
from tests.arena.agreement_world import HOUR_MS, Member
from tests.arena.race_stand import BEACON, RACE, batch, candidate, inputs, metagraph
from tests.arena.race_world import OUTCOMES, World, records_of

RULES = agreement_world.RULES
TOP = Top(agent_version_id="v-b", miner_hotkey="hk-b", promoted_ms=5)
TURNS = 60


def digest_of(lines: Iterator[str]) -> str:
    """One hash of a trace."""
    made = hashlib.sha256()
    for line in lines:
        made.update(line.encode() + b"\n")
    return made.hexdigest()


def trace_alone(seed: int, *, is_alone: bool) -> Iterator[str]:
    """A race with one validator. `is_alone`: its node can ask nobody; else the closing block names it alone."""
    chance = random.Random(f"alone {seed}")
    world = World(
        field=chance.choice([(candidate("a"), candidate("b"))] * 4 + [()]),
        incumbent=chance.choice([None, TOP]),
        validators=chance.choice([("val-a",)] * 6 + [()]),
    )
    world.now_ms = 0
    for _ in range(TURNS):
        world.beacon = BEACON if chance.random() < 0.4 else None
        world.batch_failure = "P4010" if chance.random() < 0.1 else ""
        world.is_beacon_asked = chance.random() < 0.5
        world.lag = chance.choice([0, 2, 30])
        world.pending_qualifying = chance.choice([0, 0, 2])
        world.is_previous_settled = chance.random() < 0.8
        world.owed_verdicts = chance.choice([0, 0, 1])
        world.open_items = chance.choice([0, 3])
        facts = replace(
            world.facts(),
            is_alone=is_alone,
            closing_block=chance.choice([None, 41]) if world.now_ms >= HOUR_MS else None,
        )
        for due in decide(world.state, facts):
            yield msgspec.json.encode(due).decode()
            event = due if isinstance(due, Event) else _carry_out(world, due, chance)
            if event is not None:
                world.stream.append(encode_event(event))
                yield world.stream[-1]
        world.later(chance.choice([1_000, HOUR_MS // 8, HOUR_MS // 2]), chance.choice([0, 1, 20]))
    yield world.state.stage


def _carry_out(world: World, due: object, chance: random.Random) -> Event | None:
    if chance.random() < 0.3:
        return None  # it waits
    match due:
        case SealBatch():
            return open_race(RACE, RULES, batch(), world.now_ms)
        case FixField():
            assert due.logs is None
            return FieldFixed(field=world.field, validators=world.validators, incumbent=world.incumbent)
        case ReadChain():
            only = Neuron(uid=1, hotkey="val-a", has_validator_permit=True)
            network = Metagraph(netuid=1, block=41, tempo=360, neurons=(only,))
            return ChainRead(moment=due.moment, block=41, commitments=(), metagraph=network)
        case Settle():
            made = inputs(world.field, OUTCOMES, rules=RULES)
            given = settlement_inputs(world.state, metagraph(["hk-a", "hk-b"]), records_of(made), Succession())
            return settled(settle(given))
        case ReleaseBatch():
            return BatchReleased(batch_sha256=due.batch_sha256)
    return ItemsEnqueued(items=len(due.items)) if hasattr(due, "items") else None


def settled(record):
    """The end of a race with one validator."""
    from arena.race.events import RaceSettled

    return RaceSettled(settlement=record)


def trace_shared(seed: int) -> Iterator[str]:
    """Several validators with some liars, losses and absences: what each honest one was asked for."""
    chance = random.Random(f"shared {seed}")
    heard: list[str] = []
    answer, given = Member.carry_out, Member.facts

    def carry_out(member: Member, effect: object) -> Event | None:
        heard.append(f"{member.hotkey} {msgspec.json.encode(effect).decode()}")
        return answer(member, effect)

    def facts(member: Member) -> RaceObservation:
        made, dice = given(member), random.Random(f"{seed} {member.hotkey} {member.network.now_ms}")
        return replace(
            made,
            held=tuple(sorted(made.held, key=lambda log: (log.validator, log.note_sha256))),
            beacon=BEACON if dice.random() < 0.5 else None,
            batch_failure=dice.choice(["", "", "P4010"]),
            is_previous_settled=dice.random() < 0.9,
            open_race_items=dice.choice([0, 5, 70]),
            done={"val-1": frozenset()} if dice.random() < 0.3 else None,
        )

    Member.carry_out, Member.facts = carry_out, facts
    try:
        network = agreement_world.run(
            {f"val-{n}": chance.randrange(20, 60) for n in range(chance.randrange(2, 5))},
            {f"liar-{n}": 15 for n in range(chance.randrange(3))},
            seed,
            loss=chance.choice([0.0, 0.4]),
            away=chance.choice([0.0, 0.3, 0.8]),
            field_of=(lambda logs, validators: ()) if chance.random() < 0.1 else None,
        )
    finally:
        Member.carry_out, Member.facts = answer, given
    yield from heard
    for hotkey in sorted(network.members):
        yield from network.members[hotkey].texts
        yield network.members[hotkey].outcome
