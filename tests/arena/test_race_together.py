"""Several validators and one race: whatever a minority does, honest ones end alike, or say that there is no quorum."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from arena.chain.port import Commitment, Metagraph, Neuron
from arena.policies import DEMO, PAPER
from arena.race import machine
from arena.race.agreement import NO_QUORUM, RollName, countersign_value, explain_end, receipt, validators_of
from arena.race.decider import STAND_INS_WAITING, decide
from arena.race.schedule import ANCHOR, timeline
from arena.race.settle import CANCELLED, settlement_sha256
from arena.records.model import SettlementRecord
from tests.arena.race_stand import BEACON, RACE, batch, candidate, digest, policy

HOUR_MS = 3_600_000
BLOCK_MS, FINAL_BLOCKS = 12_000, 3
RULES = policy(
    replace(DEMO, admission=PAPER.admission),
    closes_after_ms=HOUR_MS,
    qualifying_grace_ms=HOUR_MS,
    run_ms=5 * HOUR_MS,
    reveal_ms=HOUR_MS // 2,
    agree_ms=HOUR_MS,
    stand_in_ms=HOUR_MS,
)
OPENED = machine.open_race(RACE, RULES, batch(), 0, HOUR_MS)
PLAN = timeline(OPENED.closes_ms, RULES.race)
STEP_MS = 300_000
FIELD = (candidate("a"), candidate("b"))


class Network:
    """The chain, and who shows which log to whom."""

    def __init__(self, stakes: dict[str, int], chance: random.Random) -> None:
        self.now_ms, self.chance = 0, chance
        self.stakes = stakes
        self.slots: list[Commitment] = []  # in the order of their blocks
        self.members: dict[str, Member] = {}
        self.shown: dict[machine.AnchoredLog, set[str]] = {}  # to whom a liar shows its log itself
        self.loss = 0.0  # how often an answer between honest validators does not come

    @property
    def block(self) -> int:
        return self.now_ms // BLOCK_MS

    def commit(self, hotkey: str, sha256: str) -> None:
        self.slots.append(Commitment(hotkey=hotkey, sha256=sha256, block=self.block))

    def commitments(self, at_ms: int) -> dict[str, Commitment]:
        """What each slot held at the end of that moment's block."""
        return {slot.hotkey: slot for slot in self.slots if slot.block <= at_ms // BLOCK_MS}

    def metagraph(self, block: int) -> Metagraph:
        neurons = tuple(
            Neuron(uid=uid, hotkey=hotkey, has_validator_permit=True, stake_rao=stake)
            for uid, (hotkey, stake) in enumerate(sorted(self.stakes.items()))
        )
        return Metagraph(netuid=1, block=block, tempo=360, neurons=neurons)

    def is_shown(self, log: machine.AnchoredLog, to: str) -> bool:
        """Whether somebody gives a log to `to` now: its author, or an honest validator that holds it."""
        if to in self.shown.get(log, set()):
            return True
        honest = [member for member in self.members.values() if member.hotkey != to and log in member.has]
        return any(self.chance.random() >= self.loss for _ in honest)


class Member:
    """An honest validator: the real state machine, and a driver over the network."""

    def __init__(self, hotkey: str, network: Network) -> None:
        self.hotkey, self.network = hotkey, network
        self.state = machine.RaceState(race_id=RACE)
        self.has: set[machine.AnchoredLog] = set()
        self.texts: list[str] = []
        self.is_away = False
        self._append(OPENED)
        network.members[hotkey] = self

    def _append(self, event: machine.Event) -> None:
        self.texts.append(machine.encode_event(event))
        self.state = machine.apply(self.state, event)

    def turn(self) -> None:
        """Do what is due until nothing more follows at this moment."""
        if self.is_away:
            return
        for _ in range(12):
            before = self.state.events
            for due in decide(self.state, self.facts()):
                event = due if isinstance(due, machine.Event) else self.carry_out(due)
                if event is not None:
                    self._append(event)
            if self.state.events == before:
                return

    def facts(self) -> machine.RaceObservation:
        now_ms = self.network.now_ms
        return machine.RaceObservation(
            now_ms=now_ms,
            validator=self.hotkey,
            finalized_block=self.network.block - FINAL_BLOCKS,
            closing_block=PLAN.closing_ms // BLOCK_MS if now_ms >= PLAN.closing_ms + 60_000 else None,
            beacon_network=BEACON.network,
            beacon_round=BEACON.round,
            beacon=BEACON,
            held=tuple(self.has),
        )

    def carry_out(self, effect: machine.Effect) -> machine.Event | None:
        match effect:
            case machine.ReadChain():
                return self._read(effect)
            case machine.AnchorLog():
                note = digest("note", self.hotkey, effect.roll)
                self.has.add(machine.AnchoredLog(validator=self.hotkey, note_sha256=note))
                self.network.commit(self.hotkey, note)
                return machine.Committed(moment=effect.moment, sha256=note, size=1)
            case machine.Commit():
                self.network.commit(self.hotkey, effect.sha256)
                return machine.Committed(moment=effect.moment, sha256=effect.sha256)
            case machine.PullLogs():
                self.has |= {log for log in effect.logs if self.network.is_shown(log, self.hotkey)}
                return None
            case machine.FixField():
                assert set(effect.logs) <= {machine.own_log(self.hotkey), *self.has}
                validators = validators_of(self.state)
                return machine.FieldFixed(field=FIELD, validators=validators)
            case machine.EnqueueItems():
                return machine.ItemsEnqueued(items=len(effect.items))
            case machine.Settle():
                assert set(effect.logs) <= {machine.own_log(self.hotkey), *self.has}
                return machine.SettlementProposed(settlement=settlement_of(effect.logs))
            case machine.AdoptSettlement():
                return self._adopt(effect.value)
        return None

    def _read(self, effect: machine.ReadChain) -> machine.Event | None:
        block = effect.at_ms // BLOCK_MS
        if self.network.block - FINAL_BLOCKS <= block:
            return None
        found = self.network.commitments(effect.at_ms)
        is_whole = effect.moment in ("closing", "settling")
        return machine.ChainRead(
            moment=effect.moment,
            block=block,
            commitments=tuple(found[hotkey] for hotkey in sorted(found)),
            metagraph=self.network.metagraph(block) if is_whole else None,
        )

    def _adopt(self, value: str) -> machine.Event | None:
        for other in self.network.members.values():
            made = other.state.settlement
            if made and not other.is_away and countersign_value(RACE, settlement_sha256(made)) == value:
                return machine.RaceSettled(settlement=made, is_adopted=True)
        return None

    @property
    def outcome(self) -> str:
        """The settlement in force here, by hash; "" for none."""
        made = self.state.settlement
        return settlement_sha256(made) if self.state.stage == "settled" and made else ""


class Liar:
    """A validator that does what it likes at every moment, by chance."""

    def __init__(self, hotkey: str, network: Network) -> None:
        self.hotkey, self.network = hotkey, network
        self.logs = {
            roll: machine.AnchoredLog(validator=hotkey, note_sha256=digest(hotkey, roll))
            for roll in ("field", "results")
        }

    def turn(self) -> None:
        chance, now_ms = self.network.chance, self.network.now_ms
        for roll, log in self.logs.items():
            at_ms = PLAN.at(ANCHOR[roll])
            if at_ms - STEP_MS * 3 <= now_ms < at_ms and chance.random() < 0.5:
                self.network.commit(self.hotkey, log.note_sha256)
            if at_ms <= now_ms and chance.random() < 0.3:  # shows it to a few, at some moment
                some = chance.sample(sorted(self.network.members), chance.randint(0, len(self.network.members)))
                self.network.shown.setdefault(log, set()).update(some)
            if at_ms + 60_000 < now_ms < at_ms + RULES.race.reveal_ms and chance.random() < 0.5:
                self.network.commit(self.hotkey, receipt(self._name(roll), self._any_validators()))
        if PLAN.results_receipt_ms + 60_000 < now_ms < PLAN.countersign_ms and chance.random() < 0.5:
            self.network.commit(self.hotkey, self._any_value())

    def _name(self, roll: str) -> RollName:
        everybody = tuple(sorted(self.network.stakes))
        return RollName(roll=roll, race_id=RACE, policy_sha256=RULES.policy_sha256, validators=everybody)

    def _any_validators(self) -> list[str]:
        everybody = sorted(self.network.stakes)
        return self.network.chance.sample(everybody, self.network.chance.randint(0, len(everybody)))

    def _any_value(self) -> str:
        """Nonsense, one value of all liars, or the copy of somebody's slot."""
        copied = [slot.sha256 for slot in self.network.slots[-6:]]
        return self.network.chance.choice(["ab" * 32, digest("liars agree"), *copied])


def settlement_of(logs: tuple[machine.AnchoredLog, ...]) -> SettlementRecord:
    """A settlement that follows from which logs count, and nothing else."""
    return replace(
        CANCELLED,
        race_id=RACE,
        policy_sha256=RULES.policy_sha256,
        closing_block=1,
        settling_block=2,
        batch_sha256=OPENED.batch.batch_sha256,
        record_set_sha256=digest([(log.validator, log.note_sha256) for log in logs]),
        state="settled",
    )


def run(
    honest: dict[str, int],
    liars: dict[str, int],
    seed: int,
    *,
    loss: float = 0.0,
    away: float = 0.0,
    wakes_ms: dict[str, int] | None = None,
) -> Network:
    """One race from its close to its end. Stakes by name; `away`: the share of steps an honest validator misses;
    `wakes_ms`: when those that sleep through the beginning come."""
    chance = random.Random(seed)
    network = Network(honest | liars, chance)
    network.loss = loss
    members: list[Member | Liar] = [Member(hotkey, network) for hotkey in honest]
    members += [Liar(hotkey, network) for hotkey in liars]
    network.now_ms = PLAN.closing_ms
    while network.now_ms < PLAN.abandon_ms + 4 * STEP_MS:
        for member in chance.sample(members, len(members)):
            if isinstance(member, Member):
                asleep = network.now_ms < (wakes_ms or {}).get(member.hotkey, 0)
                member.is_away = asleep or chance.random() < away
            member.turn()
        network.now_ms += STEP_MS
    return network


HONEST = {"val-a": 40, "val-b": 35, "val-c": 25}
STAKES = st.lists(st.integers(1, 100), min_size=2, max_size=5)


def outcomes(network) -> dict[str, str]:
    return {hotkey: member.outcome for hotkey, member in network.members.items()}


@settings(max_examples=120, deadline=None)
@given(STAKES, st.lists(st.integers(1, 100), max_size=3), st.integers(0, 2**32), st.sampled_from([0.0, 0.3, 0.8]))
def test_a_lying_minority_cannot_split_honest_validators(honest, lies, seed, loss):
    total, liars = sum(honest), []
    for stake in lies:  # up to just under half of the stake
        if sum(liars) + stake < total:
            liars.append(stake)
    network = run(
        {f"val-{n}": stake for n, stake in enumerate(honest)},
        {f"liar-{n}": stake for n, stake in enumerate(liars)},
        seed,
        loss=loss,
    )
    assert len({outcome for outcome in outcomes(network).values() if outcome}) <= 1
    for member in network.members.values():
        assert member.state.stage in ("settled", "cancelled")
        assert member.state.stage == "settled" or "no quorum" in member.state.settlement.reason


def test_liars_cost_no_quorum_and_one_that_slept_goes_on_from_what_the_others_settled():
    network = run({"val-a": 30, "val-b": 25, "val-c": 20}, {"liar-a": 40, "liar-b": 33}, 7)
    (outcome,) = set(outcomes(network).values())
    assert outcome and not any(member.state.is_adopted for member in network.members.values())
    network = run(HONEST, {}, seed=5, wakes_ms={"val-c": PLAN.countersign_ms + 3_600_000})
    late = network.members["val-c"].state
    assert late.stage == "settled" and late.is_adopted
    assert len(set(outcomes(network).values())) == 1
    assert machine.paid_race([late]) is None  # but nobody is paid on others' word


def test_no_quorum_is_said_with_the_figures_and_a_lacking_log_by_its_name():
    two, nothing = {"val-a": 10, "val-b": 10}, {"field": (), "results": ()}
    member = run(two, {}, seed=1, wakes_ms=dict.fromkeys(two, PLAN.settling_ms * 2)).members["val-a"]
    (closes,) = decide(member.state, member.facts())
    before = machine.apply(member.state, closes)
    (end,) = decide(before, member.facts())
    assert explain_end(before, end, nothing).detail == "the anchors or receipts of the field could not be read"
    state = run(two, {}, seed=1, wakes_ms=dict.fromkeys(two, PLAN.countersign_ms)).members["val-b"].state
    assert state.settlement.reason == NO_QUORUM
    failure = explain_end(state, machine.RaceSettled(settlement=state.settlement), nothing)
    assert failure.code == "V2100" and "0 of 2 validators took part" in failure.detail
    other = machine.RaceSettled(settlement=replace(state.settlement, reason="no agent raced"), is_adopted=True)
    failure = explain_end(replace(state, proposed=state.settlement), other, nothing)
    assert (failure.code, failure.detail) == ("V2101", "differs in reason")


def test_stand_ins_never_pile_up_in_the_queue_and_none_begins_once_logs_may_be_anchored():
    network = Network(HONEST, random.Random(1))
    members, network.now_ms = [Member(name, network) for name in HONEST], PLAN.closing_ms
    while members[0].state.items is None:
        for member in members:
            member.turn()
        network.now_ms += STEP_MS
    state, facts = members[0].state, members[0].facts()
    late = replace(facts, now_ms=state.draw.drawn_ms + 2 * RULES.race.stand_in_ms, done={})
    assert room(state, late) == STAND_INS_WAITING
    assert room(state, replace(late, open_race_items=3)) == STAND_INS_WAITING - 3
    assert room(state, replace(late, open_race_items=STAND_INS_WAITING)) == 0
    assert room(state, replace(late, now_ms=PLAN.settling_ms - PLAN.lead_ms)) == 0


def room(state, facts) -> int:
    return sum(due.room for due in decide(state, facts) if isinstance(due, machine.EnqueueStandIns))
