"""A roll: which validators' logs count, from anchors and receipts that stand on chain.

Pure, integers only, and a function of what every reader of the chain sees alike. A receipt fills the
32 bytes of a commitment: 16 that name roll, race, policy and validators, so that one of another race, or of a validator
under another policy, is no receipt; and a mask of 128 bits over the race's validators, sorted. The rule stands in
`arena/race/AGREEMENT.md`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping, Sequence

import msgspec

from arena.chain.port import Commitment, Metagraph
from arena.race.schedule import Roll
from arena.race.scores import SettlementInputs, pairs_given
from foundation.canonical import canonical_bytes

VALIDATORS_MAX = 128  # bits of the mask; a subnet has fewer permits
_DOMAIN = "agent-arena/roll/1"
_NAME_BYTES, _MASK_BYTES = 16, 16


class RollName(msgspec.Struct, frozen=True, kw_only=True):
    """Which roll a receipt is of."""

    roll: Roll
    race_id: str
    policy_sha256: str
    validators: tuple[str, ...]  # sorted, at most `VALIDATORS_MAX`


class AnchoredLog(msgspec.Struct, frozen=True, kw_only=True):
    """A log by the hash that the chain held for its validator at the anchor block."""

    validator: str
    note_sha256: str


def own_log(validator: str) -> AnchoredLog:
    """A validator's own log as it is, under no anchor: what one alone counts."""
    return AnchoredLog(validator=validator, note_sha256="")


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


def stakes_of(metagraph: Metagraph, validators: Iterable[str]) -> dict[str, int]:
    """Stake in rao by validator; 0 for one that is not registered at that block."""
    staked = {neuron.hotkey: neuron.stake_rao for neuron in metagraph.neurons}
    return {validator: staked.get(validator, 0) for validator in validators}


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


def count_roll(
    name: RollName, anchors: Iterable[Commitment], receipts: Iterable[Commitment], stakes: Mapping[str, int]
) -> CountedRoll:
    """Which logs count: those that holders of more than half of the participating stake say they hold.

    `anchors` and `receipts` are the chain's answers at the two blocks; `stakes` (rao) those of the roll. A receipt of
    somebody who is no validator of the race, or without stake, takes no part.
    """
    masks: dict[str, frozenset[str]] = {}
    for commitment in receipts:
        held = read_receipt(name, commitment.sha256)
        if held is not None and commitment.hotkey in name.validators and stakes.get(commitment.hotkey, 0) > 0:
            masks[commitment.hotkey] = held
    total = sum(stakes[validator] for validator in masks)

    def is_counted(log: AnchoredLog) -> bool:
        held_rao = sum(stakes[holder] for holder, held in masks.items() if log.validator in held)
        return 2 * held_rao > total

    return CountedRoll(
        logs=tuple(log for log in anchored_logs(name, anchors) if is_counted(log)),
        participants=tuple(sorted(masks)),
        participating_rao=total,
    )


def lacking(logs: Sequence[AnchoredLog], held: Iterable[AnchoredLog]) -> tuple[AnchoredLog, ...]:
    """Those of `logs` that are not held, as the chain names them."""
    have = frozenset(held)
    return tuple(log for log in logs if log not in have)


def _tag(name: RollName) -> bytes:
    parts = [_DOMAIN, name.roll, name.race_id, name.policy_sha256, list(name.validators)]
    return hashlib.sha256(canonical_bytes(parts)).digest()[:_NAME_BYTES]


Pair = tuple[str, str]  # (agent version id, problem id)

RACES_REMEMBERED = 30


class ProgressClaims(msgspec.Struct, frozen=True, kw_only=True):
    """Validators that said in a race that pairs are done: whose log held them all, and whose did not. Both sorted."""

    kept: tuple[str, ...] = ()
    broken: tuple[str, ...] = ()


def compare_words(said: Mapping[str, Iterable[Pair]], inputs: SettlementInputs) -> ProgressClaims:
    """What each validator said it did, against the results of its own that the settlement's records hold.

    One that said nothing is in neither list; what comes after the anchors counts for nobody, so what was `said` must
    have been heard before them.
    """
    given = pairs_given(inputs)
    told = {validator: frozenset(pairs) for validator, pairs in said.items()}
    kept = {validator for validator, pairs in told.items() if pairs and pairs <= given.get(validator, frozenset())}
    broken = {validator for validator, pairs in told.items() if pairs and validator not in kept}
    return ProgressClaims(kept=tuple(sorted(kept)), broken=tuple(sorted(broken)))


def believed(earlier: Iterable[ProgressClaims]) -> frozenset[str]:
    """Who is believed now, given what came of the races before, oldest first."""
    remembered = list(earlier)[-RACES_REMEMBERED:]
    kept = frozenset(validator for words in remembered for validator in words.kept)
    return kept - frozenset(validator for words in remembered for validator in words.broken)
