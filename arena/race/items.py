"""Work items of a stage, with ids derived from their content: enqueuing twice adds nothing.

The id covers stage, race, agent and problem and nothing that may change in a retry.
"""

from __future__ import annotations

from collections.abc import Iterable

from arena.policy import QualifyingRules, RaceRules
from arena.race.model import Batch, Candidate
from arena.records.model import Context, Subject
from arena.store.port import WorkItem
from problems.canonical import content_hash

_ITEM_DOMAIN = "agent-arena/work-item/1"


def item_id(context: Context, agent_version_id: str) -> str:
    """The id of a work item: 32 hex characters over stage, race, agent and problem."""
    return content_hash([_ITEM_DOMAIN, context.stage, context.race_id, agent_version_id, context.problem_id])[:32]


def qualifying_items(
    subject: Subject, problem_ids: Iterable[str], rules: QualifyingRules, race_id: str = ""
) -> tuple[WorkItem, ...]:
    """One item per problem of the active suite, in suite order, for `validators_asked` validators.

    `race_id` names the race the agent qualifies for; empty when qualifying is not tied to a race.
    """
    return tuple(
        _item(
            subject,
            Context(stage="qualifying", race_id=race_id, problem_id=problem_id, suite=rules.suite),
            rules.validators_asked,
        )
        for problem_id in problem_ids
    )


def race_items(
    race_id: str, field: Iterable[Candidate], drawn: Iterable[str], batch: Batch, rules: RaceRules, validators: int
) -> tuple[WorkItem, ...]:
    """One item per (problem, agent), problem by problem, so that an unfinished race lacks problems and not agents.

    Each asks for k validators, or for as many as hold a permit (`validators`) when these are fewer. Raises KeyError for
    a drawn problem that is not in the batch.
    """
    sealed = {problem.problem_id: problem for problem in batch.problems}
    agents = sorted((candidate.subject for candidate in field), key=lambda subject: subject.agent_version_id)
    copies = max(1, min(rules.validators_per_problem, validators))
    return tuple(
        _item(
            subject,
            Context(
                stage="race",
                race_id=race_id,
                problem_id=problem_id,
                batch_sha256=batch.batch_sha256,
                partition_sha256=batch.partition_sha256,
                cluster_commitment=sealed[problem_id].cluster_commitment,
            ),
            copies,
        )
        for problem_id in drawn
        for subject in agents
    )


def _item(subject: Subject, context: Context, copies: int) -> WorkItem:
    return WorkItem(item_id=item_id(context, subject.agent_version_id), subject=subject, context=context, copies=copies)
