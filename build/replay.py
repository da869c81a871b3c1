"""Judging recorded traces again under another rubric or panel, and what each agent of a race would have earned by it.

Rows of a replay stand in a file of their own, beside the log and never in it, so no roll can count them. A row
names the record, the body and the whole rubric by hash; what was replayed once is not replayed again. Pure.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

import msgspec

from arena.records.model import EvaluationRecord
from foundation.canonical import content_hash
from judge.budget import Spending
from judge.rubric import Rubric
from judge.verdict import UnscoredVerdict, Verdict
from problems.outcome import OutcomeScore

REPLAY_VERSION = 1


class ReplayRow(msgspec.Struct, frozen=True, kw_only=True, tag="replay", tag_field="kind"):
    """A verdict given again. `counted` is the newest one in the log; `is_success` None: the outcome is not scored."""

    version: int = REPLAY_VERSION
    validator: str
    seq: int
    body_sha256: str
    race_id: str
    agent_version_id: str
    problem_id: str
    is_success: bool | None
    rubric_sha256: str
    counted: Verdict | UnscoredVerdict | None
    replayed: Verdict | UnscoredVerdict
    spent: Spending = Spending()


class AgentReplay(msgspec.Struct, frozen=True, kw_only=True):
    """What an agent's replayed traces of one race earn on average, before and after; ten-thousandths. Traces that lack
    one of the two verdicts are left out of both."""

    race_id: str
    agent_version_id: str
    traces: int
    score_e4: int
    replayed_e4: int


class ReplayComparison(msgspec.Struct, frozen=True, kw_only=True):
    """Replayed verdicts beside the counted ones. `tops` is by race: the best agent before and after."""

    rows: int
    owed: int
    unlike: int  # another quality than the counted one
    mean_change_e4: int | None
    agents: tuple[AgentReplay, ...]
    tops: dict[str, tuple[str, str]]
    spent: Spending


def rubric_sha256(rubric: Rubric) -> str:
    """What tells replays under different rubrics apart."""
    return content_hash(rubric)


def replay_row(
    validator: str,
    seq: int,
    record: EvaluationRecord,
    rubric: Rubric,
    counted: Verdict | UnscoredVerdict | None,
    replayed: Verdict | UnscoredVerdict,
    spent: Spending,
) -> ReplayRow:
    """The row of one record's replay."""
    return ReplayRow(
        validator=validator,
        seq=seq,
        body_sha256=record.body_sha256,
        race_id=record.context.race_id,
        agent_version_id=record.subject.agent_version_id,
        problem_id=record.context.problem_id,
        is_success=record.outcome.is_success if isinstance(record.outcome, OutcomeScore) else None,
        rubric_sha256=rubric_sha256(rubric),
        counted=counted,
        replayed=replayed,
        spent=spent,
    )


def settled_keys(rows: Iterable[ReplayRow]) -> set[tuple[str, str]]:
    """(body, rubric) of what was replayed and is not owed."""
    return {(row.body_sha256, row.rubric_sha256) for row in rows if isinstance(row.replayed, Verdict)}


def compare_replay(rows: Sequence[ReplayRow]) -> ReplayComparison:
    """The comparison over rows of one rubric; of several on one record the last counts."""
    last = list({(row.validator, row.seq): row for row in rows}.values())
    spent = Spending()
    changes: list[int] = []
    scores: defaultdict[tuple[str, str], list[tuple[int, int]]] = defaultdict(list)
    for row in rows:
        spent = spent.plus(row.spent)
    for row in last:
        before, after = row.counted, row.replayed
        if isinstance(before, Verdict) and isinstance(after, Verdict):
            changes.append(after.quality_e4 - before.quality_e4)
            if row.is_success is not None:
                earned = (before.coefficient_e4, after.coefficient_e4) if row.is_success else (0, 0)
                scores[row.race_id, row.agent_version_id].append(earned)
    agents = tuple(
        AgentReplay(
            race_id=race_id,
            agent_version_id=agent,
            traces=len(pairs),
            score_e4=sum(before for before, _ in pairs) // len(pairs),
            replayed_e4=sum(after for _, after in pairs) // len(pairs),
        )
        for (race_id, agent), pairs in sorted(scores.items())
    )
    races = sorted({one.race_id for one in agents})
    ranked = {race: [one for one in agents if one.race_id == race] for race in races}
    return ReplayComparison(
        rows=len(last),
        owed=sum(isinstance(row.replayed, UnscoredVerdict) for row in last),
        unlike=sum(map(bool, changes)),
        mean_change_e4=sum(changes) // len(changes) if changes else None,
        agents=agents,
        tops={
            race: (
                max(found, key=lambda one: one.score_e4).agent_version_id,
                max(found, key=lambda one: one.replayed_e4).agent_version_id,
            )
            for race, found in ranked.items()
        },
        spent=spent,
    )
