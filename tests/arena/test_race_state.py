"""The race as a state machine: one legal path, nothing asked twice, and a stream that replays to the same state."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from arena.policies import PAPER
from arena.race import machine
from arena.race.admission import RaceRecords
from arena.race.agreement import TOO_LATE
from arena.race.decider import decide
from arena.race.schedule import timeline
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
        self.facts = machine.RaceObservation(
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
    def state(self) -> machine.RaceState:
        return machine.replay(RACE, self.stream)

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
                event = due if isinstance(due, machine.Event) else self._carry_out(due)
                if event is not None:
                    self.stream.append(machine.encode_event(event))
                self.done.append(type(due).__name__)
        return self

    def _carry_out(self, effect: machine.Effect) -> machine.Event | None:
        match effect:
            case machine.TakeBatch():
                return machine.open_race(RACE, RULES, batch(), self.facts.now_ms, CLOSES_MS)
            case machine.FixField():
                return machine.FieldFixed(field=self.field, validators=("val-a",), incumbent=self.incumbent)
            case machine.EnqueueItems():
                self.see(open_race_items=len(effect.items))
                return machine.ItemsEnqueued(items=len(effect.items))
            case machine.Settle():
                made, records = inputs(self.field, solves({"a": 8, "b": 5}), rules=RULES), RaceRecords()
                records.evaluations, records.verdicts = list(made.evaluations), list(made.verdicts)
                stated = machine.settlement_inputs(
                    self.state, metagraph(["hk-a", "hk-b"]), records, machine.Succession()
                )
                return machine.SettlementProposed(settlement=settle(stated))
            case machine.ReadChain():
                return machine.ChainRead(moment=effect.moment, block=41, commitments=(), metagraph=metagraph([]))
            case machine.ReleaseBatch():
                return machine.BatchReleased(batch_sha256=batch().batch_sha256)
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


def test_the_whole_race_takes_the_one_path():
    world = finished()
    assert world.done == [
        "TakeBatch",
        "RaceClosed",
        "ReadChain",
        "FixField",
        "ProblemsDrawn",
        "EnqueueItems",
        "SettlementDue",
        "Settle",
        "RaceSettled",
        "ReleaseBatch",
    ]
    assert (world.state.stage, machine.force_of(world.state), world.due) == ("settled", "own", [])
    top = Top(agent_version_id="v-a", miner_hotkey="hk-a", promoted_ms=CLOSES_MS)
    assert machine.succession([world.state]).top == top


def test_a_missing_repeated_or_swapped_event_is_refused():
    stream = finished().stream
    for place in range(len(stream) - 1):
        swapped = [*stream[:place], stream[place + 1], stream[place], *stream[place + 2 :]]
        if '"event":"read"' not in stream[place] + stream[place + 1]:  # read at any time after the close
            with pytest.raises(machine.IllegalEventError):
                machine.replay(RACE, swapped)
        with pytest.raises(machine.IllegalEventError):
            machine.replay(RACE, [*stream[: place + 1], *stream[place:]])
    with pytest.raises(machine.IllegalEventError):
        machine.settlement_inputs(running().state, metagraph([]), RaceRecords(), machine.Succession())


# -- the close
def test_a_policy_that_admits_by_agreement_follows_the_chain_and_gives_up_with_the_others():
    agreed = replace(RULES, admission=PAPER.admission)
    world = at_close()
    world.stream[0] = machine.encode_event(machine.open_race(RACE, agreed, batch(), OPENED_MS, CLOSES_MS))
    world.turn()
    late = replace(world.facts, now_ms=timeline(CLOSES_MS, agreed.race).abandon_ms)
    (due,) = decide(world.state, late)
    assert (
        isinstance(due, machine.RaceSettled) and due.settlement.reason == TOO_LATE
    )  # it was never read who else is in it
    assert machine.force_of(machine.apply(world.state, due)) == "none"
    world.turn().see(now_ms=late.now_ms)
    assert world.state.read("closing") is not None
    assert world.due == ["FixField"]  # nobody else holds a permit: there is nothing to give up


# -- the beacon
def test_a_late_beacon_delays_the_draw_and_then_cancels_by_settlement():
    top = Top(agent_version_id="v-b", miner_hotkey="hk-b", promoted_ms=5)
    world = at_close(incumbent=top).see(beacon=None).turn(5)
    assert world.state.stage == "closed"
    assert set(world.done[2:]) == {"FetchBeacon", "ReadChain", "FixField"}
    world.later(RULES.race.beacon_grace_ms).turn(4)
    assert (world.state.stage, world.state.settlement.reason) == ("cancelled", "the beacon did not come")
    assert world.state.settlement.top_agent_version_id == top.agent_version_id


def test_a_node_that_was_down_past_the_grace_asks_for_the_round_before_it_cancels():
    world = at_close().turn()
    round_ = world.facts.beacon
    world.see(beacon=None, is_beacon_asked=False).later(RULES.race.beacon_grace_ms).turn(3)
    assert world.state.stage == "closed" and world.done[-1] == "FetchBeacon"
    assert world.see(beacon=round_).turn().state.draw is not None


# -- running
def test_the_race_waits_for_items_and_verdicts_and_not_for_ever():
    world = running()
    assert world.state.items == (1 + len(FIELD)) * RULES.race.problems  # the control agent runs, too
    assert world.due == []
    assert world.see(open_race_items=0, owed_verdicts=1).due == []
    assert world.see(owed_verdicts=0).due == ["SettlementDue"]
    world = running().later(RULES.race.run_ms)
    (due,) = decide(world.state, world.facts)
    assert isinstance(due, machine.SettlementDue) and due.why == "the time for results is over"


# -- the policy of a race
OTHER = replace(RULES, race=replace(RULES.race, closes_after_ms=60_000, run_ms=5))


def test_another_policy_takes_over_until_the_close_and_with_the_same_batch_only():
    world = World()
    assert not machine.runs_under_another(world.state, OTHER)
    world.turn()
    assert machine.runs_under_another(world.state, OTHER) and not machine.runs_under_another(world.state, RULES)
    with pytest.raises(machine.IllegalEventError):
        machine.apply(world.state, machine.open_race(RACE, OTHER, batch(20), OPENED_MS, CLOSES_MS))
    world.stream.append(machine.encode_event(machine.open_race(RACE, OTHER, batch(), OPENED_MS + 5, CLOSES_MS)))
    assert world.state.opened.policy == OTHER
    assert not machine.runs_under_another(world.state, OTHER)
    past = at_close().turn()
    assert machine.runs_under_another(past.state, OTHER) and not machine.runs_under_another(finished().state, OTHER)
    with pytest.raises(machine.IllegalEventError):
        machine.apply(past.state, machine.open_race(RACE, OTHER, batch(), OPENED_MS, CLOSES_MS))
