"""A race driven by hand: the world outside the state machine, with a clock that the test moves."""

from __future__ import annotations

from msgspec.structs import replace

from arena.race.admission import RaceRecords
from arena.race.decider import decide
from arena.race.machine import (
    BatchReleased,
    ChainRead,
    Effect,
    EnqueueItems,
    Event,
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
from arena.race.settle import settle
from arena.records.model import Candidate, Top
from tests.arena.race_stand import BEACON, RACE, batch, candidate, inputs, metagraph, policy, solves

RULES = policy()
OPENED_MS = 1_000_000
CLOSES_MS = OPENED_MS + 15_000
FIELD = (candidate("a"), candidate("b"))


class World:
    """Everything outside the state machine, and a driver that does what is due."""

    def __init__(self, field: tuple[Candidate, ...] = FIELD, incumbent: Top | None = None) -> None:
        self.field, self.incumbent = field, incumbent
        self.facts = RaceObservation(
            now_ms=OPENED_MS,
            validator="val-a",
            finalized_block=38,
            beacon_network=BEACON.network,
            beacon_round=BEACON.round,
            beacon=BEACON,
        )
        self.stream: list[str] = []
        self.done: list[str] = []

    @property
    def state(self) -> RaceState:
        return replay(RACE, self.stream)

    @property
    def due(self) -> list[str]:
        """What is due now, by name."""
        return [type(due).__name__ for due in decide(self.state, self.facts)]

    def see(self, **facts: object) -> World:
        self.facts = replace(self.facts, **facts)
        return self

    def later(self, ms: int) -> World:
        now_ms = self.facts.now_ms + ms
        return self.see(now_ms=now_ms, closing_block=41 if now_ms >= CLOSES_MS else None)

    def turn(self, times: int = 1) -> World:
        for _ in range(times):
            for due in decide(self.state, self.facts):
                event = due if isinstance(due, Event) else self._carry_out(due)
                if event is not None:
                    self.stream.append(encode_event(event))
                self.done.append(type(due).__name__)
        return self

    def _carry_out(self, effect: Effect) -> Event | None:
        match effect:
            case SealBatch():
                return open_race(RACE, RULES, batch(), self.facts.now_ms, CLOSES_MS)
            case FixField():
                return FieldFixed(field=self.field, validators=("val-a",), incumbent=self.incumbent)
            case EnqueueItems():
                self.see(open_race_items=len(effect.items))
                return ItemsEnqueued(items=len(effect.items))
            case Settle():
                made, records = inputs(self.field, solves({"a": 8, "b": 5}), rules=RULES), RaceRecords()
                records.evaluations, records.verdicts = list(made.evaluations), list(made.verdicts)
                stated = settlement_inputs(self.state, metagraph(["hk-a", "hk-b"]), records, Succession())
                return SettlementProposed(settlement=settle(stated))
            case ReadChain():
                return ChainRead(moment=effect.moment, block=41, commitments=(), metagraph=metagraph([]))
            case ReleaseBatch():
                return BatchReleased(batch_sha256=batch().batch_sha256)
        return None


def at_close(field: tuple[Candidate, ...] = FIELD, incumbent: Top | None = None) -> World:
    return World(field, incumbent).turn().later(15_000)


def running() -> World:
    world = at_close().turn(5)
    assert world.state.stage == "running"
    return world


def finished() -> World:
    world = running().see(open_race_items=0).turn(5)
    assert world.state.is_finished
    return world
