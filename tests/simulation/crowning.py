"""How often noise crowned a worse agent: every race settled again under each shipped policy, one after the other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
from msgspec.structs import replace

from arena.policies import POLICIES
from arena.policy import Policy
from arena.race.settle import inputs_again, policy_of, settle
from arena.records.model import SettlementRecord, Top
from neurons.race.log import as_raced
from tests.simulation.audit import RaceEnd
from tests.simulation.world import Miner


class Crowning(msgspec.Struct, frozen=True, kw_only=True):
    """One policy over all races. Worse: of less true worth than the agent it took the place of."""

    policy: str
    promotions: int
    worse: int
    races: int
    short_of_best: float  # true worth of the best in the field less that of the one at the top, mean over races


def crownings(ends: Sequence[RaceEnd], miners: Mapping[str, Miner]) -> list[Crowning]:
    """Every shipped policy over the same records. Each goes on from its own top agent and history."""
    settled = [end for end in ends if end.settlement is not None and end.settlement.state == "settled"]
    return [_crown(policy, settled, miners) for policy in POLICIES.values()] if settled else []


def _crown(policy: Policy, ends: Sequence[RaceEnd], miners: Mapping[str, Miner]) -> Crowning:
    top: Top | None = None
    history: list[SettlementRecord] = []
    past: list[SettlementRecord] = []
    eliminated: frozenset[str] = frozenset()
    promotions = worse = 0
    short: list[float] = []
    for end in ends:
        given, records = end.settlement, end.records
        assert given is not None and given.inputs is not None
        if records is None:
            continue
        again = inputs_again(
            given,
            records.evaluations,
            records.verdicts,
            past,
            policy=as_raced(policy, policy_of(given)),
            attempts=records.attempts,
        )
        field = tuple(each for each in again.field if each.subject.agent_version_id not in eliminated)
        made = settle(
            replace(again, field=field, incumbent=top, history=tuple(history), eliminated=tuple(sorted(eliminated)))
        )
        past.append(given)
        history.append(made)
        eliminated |= {row.agent_version_id for row in made.standings if row.is_eliminated}
        crowned = made.top_agent_version_id
        if made.is_promotion:
            is_there = top is not None and any(row.agent_version_id == top.agent_version_id for row in made.standings)
            promotions += is_there
            worse += is_there and miners[crowned].worth < miners[top.agent_version_id].worth  # type: ignore[union-attr]
            hotkey = miners[crowned].subject.miner_hotkey
            top = Top(agent_version_id=crowned, miner_hotkey=hotkey, promoted_ms=given.inputs.closes_ms)
        if crowned and made.standings:  # with few miners a policy may have eliminated them all
            best = max(miners[row.agent_version_id].worth for row in made.standings)
            short.append(best - miners[crowned].worth)
    return Crowning(
        policy=policy.name,
        promotions=promotions,
        worse=worse,
        races=len(history),
        short_of_best=sum(short) / len(short) if short else 0.0,
    )
