"""A race driven by hand: the world outside the state machine, with a clock that the test moves."""

from __future__ import annotations

from arena.chain.port import BeaconRound
from arena.race.admission import RaceRecords
from arena.race.decider import decide
from arena.race.machine import (
    BatchReleased,
    ChainRead,
    Effect,
    EnqueueItems,
    Event,
    FetchBeacon,
    FieldFixed,
    FixField,
    ItemsEnqueued,
    RaceObservation,
    RaceState,
    ReadChain,
    ReleaseBatch,
    SealBatch,
    Settle,
    SettlementProposed,
    Succession,
    encode_event,
    open_race,
    replay,
    settlement_inputs,
)
from arena.race.scores import SettlementInputs
from arena.race.settle import settle
from arena.records.model import Candidate, Top
from tests.arena.race_stand import BEACON, RACE, batch, candidate, inputs, metagraph, policy, solves

RULES = policy()
OPENED_MS = 1_000_000
CLOSES_MS = OPENED_MS + 15_000
FIELD = (candidate("a"), candidate("b"))
OUTCOMES = solves({"a": 8, "b": 5})


def records_of(made: SettlementInputs) -> RaceRecords:
    """What was read of a race, as the inputs of its settlement hold it."""
    records = RaceRecords()
    records.evaluations, records.verdicts = list(made.evaluations), list(made.verdicts)
    return records


class World:
    """Everything outside the state machine: a clock that the test moves, and a driver that does what is due."""

    def __init__(
        self,
        field: tuple[Candidate, ...] = FIELD,
        incumbent: Top | None = None,
        validators: tuple[str, ...] = ("val-a",),
    ) -> None:
        self.now_ms, self.block, self.lag = OPENED_MS, 40, 2
        self.field, self.incumbent, self.validators = field, incumbent, validators
        self.beacon: BeaconRound | None = BEACON
        self.batch_failure = ""
        self.is_beacon_asked = True
        self.pending_qualifying = self.open_items = self.owed_verdicts = 0
        self.is_previous_settled = True
        self.stream: list[str] = []
        self.done: list[str] = []

    @property
    def state(self) -> RaceState:
        return replay(RACE, self.stream)

    def facts(self) -> RaceObservation:
        return RaceObservation(
            now_ms=self.now_ms,
            validator="val-a",
            finalized_block=self.block - self.lag,
            closing_block=41 if self.now_ms >= CLOSES_MS else None,
            beacon_network=BEACON.network,
            beacon_round=BEACON.round,
            beacon=self.beacon,
            batch_failure=self.batch_failure,
            is_beacon_asked=self.is_beacon_asked,
            pending_qualifying=self.pending_qualifying,
            open_race_items=self.open_items,
            owed_verdicts=self.owed_verdicts,
            is_previous_settled=self.is_previous_settled,
        )

    def turn(self) -> None:
        for due in decide(self.state, self.facts()):
            event = due if isinstance(due, Event) else self.carry_out(due)
            if event is not None:
                self.stream.append(encode_event(event))
            self.done.append(type(due).__name__)

    def carry_out(self, effect: Effect) -> Event | None:
        match effect:
            case SealBatch():
                return open_race(RACE, RULES, batch(), self.now_ms, self.now_ms + CLOSES_MS - OPENED_MS)
            case FixField():
                return FieldFixed(field=self.field, validators=self.validators, incumbent=self.incumbent)
            case FetchBeacon():
                return None
            case EnqueueItems():
                self.open_items = len(effect.items)
                return ItemsEnqueued(items=len(effect.items))
            case Settle():
                made = inputs(self.field, OUTCOMES, rules=RULES)
                settled = settle(
                    settlement_inputs(self.state, metagraph(["hk-a", "hk-b"]), records_of(made), Succession())
                )
                return SettlementProposed(settlement=settled)
            case ReadChain():
                return ChainRead(moment=effect.moment, block=41, commitments=(), metagraph=metagraph([]))
            case ReleaseBatch():
                return BatchReleased(batch_sha256=effect.batch_sha256)
        raise AssertionError(effect)

    def later(self, ms: int = 1_000, blocks: int = 1) -> World:
        self.now_ms, self.block = self.now_ms + ms, self.block + blocks
        return self


def at_close(**fields: object) -> World:
    world = World(**fields)
    world.turn()
    world.later(15_000, 5)
    return world


def running() -> World:
    world = at_close()
    for _ in range(5):
        world.turn()
    assert world.state.stage == "running"
    return world


def finished() -> World:
    world = running()
    world.open_items = 0
    for _ in range(5):
        world.turn()
    assert world.state.is_finished
    return world
