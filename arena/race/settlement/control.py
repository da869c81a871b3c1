"""The control agent: a shipped agent that every validator runs beside the field, so that its own faults can be told
from those that an agent provokes.

Pure. The policy pins its source by hash. It is nobody's (`Subject.is_control`: no hotkey, no commitment), so
it can be no candidate, stands in no standings and is paid nothing. It runs once on every drawn problem, ahead of the
field, which says whether a problem is void; and as a *witness* on the problem of each (agent, problem) that met a fault
of the validator's own, before that pair is tried again. The rules stand in `arena/race/AGREEMENT.md`, "Faults".
"""

from __future__ import annotations

from arena.policy import RaceRules
from arena.records.model import Subject
from foundation.canonical import content_hash

_CONTROL_DOMAIN = "agent-arena/control/1"
_WITNESS_DOMAIN = "agent-arena/witness/1"


def control_subject(rules: RaceRules) -> Subject | None:
    """The control agent as records name it; None where the policy names none."""
    return _subject(_CONTROL_DOMAIN, rules) if rules.control_sha256 else None


def witness_subject(rules: RaceRules, agent_version_id: str) -> Subject | None:
    """The control agent as a witness of an agent's fault: the same source under an id of its own for each agent."""
    return _subject(_WITNESS_DOMAIN, rules, agent_version_id) if rules.control_sha256 else None


def _subject(domain: str, rules: RaceRules, *parts: str) -> Subject:
    return Subject(
        agent_version_id=content_hash([domain, rules.control_sha256, *parts]),
        miner_hotkey="",
        agent_sha256=rules.control_sha256,
    )
