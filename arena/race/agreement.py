"""What a race's validators agree on: which logs count, what has the quorum, and whose word is believed.

Pure, integers only, and read from the chain at blocks that follow from the race alone, so honest validators end alike
or each says that it has no quorum. A receipt fills the 32 bytes of a commitment: 16 that name roll, race, policy and
validators, so that one of another race, or of a validator under another policy, is no receipt; and a mask of 128 bits
over the race's validators, sorted. A countersignature binds race and settlement, so nobody can take another's value for
a race of its own; a later commitment of a validator replaces its earlier one on chain, so nobody states two values.
What is due follows from it in `arena.race.decider`. Protocol: `arena/race/AGREEMENT.md`.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence

import msgspec
from msgspec.structs import replace

from arena.chain.port import Commitment, Metagraph
from arena.race.machine import AnchoredLog, ProgressClaims, RaceSettled, RaceState
from arena.race.schedule import ANCHOR, RECEIPT, Roll, Timeline
from arena.race.scores import Pair, SettlementInputs, results_of_field
from arena.race.settle import CANCELLED, differences
from arena.records.model import SettlementRecord
from foundation.canonical import canonical_bytes
from foundation.errors import Failure

VALIDATORS_MAX = 128  # bits of the mask; a subnet has fewer permits
_ROLL_DOMAIN = "agent-arena/roll/1"
_NAME_BYTES, _MASK_BYTES = 16, 16


class RollName(msgspec.Struct, frozen=True, kw_only=True):
    """Which roll a receipt is of."""

    roll: Roll
    race_id: str
    policy_sha256: str
    validators: tuple[str, ...]  # sorted, at most `VALIDATORS_MAX`


class CountedRoll(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a roll: the logs that count, who took part, and the stake of those, all by validator."""

    logs: tuple[AnchoredLog, ...]
    participants: tuple[str, ...]
    participating_rao: int


def race_validators(metagraph: Metagraph) -> tuple[str, ...]:
    """Who evaluates a race: permits, sorted; where there are more than a mask has bits, those with the most stake."""
    permits = [neuron for neuron in metagraph.neurons if neuron.has_validator_permit]
    permits.sort(key=lambda neuron: (-neuron.stake_rao, neuron.hotkey))
    return tuple(sorted(neuron.hotkey for neuron in permits[:VALIDATORS_MAX]))


def anchored_logs(name: RollName, anchors: Iterable[Commitment]) -> tuple[AnchoredLog, ...]:
    """What the race's validators had on chain at the anchor block, by validator. A hash nobody can show a note for is
    among them; nobody will hold its log, and it won't count."""
    found = {anchor.hotkey: anchor.sha256 for anchor in anchors}
    return tuple(
        AnchoredLog(validator=validator, note_sha256=found[validator])
        for validator in name.validators
        if validator in found
    )


def receipt(name: RollName, held: Collection[str]) -> str:
    """The commitment (sha256-sized hex) of a validator that holds the logs of `held` whole.

    Raises ValueError for more validators than a mask has bits.
    """
    if len(name.validators) > VALIDATORS_MAX:
        raise ValueError(f"{len(name.validators)} validators do not fit a mask of {VALIDATORS_MAX}")
    mask = sum(1 << place for place, validator in enumerate(name.validators) if validator in held)
    return (_tag(name) + mask.to_bytes(_MASK_BYTES, "little")).hex()


def read_receipt(name: RollName, sha256: str) -> frozenset[str] | None:
    """The validators whose logs a commitment says its writer holds, or None where it is no receipt of this roll."""
    try:
        value = bytes.fromhex(sha256)
    except ValueError:
        return None
    if len(value) != _NAME_BYTES + _MASK_BYTES or value[:_NAME_BYTES] != _tag(name):
        return None
    mask = int.from_bytes(value[_NAME_BYTES:], "little")
    if mask >> len(name.validators):
        return None
    return frozenset(validator for place, validator in enumerate(name.validators) if mask >> place & 1)


def lacking(logs: Sequence[AnchoredLog], held: Iterable[AnchoredLog]) -> tuple[AnchoredLog, ...]:
    """Those of `logs` that are not held, as the chain names them."""
    have = frozenset(held)
    return tuple(log for log in logs if log not in have)


def _tag(name: RollName) -> bytes:
    parts = [_ROLL_DOMAIN, name.roll, name.race_id, name.policy_sha256, list(name.validators)]
    return hashlib.sha256(canonical_bytes(parts)).digest()[:_NAME_BYTES]


RACES_REMEMBERED = 30


def compare_words(said: Mapping[str, Collection[Pair]], inputs: SettlementInputs) -> ProgressClaims:
    """What each validator said it did, against the results of its own that the settlement's records hold.

    One that said nothing is in neither list; what comes after the anchors counts for nobody, so what was `said` must
    have been heard before them.
    """
    given, kept, broken = results_of_field(inputs), list[str](), list[str]()
    for validator, pairs in sorted(said.items()):
        if pairs:
            (kept if all(validator in given.get(pair, ()) for pair in pairs) else broken).append(validator)
    return ProgressClaims(kept=tuple(kept), broken=tuple(broken))


def believed(earlier: Iterable[ProgressClaims]) -> frozenset[str]:
    """Who is believed now, given what came of the races before, oldest first."""
    remembered = list(earlier)[-RACES_REMEMBERED:]
    kept = frozenset(validator for words in remembered for validator in words.kept)
    return kept - frozenset(validator for words in remembered for validator in words.broken)


NO_QUORUM = "no quorum"
NOT_OURS = "no quorum here: other validators settled alike, and this one could not"
_COUNTERSIGN_DOMAIN = "agent-arena/countersign/1"
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


def validators_of(state: RaceState) -> tuple[str, ...]:
    """The race's validators as the closing block says; empty while that was not read."""
    closing = state.read("closing")
    return race_validators(closing.metagraph) if closing is not None and closing.metagraph is not None else ()


def roll_name(state: RaceState, roll: Roll) -> RollName:
    """The name that receipts of a roll carry. Only for a race whose closing block was read."""
    policy_sha256 = state.opened.policy_sha256 if state.opened else ""
    return RollName(roll=roll, race_id=state.race_id, policy_sha256=policy_sha256, validators=validators_of(state))


def stakes(state: RaceState, roll: Roll) -> dict[str, int]:
    """The stake (rao) behind each validator in a roll: at the closing block for the field, else the settling
    block; 0 for one that is not registered then."""
    read = state.read("closing" if roll == "field" else "settling")
    neurons = read.metagraph.neurons if read is not None and read.metagraph is not None else ()
    staked = {neuron.hotkey: neuron.stake_rao for neuron in neurons}
    return {validator: staked.get(validator, 0) for validator in validators_of(state)}


def counted_roll(state: RaceState, roll: Roll) -> CountedRoll | None:
    """What came of a roll, or None before its receipts were read: those logs count that holders of more than half of
    the participating stake say they hold. A receipt of no validator of the race, or of one without stake, takes no
    part."""
    anchors, receipts = state.read(ANCHOR[roll]), state.read(RECEIPT[roll])
    if anchors is None or receipts is None:
        return None
    name, staked = roll_name(state, roll), stakes(state, roll)
    read = ((each.hotkey, read_receipt(name, each.sha256)) for each in receipts.commitments)
    masks = {hotkey: held for hotkey, held in read if held is not None and staked.get(hotkey, 0) > 0}
    total = sum(staked[validator] for validator in masks)

    def is_counted(log: AnchoredLog) -> bool:
        held_rao = sum(staked[holder] for holder, held in masks.items() if log.validator in held)
        return 2 * held_rao > total

    return CountedRoll(
        logs=tuple(log for log in anchored_logs(name, anchors.commitments) if is_counted(log)),
        participants=tuple(sorted(masks)),
        participating_rao=total,
    )


def quorum_of(state: RaceState) -> str | None:
    """The value with more than half of the participating stake (rao) behind it, or None where none has (or the block
    was not read). At most one can have it.

    What stands in a slot that holds no countersignature (a receipt, an anchor) differs between validators or is
    countersigned by nobody, and has no quorum; were it to have one, no settlement would match it.
    """
    roll, read, staked = counted_roll(state, "results"), state.read("countersign"), stakes(state, "results")
    if roll is None or read is None:
        return None
    behind: Counter[str] = Counter()
    for hotkey, value in {each.hotkey: each.sha256 for each in read.commitments}.items():
        behind[value] += staked[hotkey] if hotkey in roll.participants else 0
    return next((value for value, rao in behind.items() if 2 * rao > roll.participating_rao), None)


def cancelled(state: RaceState, reason: str) -> SettlementRecord:
    """How a race ends for a validator without a settlement in force: nothing changes, and the reason is said.

    It stands in the race's events and in no log: a validator's log keeps the settlement it made itself.
    """
    assert state.opened is not None and state.closed is not None, "a race ends after its close"
    draw, incumbent = state.draw, state.field.incumbent if state.field else None
    blank = replace(
        CANCELLED,
        race_id=state.race_id,
        policy_sha256=state.opened.policy_sha256,
        closing_block=state.closed.closing_block,
        settling_block=state.due.settling_block if state.due else 0,
        batch_sha256=state.opened.batch.batch_sha256,
        record_set_sha256=state.proposed.record_set_sha256 if state.proposed else "",
        top_agent_version_id=incumbent.agent_version_id if incumbent else "",
        reason=reason,
    )
    return replace(blank, seed=draw.seed, beacon_round=draw.beacon.round, drawn=draw.drawn) if draw else blank


def countersign_value(race_id: str, settlement_sha256: str) -> str:
    """What a validator commits for its settlement: sha256 hex."""
    return hashlib.sha256(canonical_bytes([_COUNTERSIGN_DOMAIN, race_id, settlement_sha256])).hexdigest()


def reveal_gate(states: Iterable[RaceState], validator: str) -> RevealGate:
    """What may be shown of these races: the rolls whose anchor block is final, our own records under the anchored root;
    none of them (0) where the chain did not hold what this validator anchored."""
    shown: dict[str, int] = {}
    for state in states:
        for roll, moment in ANCHOR.items():
            read, own = state.read(moment), state.stated(moment)
            if read is None:
                continue
            held = {commitment.hotkey: commitment.sha256 for commitment in read.commitments}
            size = own.size if own is not None and held.get(validator) == own.sha256 else 0
            about = state.race_id if roll == "results" else ""
            shown[about] = max(shown.get(about, 0), size)
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
