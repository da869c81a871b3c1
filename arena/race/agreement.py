"""What the validators of a race agree on, as its events tell it: who they are, which logs count, what has the quorum.

Pure, and read from the chain at blocks that follow from the race alone, so honest validators end alike or each
says that it has no quorum. A countersignature binds race and settlement, so nobody can take another's value for a race
of its own; a later commitment of a validator replaces its earlier one on chain, so nobody states two values. What is
due follows from it in `arena.race.decider`. Protocol: `arena/race/AGREEMENT.md`.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from arena.chain.port import Commitment
from arena.race.logs import AnchoredLog, CountedRoll, RollName, count_roll, lacking, race_validators, stakes_of
from arena.race.machine import RaceSettled, RaceState
from arena.race.schedule import ANCHOR, RECEIPT, ROLLS, Roll, Timeline
from arena.race.settle import cancelled_settlement, differences
from arena.records.model import SettlementRecord
from foundation.canonical import canonical_bytes
from foundation.errors import Failure

NO_QUORUM = "no quorum"
NOT_OURS = "no quorum here: other validators settled alike, and this one could not"
_DOMAIN = "agent-arena/countersign/1"
TOO_LATE = "no quorum here: what the chain and the other validators held could not be read in time"


# By race id ("": qualifying) of what may be shown now, of whatever log: up to which number our own records may.
RevealGate = Mapping[str, int]


def is_anchoring(plan: Timeline, now_ms: int) -> bool:
    """True once validators may have anchored their results: what is done from then on counts for nobody for sure."""
    return now_ms >= plan.settling_ms - plan.lead_ms


def is_sole(state: RaceState, validator: str) -> bool:
    """Whether an opened race has no other validator: by its policy, or by the closing block once that was read."""
    if state.opened is not None and state.opened.policy.admission.rule == "own":
        return True
    return state.read("closing") is not None and not frozenset(validators_of(state)) - {validator}


def evaluators(state: RaceState, validator: str) -> tuple[str, ...]:
    """Who evaluates a race past its close: its validators, or `validator` alone where the policy says so."""
    is_own = state.opened is not None and state.opened.policy.admission.rule == "own"
    return (validator,) if is_own else validators_of(state)


def validators_of(state: RaceState) -> tuple[str, ...]:
    """The race's validators as the closing block says; empty while that was not read."""
    closing = state.read("closing")
    return race_validators(closing.metagraph) if closing is not None and closing.metagraph is not None else ()


def roll_name(state: RaceState, roll: Roll) -> RollName:
    """The name that receipts of a roll carry. Only for a race whose closing block was read."""
    policy_sha256 = state.opened.policy_sha256 if state.opened else ""
    return RollName(roll=roll, race_id=state.race_id, policy_sha256=policy_sha256, validators=validators_of(state))


def stakes(state: RaceState, roll: Roll) -> dict[str, int]:
    """The stake (rao) behind each validator in a roll: at the closing block for the field, else the settling block."""
    read = state.read("closing" if roll == "field" else "settling")
    return stakes_of(read.metagraph, validators_of(state)) if read is not None and read.metagraph is not None else {}


def counted_roll(state: RaceState, roll: Roll) -> CountedRoll | None:
    """What came of a roll, or None before its receipts were read."""
    anchors, receipts = state.read(ANCHOR[roll]), state.read(RECEIPT[roll])
    if anchors is None or receipts is None:
        return None
    return count_roll(roll_name(state, roll), anchors.commitments, receipts.commitments, stakes(state, roll))


def quorum_of(state: RaceState) -> str | None:
    """The countersigned value that has the quorum, or None where none has (or the block was not read)."""
    roll, read = counted_roll(state, "results"), state.read("countersign")
    return None if roll is None or read is None else quorum_value(roll, read.commitments, stakes(state, "results"))


def cancelled(state: RaceState, reason: str) -> SettlementRecord:
    """How a race ends for a validator without a settlement in force: nothing changes, and the reason is said.

    It stands in the race's events and in no log: a validator's log keeps the settlement it made itself.
    """
    assert state.opened is not None and state.closed is not None, "a race ends after its close"
    blank = cancelled_settlement(
        race_id=state.race_id,
        policy_sha256=state.opened.policy_sha256,
        closing_block=state.closed.closing_block,
        settling_block=state.due.settling_block if state.due else 0,
        batch_sha256=state.opened.batch.batch_sha256,
        record_set_sha256=state.proposed.record_set_sha256 if state.proposed else "",
        incumbent=state.field.incumbent if state.field else None,
        reason=reason,
    )
    draw = state.draw
    return replace(blank, seed=draw.seed, beacon_round=draw.beacon.round, drawn=draw.drawn) if draw else blank


def countersign_value(race_id: str, settlement_sha256: str) -> str:
    """What a validator commits for its settlement: sha256 hex."""
    return hashlib.sha256(canonical_bytes([_DOMAIN, race_id, settlement_sha256])).hexdigest()


def quorum_value(roll: CountedRoll, commitments: Iterable[Commitment], stakes: Mapping[str, int]) -> str | None:
    """The value with more than half of the participating stake (rao) behind it, or None. At most one can have it.

    What stands in a slot that holds no countersignature (a receipt, an anchor) differs between validators or is
    countersigned by nobody, and has no quorum; were it to have one, no settlement would match it.
    """
    behind: Counter[str] = Counter()
    for hotkey, value in {each.hotkey: each.sha256 for each in commitments}.items():
        behind[value] += stakes.get(hotkey, 0) if hotkey in roll.participants else 0
    return next((value for value, rao in behind.items() if 2 * rao > roll.participating_rao), None)


def reveal_gate(states: Iterable[RaceState], validator: str) -> RevealGate:
    """What may be shown of these races: the rolls whose anchor block is final, our own records under the anchored root;
    none of them (0) where the chain did not hold what this validator anchored."""
    shown: dict[str, int] = {}
    for state in states:
        for roll in ROLLS:
            read, own = state.read(ANCHOR[roll]), state.stated(ANCHOR[roll])
            if read is None:
                continue
            held = {commitment.hotkey: commitment.sha256 for commitment in read.commitments}
            is_ours = own is not None and held.get(validator) == own.sha256
            about = state.race_id if roll == "results" else ""
            shown[about] = max(shown.get(about, 0), own.size if own is not None and is_ours else 0)
    return shown


def explain_end(state: RaceState, event: RaceSettled, held: Mapping[Roll, Iterable[AnchoredLog]]) -> Failure | None:
    """V2100 where nothing had the quorum, V2101 where others settled what this validator could not; None for a race
    that ended as it should. `state` is the race before the event, `held` the logs this node has for each roll."""
    settled = event.settlement
    if event.is_adopted and state.proposed is not None:
        return Failure(code="V2101", detail=f"differs in {', '.join(differences(state.proposed, settled))}")
    if not event.is_adopted and (settled.state != "cancelled" or NO_QUORUM not in settled.reason):
        return None
    roll = counted_roll(state, "results")
    if not event.is_adopted and settled.reason == NO_QUORUM and roll is not None:
        took = f"{len(roll.participants)} of {len(validators_of(state))} validators took part"
        return Failure(code="V2100", detail=f"{took}, with {roll.participating_rao} rao; no value has more than half")
    name: Roll = "field" if state.field is None else "results"
    counted = counted_roll(state, name)
    if counted is None:
        return Failure(code="V2101", detail=f"the anchors or receipts of the {name} could not be read")
    lacked = ", ".join(log.validator for log in lacking(counted.logs, held[name])) or "nobody"
    return Failure(code="V2101", detail=f"the {name} roll was not held in time; lacking the logs of {lacked}")
