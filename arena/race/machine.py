"""A race as a state machine: open -> closed -> running -> settling -> settled | cancelled.

Events are what happened, JSON text in the store's stream `race/<race id>`, numbered from 0; the state is what they say
and nothing else, so a driver that dies replays the stream and goes on. Effects are answers of `arena.race.decider`:
each says which event the driver appends once it is done, may be carried out twice, and is kept nowhere. Weights are no
part of a race: they follow the latest settlement (`arena.race.weights`).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

import msgspec
from msgspec import UNSET
from msgspec.structs import replace

from arena.bank.batch import Batch
from arena.chain.port import BeaconRound, Commitment, Metagraph
from arena.policy import Policy
from arena.race.admission import RaceRecords
from arena.race.schedule import RaceMoment, Roll, closing_ms, race_number, shared_closes_ms, timeline
from arena.race.scores import SettlementInputs
from arena.race.weights import WeightVector, chain_vector
from arena.records.model import Candidate, CountedLog, RaceInputs, SettlementRecord, SettlingNeuron, Top
from arena.records.port import WorkItem
from foundation.errors import ArenaError


class AnchoredLog(msgspec.Struct, frozen=True, kw_only=True):
    """A log by the hash that the chain held for its validator at the anchor block."""

    validator: str
    note_sha256: str


def own_log(validator: str) -> AnchoredLog:
    """A validator's own log as it is, under no anchor: what one alone counts."""
    return AnchoredLog(validator=validator, note_sha256="")


class ProgressClaims(msgspec.Struct, frozen=True, kw_only=True):
    """Validators that said in a race that pairs are done: whose log held them all, and whose did not. Both sorted."""

    kept: tuple[str, ...] = ()
    broken: tuple[str, ...] = ()


class RaceOpened(msgspec.Struct, frozen=True, kw_only=True, tag="opened", tag_field="event"):
    """A batch was sealed for this race; submissions may qualify until `closes_ms`.

    The race runs and settles under `policy`, whatever its validator is started with later. `policy_sha256` is what the
    policy's hash was when the race opened.
    """

    race_id: str
    policy: Policy
    policy_sha256: str
    batch: Batch
    opened_ms: int
    closes_ms: int


class RaceClosed(msgspec.Struct, frozen=True, kw_only=True, tag="closed", tag_field="event"):
    """The close has passed. Commitments up to `closing_block` count; the round is the first after the close."""

    closing_block: int
    beacon_network: str
    beacon_round: int


class ChainRead(msgspec.Struct, frozen=True, kw_only=True, tag="read", tag_field="event"):
    """What the chain held at a moment of the race, read once its block was final: nodes forget old state, this stays.

    `metagraph` at the closing and the settling block; `commitments` of every hotkey at the closing block, of the race's
    validators at the others.
    """

    moment: RaceMoment
    block: int
    commitments: tuple[Commitment, ...]
    metagraph: Metagraph | None = None


class Committed(msgspec.Struct, frozen=True, kw_only=True, tag="committed", tag_field="event"):
    """This validator's slot holds what it states at a moment of the race. An anchor: with its checkpoint's size and
    root."""

    moment: RaceMoment
    sha256: str
    size: int = 0
    root: str = ""


class FieldFixed(msgspec.Struct, frozen=True, kw_only=True, tag="field", tag_field="event"):
    """Who races against whom, and who may evaluate: permits at the closing block."""

    field: tuple[Candidate, ...]
    validators: tuple[str, ...]
    incumbent: Top | None = None


class ProblemsDrawn(msgspec.Struct, frozen=True, kw_only=True, tag="drawn", tag_field="event"):
    """The beacon came; the draw follows from it."""

    beacon: BeaconRound
    seed: str
    drawn: tuple[str, ...]
    drawn_ms: int


class ItemsEnqueued(msgspec.Struct, frozen=True, kw_only=True, tag="enqueued", tag_field="event"):
    """All work items of the race are in the queue."""

    items: int


class SettlementDue(msgspec.Struct, frozen=True, kw_only=True, tag="settling", tag_field="event"):
    """Nothing more is waited for; records up to `settling_block` count."""

    settling_block: int
    why: str


class SettlementProposed(msgspec.Struct, frozen=True, kw_only=True, tag="proposed", tag_field="event"):
    """The settlement record stands in this validator's log; whether others settled alike is not known yet.

    `words`: whose counted log held what it said was done (`arena.race.agreement`); nobody's where it
    was not heard.
    """

    settlement: SettlementRecord
    words: ProgressClaims = ProgressClaims()


class RaceSettled(msgspec.Struct, frozen=True, kw_only=True, tag="settled", tag_field="event"):
    """How the race ended; it may say cancelled.

    `is_adopted`: the settlement has the quorum and is not this validator's own. The races to come follow from it, and
    from `history`, which it names; this validator's weights do not.
    """

    settlement: SettlementRecord
    is_adopted: bool = False
    history: tuple[SettlementRecord, ...] = ()


class BatchReleased(msgspec.Struct, frozen=True, kw_only=True, tag="released", tag_field="event"):
    """The whole batch is public and burnt."""

    batch_sha256: str


Event = (
    RaceOpened
    | RaceClosed
    | ChainRead
    | Committed
    | FieldFixed
    | ProblemsDrawn
    | ItemsEnqueued
    | SettlementDue
    | SettlementProposed
    | RaceSettled
    | BatchReleased
)


class TakeBatch(msgspec.Struct, frozen=True, kw_only=True):
    """Seal a batch that can serve the policy's draw for this race alone, then append `open_race(..)`."""


class FixField(msgspec.Struct, frozen=True, kw_only=True):
    """Read qualified agents, the incumbent and permits at the closing block, then append FieldFixed.

    `logs`: those that the field roll counted, all of them held; of a validator alone its own as it is.
    """

    logs: tuple[AnchoredLog, ...]


class FetchBeacon(msgspec.Struct, frozen=True, kw_only=True):
    """Fetch and verify the round; hand it in as `RaceObservation.beacon` at the next turn. Appends nothing."""

    round: int


class EnqueueItems(msgspec.Struct, frozen=True, kw_only=True):
    """Enqueue these items (idempotent by item id), then append ItemsEnqueued."""

    items: tuple[WorkItem, ...]


class Settle(msgspec.Struct, frozen=True, kw_only=True):
    """Close the race's work items, settle from the records, append the settlement record unless the log holds one, then
    append SettlementProposed. `logs` as for `FixField`, of the results roll."""

    logs: tuple[AnchoredLog, ...]


class ReleaseBatch(msgspec.Struct, frozen=True, kw_only=True):
    """Append the release record unless the log holds one, then append BatchReleased."""


class ReadChain(msgspec.Struct, frozen=True, kw_only=True):
    """Read the block of `at_ms` once it is final, then append ChainRead. `hotkeys`: whose commitments; None: all."""

    moment: RaceMoment
    at_ms: int
    hotkeys: tuple[str, ...] | None


class AnchorLog(msgspec.Struct, frozen=True, kw_only=True):
    """Sign a checkpoint of the log as it is, with the digest of what counts in this roll, and commit it, then append
    Committed. One that this node committed for this moment already is not replaced."""

    moment: RaceMoment
    roll: Roll


class Commit(msgspec.Struct, frozen=True, kw_only=True):
    """Commit these 32 bytes unless the slot holds them, then append Committed."""

    moment: RaceMoment
    sha256: str


class PullLogs(msgspec.Struct, frozen=True, kw_only=True):
    """Ask the other validators for these logs; what is held then stands in `RaceObservation.held`. What comes after
    `until_ms` (unix) is of no use. Appends nothing."""

    roll: Roll
    logs: tuple[AnchoredLog, ...]
    until_ms: int


class EnqueueStandIns(msgspec.Struct, frozen=True, kw_only=True):
    """Enqueue of these pairs of validators that gave nothing as many new ones as there is `room` for (idempotent by
    item id). Those that are left are due again at a later turn, unless they were done by then. Appends nothing."""

    items: tuple[WorkItem, ...]
    room: int


class AdoptSettlement(msgspec.Struct, frozen=True, kw_only=True):
    """Ask the other validators for the settlement that `value` countersigns, and those it names, check both by their
    hashes, then append RaceSettled as adopted."""

    value: str


Effect = (
    TakeBatch
    | FixField
    | FetchBeacon
    | EnqueueItems
    | Settle
    | ReleaseBatch
    | ReadChain
    | AnchorLog
    | Commit
    | PullLogs
    | EnqueueStandIns
    | AdoptSettlement
)


class RaceObservation(msgspec.Struct, frozen=True, kw_only=True):
    """What the driver sees at one moment.

    `closing_block` is the last block not later than the close, None while it is not known. `beacon_network` and
    `beacon_round` are those of `Beacon.round_after(closes_ms)`; `beacon` is that round once fetched and verified, and
    the batch opened with it; `batch_failure` is the code with which the batch did not open although the round is out.
    `is_beacon_asked`: after the beacon's grace this process asked for the round and heard that it is not there; one
    that was down has asked nobody yet. `held` names the logs that it holds whole for the roll to come, its own as it
    was anchored among them; `done` says which (agent, problem) pairs those of the others that are believed say they
    have done (`arena.race.agreement`), None while they were not asked.
    """

    now_ms: int
    validator: str  # whose turn this is: its own items are enqueued
    finalized_block: int
    closing_block: int | None = None
    beacon_network: str = ""
    beacon_round: int = 0
    beacon: BeaconRound | None = None
    batch_failure: str = ""
    is_beacon_asked: bool = True
    pending_qualifying: int = 0  # agents committed since the race before, by the close, and not decided yet
    open_race_items: int = 0  # of this validator, read while the race runs
    owed_verdicts: int = 0  # race evaluations whose success has no verdict yet, and may still get one
    is_previous_settled: bool = True
    held: tuple[AnchoredLog, ...] = ()
    done: Mapping[str, frozenset[tuple[str, str]]] | None = None


_DECODER = msgspec.json.Decoder(Event)


def encode_event(event: Event) -> str:
    """JSON text of an event, as the store keeps it."""
    return msgspec.json.encode(event).decode()


RaceStage = Literal["new", "open", "closed", "running", "settling", "settled", "cancelled"]


class IllegalEventError(ValueError):
    """An event that can't happen to a race in this state: the stream was damaged or has two writers."""


class RaceState(msgspec.Struct, frozen=True, kw_only=True):
    """A race as its events tell it. `events` is their number, and the index of the next one."""

    race_id: str
    stage: RaceStage = "new"
    events: int = 0
    opened: RaceOpened | None = None
    closed: RaceClosed | None = None
    field: FieldFixed | None = None
    draw: ProblemsDrawn | None = None
    items: int | None = None  # work items enqueued; None before they all are
    due: SettlementDue | None = None
    settlement: SettlementRecord | None = None
    is_released: bool = False
    reads: tuple[ChainRead, ...] = ()  # what the chain held, moment by moment
    committed: tuple[Committed, ...] = ()  # what this validator said on chain, moment by moment
    proposed: SettlementRecord | None = None  # this validator's own settlement, before it is known who settled alike
    words: ProgressClaims = ProgressClaims()  # whose log held what it said was done
    is_adopted: bool = False
    adopted_history: tuple[SettlementRecord, ...] = ()

    def read(self, moment: RaceMoment) -> ChainRead | None:
        """What the chain held at a moment, or None while it was not read."""
        return next((read for read in self.reads if read.moment == moment), None)

    def stated(self, moment: RaceMoment) -> Committed | None:
        """What this validator said on chain at a moment, or None."""
        return next((each for each in self.committed if each.moment == moment), None)

    @property
    def is_finished(self) -> bool:
        """Nothing is left to do: settled or cancelled, and released if it was ever drawn from."""
        return self.stage in ("settled", "cancelled") and (self.is_released or self.draw is None)


def race_name(number: int) -> str:
    """The id of race `number`, counted from 1."""
    return f"race-{number:06d}"


def stream_of(race_id: str) -> str:
    """The store's event stream of a race."""
    return f"race/{race_id}"


def open_race(race_id: str, policy: Policy, batch: Batch, now_ms: int, closes_ms: int) -> RaceOpened:
    """The first event of a race, and the one that puts another policy in force before it closes.

    Raises ArenaError P4014 when the batch can't serve the policy's draw.
    """
    if len(batch.problems) < policy.race.problems:
        raise ArenaError(
            "P4014", f"the batch of {race_id} holds {len(batch.problems)} problems, a draw takes {policy.race.problems}"
        )
    return RaceOpened(
        race_id=race_id,
        policy=policy,
        policy_sha256=policy.policy_sha256,
        batch=batch,
        opened_ms=now_ms,
        closes_ms=closes_ms,
    )


def coming_race(earlier: Sequence[RaceState], now_ms: int, policy: Policy) -> tuple[str, int]:
    """The id and the close (unix ms) of the race after these, which are over.

    Validators that share races take both from the calendar: the close after the last one's, even when it is past, while
    others may still be at it. One that is alone by its policy counts from 1, and closes by its own clock.
    """
    rules = policy.race
    if policy.admission.rule == "own":
        known = {state.race_id for state in earlier}
        names = (race_name(number) for number in itertools.count(1))
        return next(name for name in names if name not in known), closing_ms(now_ms, rules)
    last_ms = next((past.opened.closes_ms for past in reversed(earlier) if past.opened is not None), now_ms)
    coming = shared_closes_ms(last_ms, rules)
    closes_ms = next(close_ms for close_ms in coming if now_ms < timeline(close_ms, rules).abandon_ms)
    return race_name(race_number(closes_ms, rules)), closes_ms


def runs_under_another(state: RaceState, policy: Policy) -> bool:
    """True for an opened race that still needs its policy, when that is not `policy`."""
    if state.opened is None or state.settlement is not None:
        return False
    return state.opened.policy_sha256 != policy.policy_sha256


def replay(race_id: str, texts: Iterable[str]) -> RaceState:
    """The state after a stored stream. Raises IllegalEventError for a stream that can't be, msgspec.DecodeError for
    text that is not an event."""
    state = RaceState(race_id=race_id)
    for text in texts:
        state = apply(state, _DECODER.decode(text))
    return state


def apply(state: RaceState, event: Event) -> RaceState:
    """The state after one more event. Raises IllegalEventError when it can't happen now."""
    counted = replace(state, events=state.events + 1)
    match state.stage, event:
        case "new", RaceOpened() if event.race_id == state.race_id:
            return replace(counted, stage="open", opened=event)
        case "open", RaceOpened() if (  # under another policy, with the batch the race has
            state.opened is not None
            and event.race_id == state.race_id
            and event.batch == state.opened.batch
            and event.policy_sha256 != state.opened.policy_sha256
        ):
            return replace(counted, opened=event)
        case "open", RaceClosed():
            return replace(counted, stage="closed", closed=event)
        case "closed", FieldFixed() if state.field is None:
            return replace(counted, field=event)
        case "closed", ProblemsDrawn() if state.field is not None:
            return replace(counted, stage="running", draw=event)
        case "running", ItemsEnqueued() if state.items is None:
            return replace(counted, items=event.items)
        case "closed" | "running", SettlementDue():
            return replace(counted, stage="settling", due=event)
        case "closed" | "running" | "settling", ChainRead() if state.read(event.moment) is None:
            return replace(counted, reads=(*state.reads, event))
        case "closed" | "running" | "settling", Committed() if state.stated(event.moment) is None:
            return replace(counted, committed=(*state.committed, event))
        case "settling", SettlementProposed() if state.proposed is None and event.settlement.race_id == state.race_id:
            return replace(counted, proposed=event.settlement, words=event.words)
        # A race ends while it settles; cancelled for want of time to agree, at any time after its close.
        case "closed" | "running" | "settling", RaceSettled() if event.settlement.race_id == state.race_id and (
            state.stage == "settling" or event.settlement.state == "cancelled"
        ):
            return replace(
                counted,
                stage=event.settlement.state,
                settlement=event.settlement,
                is_adopted=event.is_adopted,
                adopted_history=event.history,
            )
        case "settled" | "cancelled", BatchReleased() if not state.is_released:
            return replace(counted, is_released=True)
    raise IllegalEventError(f"{type(event).__name__} can't happen to {state.race_id} while it is {state.stage}")


Force = Literal["own", "adopted", "none", ""]


def force_of(state: RaceState) -> Force:
    """Whose settlement is in force for a race: this validator's own, one that it adopted from others, or none, where
    nothing had a quorum; "": it has not ended."""
    if state.settlement is None:
        return ""
    if state.is_adopted:
        return "adopted"
    return "own" if state.settlement == state.proposed else "none"


def promoted(settlement: SettlementRecord, closes_ms: int) -> Top:
    """The agent that a settlement put at the top, from its race's close (unix ms) on."""
    agent = settlement.top_agent_version_id
    hotkey = next(row.miner_hotkey for row in settlement.standings if row.agent_version_id == agent)
    return Top(agent_version_id=agent, miner_hotkey=hotkey, promoted_ms=closes_ms)


def paid_race(states: Iterable[RaceState]) -> RaceState | None:
    """The latest race that this validator settled, of races in their order. A cancelled one changes no weights, nor
    does a settlement that was adopted from others."""
    mine = (state for state in reversed(list(states)) if state.stage == "settled" and not state.is_adopted)
    return next(mine, None)


def vector_at(state: RaceState, metagraph: Metagraph) -> WeightVector:
    """The vector of a settled race for the subnet at `metagraph`. Raises ValueError for a race that is not settled."""
    if state.stage != "settled" or state.settlement is None or state.opened is None:
        raise ValueError(f"{state.race_id} is {state.stage}, not settled")
    top, incumbent = state.settlement.top_agent_version_id, state.field.incumbent if state.field else None
    hotkeys = {row.agent_version_id: row.miner_hotkey for row in state.settlement.standings}
    top_hotkey = hotkeys.get(top, incumbent.miner_hotkey if incumbent else "")
    places = state.settlement.places
    ranked = list(hotkeys.values()) if places is UNSET else places
    return chain_vector(ranked, top_hotkey, metagraph, state.opened.policy.weights)


class Succession(msgspec.Struct, frozen=True, kw_only=True):
    """`history`: the settlements in force, oldest first; `raced`: the agents that raced in them, by version id."""

    top: Top | None = None
    history: tuple[SettlementRecord, ...] = ()
    eliminated: tuple[str, ...] = ()
    raced: dict[str, Candidate] = {}

    @property
    def incumbent(self) -> Candidate | None:
        """The top agent as it races on: whatever else its hotkey submitted. None: nobody is at the top."""
        if self.top is None or self.top.agent_version_id not in self.raced:
            return None
        return replace(self.raced[self.top.agent_version_id], qualifying_score_e4=0, is_incumbent=True)


def succession(earlier: Iterable[RaceState]) -> Succession:
    """What follows from the races so far, oldest first."""
    now = Succession()
    for state in earlier:
        settlement = state.settlement
        if settlement is None or state.opened is None:
            continue
        field, top, closes_ms = state.field.field if state.field else (), now.top, state.opened.closes_ms
        history, eliminated = now.history, now.eliminated
        if state.is_adopted:  # it says itself what it followed from
            stated = settlement.inputs
            if stated is None:
                continue
            known = {past.race_id: past for past in (*now.history, *state.adopted_history)}
            history = tuple(known[race_id] for race_id in sorted(known))
            field, top, eliminated, closes_ms = stated.field, stated.incumbent, stated.eliminated, stated.closes_ms
        left = {row.agent_version_id for row in settlement.standings if row.is_eliminated}
        now = Succession(
            top=promoted(settlement, closes_ms) if settlement.is_promotion else top,
            history=(*history, settlement),
            eliminated=tuple(sorted(left.union(eliminated))),
            raced=now.raced | {candidate.subject.agent_version_id: candidate for candidate in field},
        )
    return now


def settlement_inputs(
    state: RaceState,
    metagraph: Metagraph,
    records: RaceRecords,
    before: Succession,
    logs: tuple[CountedLog, ...] = (),
) -> SettlementInputs:
    """The inputs of `settle` for a race in stage `settling`, under the policy it was opened under.

    `metagraph` is the subnet at the settling block, `logs` what `records` were read from where several validators
    agreed on that. Raises IllegalEventError in any other stage.
    """
    if state.stage != "settling" or state.opened is None or state.closed is None or state.due is None:
        raise IllegalEventError(f"{state.race_id} is {state.stage}, not settling")
    opened, field, draw = state.opened, state.field, state.draw
    return SettlementInputs(
        race_id=state.race_id,
        policy=opened.policy,
        batch_sha256=opened.batch.batch_sha256,
        closing_block=state.closed.closing_block,
        settling_block=state.due.settling_block,
        beacon_round=draw.beacon.round if draw else 0,
        stated=RaceInputs(
            policy="",
            problem_ids=tuple(problem.problem_id for problem in opened.batch.problems),
            closes_ms=opened.closes_ms,
            field=field.field if field else (),
            validators=field.validators if field else (),
            neurons=tuple(
                SettlingNeuron(
                    uid=each.uid,
                    hotkey=each.hotkey,
                    stake_rao=each.stake_rao,
                    coldkey=each.coldkey if opened.policy.gate.class_e4 else UNSET,
                )
                for each in metagraph.neurons
            ),
            incumbent=field.incumbent if field else None,
            history=(),
            eliminated=before.eliminated,
            logs=logs,
            beacon_network=draw.beacon.network if draw else "",
            beacon_signature=draw.beacon.signature if draw else "",
            undrawn_why=state.due.why,
        ),
        evaluations=tuple(records.evaluations),
        verdicts=tuple(records.verdicts),
        attempts=tuple(records.attempts),
        history=before.history,
    )
