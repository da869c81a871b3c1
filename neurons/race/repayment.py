"""What a race would have paid by verdicts that were given again: settled once more by the function that paid it.

Pure. A replayed verdict takes the place of the one that counted on its body, as if it had been given then; bodies that
were not replayed, or whose replay is owed, keep theirs. Draw, field, faults, promotion and weights are the race's own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
from msgspec.structs import replace

from arena.race.consensus.reducer import RaceRecords
from arena.race.model import CountedVerdict
from arena.race.settlement.provenance import differences, inputs_again
from arena.race.settlement.settle import settle
from arena.records.model import SettlementRecord
from foundation.errors import ArenaError
from judge.verdict import Verdict


class RepaidAgent(msgspec.Struct, frozen=True, kw_only=True):
    """An agent's race score and its miner's weight, as paid and as replayed; weights in 1/65535 of the largest."""

    agent_version_id: str
    miner_hotkey: str
    score_e4: int
    replayed_score_e4: int
    weight_u16: int
    replayed_weight_u16: int


class Repayment(msgspec.Struct, frozen=True, kw_only=True):
    """A race as paid and as replayed. `burnt_u16` is the weight of everybody who did not race, before and after;
    `replayed` and `kept` count the verdicts that a replayed one stands for, and those left as they were."""

    race_id: str
    agents: tuple[RepaidAgent, ...]
    burnt_u16: tuple[int, int]
    top_agent_version_id: str
    replayed_top_agent_version_id: str
    replayed: int
    kept: int


def pay_again(
    given: SettlementRecord,
    records: RaceRecords,
    settlements: Sequence[SettlementRecord],
    verdicts: Mapping[str, Verdict],
) -> Repayment:
    """The race paid by replayed `verdicts`, by body sha256; `settlements` are those in force before it.

    Raises ArenaError V2102 where its records do not settle it as it was settled: then there is nothing to compare.
    """
    inputs = inputs_again(given, records.evaluations, records.verdicts, settlements, attempts=records.attempts)
    if differing := differences(settle(inputs), given):
        raise ArenaError("V2102", f"{given.race_id}: its records settle it otherwise: {', '.join(differing)}")
    rubric = inputs.policy.rubric

    def replayed(row: CountedVerdict) -> CountedVerdict:
        verdict = verdicts.get(row.record.verdict.body_sha256)
        if verdict is None:
            return row
        named = replace(verdict, rubric_id=rubric.rubric_id, prompt_sha256=rubric.prompt_sha256)
        return replace(row, record=replace(row.record, verdict=named))

    made = settle(replace(inputs, verdicts=tuple(map(replayed, inputs.verdicts))))
    before, after = _weights(given), _weights(made)
    again = {row.agent_version_id: row for row in made.standings}
    racing = {row.miner_hotkey for row in given.standings}
    bodies = {row.record.verdict.body_sha256 for row in inputs.verdicts}
    return Repayment(
        race_id=given.race_id,
        agents=tuple(
            RepaidAgent(
                agent_version_id=row.agent_version_id,
                miner_hotkey=row.miner_hotkey,
                score_e4=row.race_score_e4,
                replayed_score_e4=again[row.agent_version_id].race_score_e4,
                weight_u16=before.get(row.miner_hotkey, 0),
                replayed_weight_u16=after.get(row.miner_hotkey, 0),
            )
            for row in given.standings
            if row.agent_version_id in again
        ),
        burnt_u16=(_sum_without(before, racing), _sum_without(after, racing)),
        top_agent_version_id=given.top_agent_version_id,
        replayed_top_agent_version_id=made.top_agent_version_id,
        replayed=len(bodies & verdicts.keys()),
        kept=len(bodies - verdicts.keys()),
    )


def _weights(record: SettlementRecord) -> dict[str, int]:
    """By hotkey; by "uid N" where a uid is nobody's who raced or was at the top."""
    owners = {row.uid: row.hotkey for row in record.inputs.neurons} if record.inputs else {}
    return {owners.get(uid, f"uid {uid}"): weight for uid, weight in zip(record.uids, record.weights_u16, strict=True)}


def _sum_without(weights: Mapping[str, int], racing: set[str]) -> int:
    return sum(weight for hotkey, weight in weights.items() if hotkey not in racing)
