"""What a settlement states of its inputs, and the way back: settled again from records alone.

Pure. `settle` states what it was given in `RaceInputs`; `inputs_again` makes the same inputs of a stated
settlement, the records of the counted logs and the earlier settlements it names, so that settling them again gives the
same bytes, or says which part of what was given is another. Source: docs/architecture.md#the-mechanism (a settlement is
a pure function).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from arena.chain.port import BeaconRound, Metagraph, Neuron
from arena.policy import Policy
from arena.race.model import (
    Batch,
    CountedAttempt,
    CountedEvaluation,
    CountedVerdict,
    SealedProblem,
    SettlementInputs,
)
from arena.records.model import PastSettlement, RaceInputs, SettlementRecord, SettlingNeuron
from foundation.canonical import UNREADABLE_JSON, canonical_bytes, content_hash, read_canonical
from foundation.errors import ArenaError

_LEFT_OUT = "V2102"


def settlement_sha256(record: SettlementRecord) -> str:
    """The identity of a settlement: the same on every validator that settled alike."""
    return content_hash(record)


def state_inputs(inputs: SettlementInputs) -> RaceInputs:
    """What a settlement says it follows from, sorted throughout: equal inputs in any order are equal bytes."""
    hotkeys = {candidate.subject.miner_hotkey for candidate in inputs.field} | set(inputs.validators)
    if inputs.incumbent is not None:
        hotkeys.add(inputs.incumbent.miner_hotkey)
    neurons = (neuron for neuron in inputs.metagraph.neurons if neuron.hotkey in hotkeys)
    policy = msgspec.to_builtins(inputs.policy)
    if inputs.policy_text:
        # Settled again, with the fields that its settlement names: one of earlier code lacks those that policies got
        # since, which stand at their defaults.
        policy = _only_named(policy, msgspec.json.decode(inputs.policy_text))
    return RaceInputs(
        policy=canonical_bytes(policy).decode(),
        problem_ids=tuple(sorted(problem.problem_id for problem in inputs.batch.problems)),
        closes_ms=inputs.closes_ms,
        field=tuple(sorted(inputs.field, key=lambda candidate: candidate.subject.agent_version_id)),
        validators=tuple(sorted(inputs.validators)),
        neurons=tuple(
            SettlingNeuron(uid=neuron.uid, hotkey=neuron.hotkey, stake_rao=neuron.stake_rao)
            for neuron in sorted(neurons, key=lambda neuron: neuron.uid)
        ),
        incumbent=inputs.incumbent,
        history=tuple(
            PastSettlement(race_id=past.race_id, settlement_sha256=settlement_sha256(past))
            for past in relevant_history(inputs)
        ),
        eliminated=tuple(sorted(set(inputs.eliminated))),
        logs=tuple(sorted(inputs.logs, key=lambda log: log.validator)),
        beacon_network=inputs.beacon.network if inputs.beacon else "",
        beacon_signature=bytes.fromhex(inputs.beacon.signature).hex() if inputs.beacon else "",
        undrawn_why="" if inputs.beacon else inputs.undrawn_why,
    )


def _only_named(value: object, names: object) -> object:
    """`value` without the fields, at every level, that `names` does not have."""
    if isinstance(value, dict) and isinstance(names, dict):
        return {name: _only_named(part, names[name]) for name, part in value.items() if name in names}
    if isinstance(value, list | tuple) and isinstance(names, list) and len(value) == len(names):
        return [_only_named(part, named) for part, named in zip(value, names, strict=True)]
    return value


def relevant_history(inputs: SettlementInputs) -> tuple[SettlementRecord, ...]:
    """The earlier settlements that the policy's promotion rule looks at: none (`margin`), the rest of the window
    (`window`), or the races of the incumbent's reign (`sequential`)."""
    rules = inputs.policy.promotion
    settled = tuple(past for past in inputs.history if past.state == "settled")
    if rules.kind == "window" and rules.window_races > 1:
        return settled[-(rules.window_races - 1) :]
    if rules.kind == "sequential" and inputs.incumbent is not None:
        top = inputs.incumbent.agent_version_id
        return tuple(past for past in settled if past.top_agent_version_id == top and not past.is_promotion)
    return ()


def policy_of(record: SettlementRecord) -> Policy:
    """The policy a settlement states. Raises ArenaError V2102 where it states none, or another than it names."""
    text = _stated(record).policy
    try:
        policy = read_canonical(text, Policy)
    except UNREADABLE_JSON as error:
        raise ArenaError(_LEFT_OUT, f"{record.race_id}: policy: {error}") from error
    if policy.policy_sha256 != record.policy_sha256:
        raise ArenaError(_LEFT_OUT, f"{record.race_id}: the policy stated is not the one named")
    return policy


def inputs_again(
    record: SettlementRecord,
    evaluations: Iterable[CountedEvaluation],
    verdicts: Iterable[CountedVerdict],
    history: Sequence[SettlementRecord] = (),
    *,
    policy: Policy | None = None,
    attempts: Iterable[CountedAttempt] = (),
) -> SettlementInputs:
    """The inputs a settlement was made of; `policy` takes the place of its own, to see how else it could have ended.

    `evaluations`, `verdicts` and `attempts` are those of the race in the counted logs, up to each log's size; `history`
    holds earlier settlements in their order, those that `record` names among them. Under another policy, records
    written under the race's own still count. Raises ArenaError V2102 where the record states no inputs, or its policy,
    beacon or history is another than the one it names.
    """
    stated, own = _stated(record), policy_of(record)
    known = {settlement_sha256(past): past for past in history}
    for past in stated.history:
        if past.settlement_sha256 not in known:
            raise ArenaError(_LEFT_OUT, f"{record.race_id}: settlement of {past.race_id} is missing, or another")
    sizes = {log.validator: log.size for log in stated.logs}
    beacon = None
    if stated.beacon_signature:
        beacon = BeaconRound(
            network=stated.beacon_network, round=record.beacon_round, signature=stated.beacon_signature
        )
    return SettlementInputs(
        race_id=record.race_id,
        policy=own if policy is None else policy,
        batch=Batch(
            batch_sha256=record.batch_sha256,
            problems=tuple(SealedProblem(problem_id=problem_id) for problem_id in stated.problem_ids),
        ),
        closing_block=record.closing_block,
        closes_ms=stated.closes_ms,
        settling_block=record.settling_block,
        field=stated.field,
        validators=stated.validators,
        beacon=beacon,
        undrawn_why=stated.undrawn_why,
        evaluations=tuple(row for row in evaluations if _is_counted(row, sizes)),
        verdicts=tuple(row for row in verdicts if _is_counted(row, sizes)),
        attempts=tuple(row for row in attempts if _is_counted(row, sizes)),
        metagraph=Metagraph(
            netuid=0,
            block=record.settling_block,
            tempo=0,
            neurons=tuple(Neuron(uid=row.uid, hotkey=row.hotkey, stake_rao=row.stake_rao) for row in stated.neurons),
        ),
        incumbent=stated.incumbent,
        history=tuple(history)
        if policy is not None
        else tuple(known[past.settlement_sha256] for past in stated.history),
        eliminated=stated.eliminated,
        logs=stated.logs,
        recorded_under=own.policy_sha256,
        policy_text=stated.policy if policy is None else "",
    )


def differences(made: SettlementRecord, given: SettlementRecord) -> tuple[str, ...]:
    """The names of what two settlements state differently, `inputs.` before those of their inputs; none: equal."""
    found = [
        name for name in made.__struct_fields__ if name != "inputs" and getattr(made, name) != getattr(given, name)
    ]
    if made.inputs is None or given.inputs is None:
        return tuple(found if made.inputs is given.inputs else [*found, "inputs"])
    mine, theirs = made.inputs, given.inputs
    parts = [name for name in mine.__struct_fields__ if getattr(mine, name) != getattr(theirs, name)]
    return tuple([*found, *(f"inputs.{name}" for name in parts)])


def _stated(record: SettlementRecord) -> RaceInputs:
    if record.inputs is None:
        raise ArenaError(_LEFT_OUT, f"{record.race_id}: its settlement states no inputs: an early release made it")
    return record.inputs


def _is_counted(row: CountedEvaluation | CountedVerdict | CountedAttempt, sizes: dict[str, int]) -> bool:
    """Whether it stands in the counted part of its log. No logs stated: one validator settled from its own."""
    return not sizes or row.seq <= sizes.get(row.validator, 0)
