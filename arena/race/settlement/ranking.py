"""Ranking: a total order, so that no two validators can list a field differently.

Order: race score (compared exactly, not as rounded), then the earlier commitment block, then the smaller agent version
id. An earlier commitment wins a tie because a copy can only be later.
"""

from __future__ import annotations

from collections.abc import Iterable

from arena.race.model import AgentScore
from arena.race.settlement.scores import exact_score


def rank(agents: Iterable[AgentScore], lambda_e4: int) -> tuple[AgentScore, ...]:
    """The field, best first. All agents must have been scored on the same problems."""
    return tuple(sorted(agents, key=lambda agent: _key(agent, lambda_e4)))


def _key(agent: AgentScore, lambda_e4: int) -> tuple[int, int, str]:
    subject = agent.candidate.subject
    return (-exact_score(agent, lambda_e4), subject.commitment_block, subject.agent_version_id)
