"""Work items of a stage, with ids derived from their content: enqueuing twice adds nothing.

The id covers stage, race, agent and problem (in qualifying the policy too, under which alone its results count) and
nothing that may change in a retry. Queues are per validator: these are the items of one of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec
from msgspec import UNSET

from arena.policy import Policy, RaceRules
from arena.race.consensus.assignment import Assignment, assign, is_work_due
from arena.race.model import Batch, Candidate
from arena.race.settlement.control import control_subject, witness_subject
from arena.records.model import Context, Subject
from arena.store.port import WorkItem
from foundation.canonical import content_hash

_ITEM_DOMAIN = "agent-arena/work-item/1"


class RaceWork(msgspec.Struct, frozen=True):
    """The (agent, problem) pairs of a drawn race. `validators` hold a permit at the closing block."""

    race_id: str
    field: Sequence[Candidate]
    drawn: Sequence[str]
    batch: Batch
    rules: RaceRules
    seed: str
    validators: Sequence[str]


def item_id(context: Context, agent_version_id: str, policy_sha256: str = "") -> str:
    """The id of a work item: 32 hex characters over stage, race, agent, problem and, where given, the policy."""
    parts = [context.stage, context.race_id, agent_version_id, context.problem_id]
    return content_hash([_ITEM_DOMAIN, *parts, *([policy_sha256] if policy_sha256 else [])])[:32]


def qualifying_items(
    subject: Subject, problem_ids: Iterable[str], policy: Policy, *, variant_seed: str = ""
) -> tuple[WorkItem, ...]:
    """One item per problem of the active suite, in suite order.

    Qualifying is tied to no race, so its race id is empty. `variant_seed` is the agent's
    (`arena.race.settlement.draw.qualifying_seed`) where the policy asks for variants.
    """
    suite, rules = policy.qualifying.suite, policy.policy_sha256
    contexts = (
        Context(stage="qualifying", race_id="", problem_id=one, suite=suite, variant_seed=variant_seed or UNSET)
        for one in problem_ids
    )
    return tuple(
        WorkItem(item_id=item_id(context, subject.agent_version_id, rules), subject=subject, context=context)
        for context in contexts
    )


def race_items(work: RaceWork, validator: str) -> tuple[WorkItem, ...]:
    """One item per (problem, agent) assigned to `validator`, problem by problem, so that an unfinished race lacks
    problems and not agents. Ahead of them the control agent on every drawn problem, so that no field, however slow,
    stands between it and its problems.

    Each pair goes to k validators, or to all where these are fewer. Raises KeyError for a drawn problem that is not in
    the batch.
    """
    control = control_subject(work.rules)
    contexts = _contexts(work) if control is not None and validator in work.validators else ()
    ahead = [_item(control, context) for context in contexts if control is not None]
    return (*ahead, *(item for item, assignment in _pairs(work) if validator in assignment.assigned))


def witness_item(item: WorkItem, rules: RaceRules) -> WorkItem | None:
    """What a validator runs once more beside a race item that met a fault of its own; None where there is no control
    agent, for an item of another stage and for the control agent itself."""
    if item.context.stage != "race" or item.subject.is_control:
        return None
    witness = witness_subject(rules, item.subject.agent_version_id)
    return None if witness is None else _item(witness, item.context)


def stand_in_items(
    work: RaceWork, validator: str, done: Mapping[str, frozenset[tuple[str, str]]], waited_ms: int
) -> tuple[WorkItem, ...]:
    """The items of pairs for which `validator` stands in `waited_ms` after the draw.

    The n-th stand-in of a pair takes it once `n x stand_in_ms` have passed and fewer than k of those before it say that
    they did it: as many as were asked, since one that says so may show nothing. `done` holds the (agent, problem) pairs
    that each of the others says it did.
    """
    if waited_ms < work.rules.stand_in_ms:
        return ()
    items = []
    for item, assignment in _pairs(work):
        pair = (item.subject.agent_version_id, item.context.problem_id)
        if validator in assignment.stand_ins and is_work_due(
            assignment.order,
            validator,
            asked=len(assignment.assigned),
            needed=work.rules.validators_per_problem,
            done={other: pair in pairs for other, pairs in done.items()},
            waited_ms=waited_ms,
            step_ms=work.rules.stand_in_ms,
        ):
            items.append(item)
    return tuple(items)


def _pairs(work: RaceWork) -> Iterator[tuple[WorkItem, Assignment]]:
    """Every (problem, agent) of a race as a work item, problem by problem, with whose work it is."""
    agents = sorted((candidate.subject for candidate in work.field), key=lambda subject: subject.agent_version_id)
    copies = work.rules.validators_per_problem
    for context in _contexts(work):
        for subject in agents:
            whose = assign(work.seed, subject.agent_version_id, context.problem_id, work.validators, copies)
            yield _item(subject, context), whose


def _contexts(work: RaceWork) -> Iterator[Context]:
    sealed = {problem.problem_id: problem for problem in work.batch.problems}
    for problem_id in work.drawn:
        yield Context(
            stage="race",
            race_id=work.race_id,
            problem_id=problem_id,
            batch_sha256=work.batch.batch_sha256,
            partition_sha256=work.batch.partition_sha256,
            cluster_commitment=sealed[problem_id].cluster_commitment,
        )


def _item(subject: Subject, context: Context) -> WorkItem:
    return WorkItem(item_id=item_id(context, subject.agent_version_id), subject=subject, context=context)
