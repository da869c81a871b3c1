"""The race as a state machine: open -> closed -> running -> settling -> settled | cancelled.

Pure; the state is what its events say and nothing else, in whichever order one validator alone or several
wrote them; a race runs under the policy it was opened under. What is due in a state says `arena.race.decider`. A
driver that dies at any instant replays the stream and goes on. Weights are no part of a race: they follow the latest
settlement (`arena.race.weights`).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import Literal

import msgspec
from msgspec.structs import replace

from arena.bank.batch import Batch
from arena.chain.port import Metagraph
from arena.policy import Policy
from arena.race.admission import RaceRecords
from arena.race.events import (
    BatchReleased,
    ChainRead,
    Committed,
    Event,
    FieldFixed,
    ItemsEnqueued,
    ProblemsDrawn,
    RaceClosed,
    RaceOpened,
    RaceSettled,
    SettlementDue,
    SettlementProposed,
    decode_event,
)
from arena.race.logs import ProgressClaims
from arena.race.schedule import Moment, closing_ms, race_number, shared_closes_ms, timeline
from arena.race.scores import SettlementInputs
from arena.race.weights import WeightVector, chain_vector
from arena.records.model import Candidate, CountedLog, RaceInputs, SettlementRecord, SettlingNeuron, Subject, Top
from arena.records.port import WeightsResult
from foundation.errors import ArenaError

Stage = Literal["new", "open", "closed", "running", "settling", "settled", "cancelled"]


class IllegalEventError(ValueError):
    """An event that can't happen to a race in this state: the stream was damaged or has two writers."""


class RaceState(msgspec.Struct, frozen=True, kw_only=True):
    """A race as its events tell it. `events` is their number, and the index of the next one."""

    race_id: str
    stage: Stage = "new"
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

    def read(self, moment: Moment) -> ChainRead | None:
        """What the chain held at a moment, or None while it was not read."""
        return next((read for read in self.reads if read.moment == moment), None)

    def stated(self, moment: Moment) -> Committed | None:
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
    text that is no event."""
    state = RaceState(race_id=race_id)
    for text in texts:
        state = apply(state, decode_event(text))
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


def top_after(state: RaceState) -> Top | None:
    """Who is at the top once this race is settled or cancelled: the incumbent of the next one. None: nobody.

    Raises IllegalEventError while the race has no settlement.
    """
    settlement, opened = state.settlement, state.opened
    if settlement is None or opened is None:
        raise IllegalEventError(f"{state.race_id} is {state.stage} and has no settlement")
    if not settlement.is_promotion:
        return state.field.incumbent if state.field else None
    return promoted(settlement, opened.closes_ms)


def promoted(settlement: SettlementRecord, closes_ms: int) -> Top:
    """The agent that a settlement put at the top, from its race's close (unix ms) on."""
    agent = settlement.top_agent_version_id
    hotkey = next(row.miner_hotkey for row in settlement.standings if row.agent_version_id == agent)
    return Top(agent_version_id=agent, miner_hotkey=hotkey, promoted_ms=closes_ms)


WAIT_BLOCKS_MAX = 25


def paid_race(states: Iterable[RaceState]) -> RaceState | None:
    """The latest race that this validator settled, of races in their order. A cancelled one changes no weights, nor
    does a settlement that was adopted from others."""
    mine = (state for state in reversed(list(states)) if state.stage == "settled" and not state.is_adopted)
    return next(mine, None)


def vector_at(state: RaceState, metagraph: Metagraph) -> WeightVector:
    """The vector of a settled race for the subnet at `metagraph`. Raises ValueError for a race that is not settled."""
    if state.stage != "settled" or state.settlement is None or state.opened is None:
        raise ValueError(f"{state.race_id} is {state.stage}, not settled")
    top = top_after(state)
    hotkeys = [standing.miner_hotkey for standing in state.settlement.standings]
    return chain_vector(hotkeys, top.miner_hotkey if top else "", metagraph, state.opened.policy.weights)


def next_try_block(results: Sequence[WeightsResult], race_id: str, tempo: int) -> int:
    """The first block at which a race's weights may be tried; 0: at once. `results` come newest first.

    At once where this race was never tried; `tempo` blocks after the last success; after a refusal once a wait that
    doubles with every refusal in a row has passed, at most `WAIT_BLOCKS_MAX` blocks.
    """
    tries = [result for result in results if result.race_id == race_id]
    if not tries:
        return 0
    refused = next((count for count, result in enumerate(tries) if result.status == "ok"), len(tries))
    wait_blocks = min(1 << (refused - 1), WAIT_BLOCKS_MAX) if refused else tempo
    return tries[0].block + wait_blocks


class Succession(msgspec.Struct, frozen=True, kw_only=True):
    """`history`: the settlements in force, oldest first; `subjects`: the agents that raced in them, by version id."""

    top: Top | None = None
    history: tuple[SettlementRecord, ...] = ()
    eliminated: tuple[str, ...] = ()
    subjects: dict[str, Subject] = {}

    @property
    def incumbent(self) -> Candidate | None:
        """The top agent as it races on: whatever else its hotkey submitted. None: nobody is at the top."""
        if self.top is None or self.top.agent_version_id not in self.subjects:
            return None
        subject = self.subjects[self.top.agent_version_id]
        return Candidate(subject=subject, qualifying_score_e4=0, is_incumbent=True)


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
            subjects=now.subjects | {candidate.subject.agent_version_id: candidate.subject for candidate in field},
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
                SettlingNeuron(uid=each.uid, hotkey=each.hotkey, stake_rao=each.stake_rao) for each in metagraph.neurons
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
