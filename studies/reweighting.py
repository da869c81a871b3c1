"""`python -m studies.reweighting EXPORT`: what a weight on the agentic share does to a field whose miners copy winners.

Pure and seeded. Agents are those of an export and run nothing: a race draws problems that all of them ran, and
scores what was recorded there by the settlement's own functions (`arena.race.scores`), lambda included. What
is simulated is the miners alone: each hands in one of the agents; after a race each but the winner takes over the
winner's agent with one chance, since its source is public then, and tries an agent at random with another. An agent
that several hand in is ranked by who came first, so a copy never beats what it copies.

It says which way a lambda pushes such a field, and says nothing of agents that nobody has written yet.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, NamedTuple

import msgspec
import typer

from arena.chain.keys import verify
from arena.export.agents import stated_supplement
from arena.race.scores import AgentScore, ProblemScore, rank, share_e4
from arena.records.model import Candidate, Subject
from judge.rubric import coefficient_e4
from training.corpus.exports import export_shards, open_export
from training.corpus.model import Quarantined

Scores = Mapping[tuple[str, str], ProblemScore]  # what an agent's recorded episode on a problem earned


class FieldRules(msgspec.Struct, frozen=True, kw_only=True):
    """The field and how it learns. Chances are ten-thousandths, of each miner after each race."""

    miners: int = 16
    problems: int = 30
    races: int = 40
    seeds: int = 20
    copy_e4: int = 3_000
    try_e4: int = 500


class FieldCourse(msgspec.Struct, frozen=True, kw_only=True):
    """What became of the field under one lambda, over all seeds. Shares are ten-thousandths."""

    agentic_e4: tuple[int, ...]  # of the field's episodes, by race, the mean over seeds
    success_e4: int  # of the field's episodes in the last race
    winners: dict[str, int]  # agent -> races won, most first


def course_of(scores: Scores, lambda_e4: int, rules: FieldRules) -> FieldCourse:
    """The course under a lambda; each has the same draws of problems, which all agents ran, and of first agents."""
    ran: defaultdict[str, set[str]] = defaultdict(set)
    for agent, problem in scores:
        ran[agent].add(problem)
    problems = sorted(set.intersection(*ran.values()))
    runs = [_run(scores, problems, lambda_e4, rules, f"0 {number}") for number in range(rules.seeds)]
    shares = ([race.agentic_e4 for race in races] for races in zip(*runs, strict=True))
    return FieldCourse(
        agentic_e4=tuple(sum(each) // len(runs) for each in shares),
        success_e4=sum(run[-1].success_e4 for run in runs) // len(runs),
        winners=dict(Counter(race.winner for run in runs for race in run).most_common()),
    )


def by_outcome(scores: Scores) -> Scores:
    """The same episodes scored by their success alone."""
    return {key: msgspec.structs.replace(one, score_e4=10_000 * one.is_success) for key, one in scores.items()}


class _RaceEnd(NamedTuple):
    winner: str
    agentic_e4: int
    success_e4: int


def _run(scores: Scores, problems: Sequence[str], lambda_e4: int, rules: FieldRules, seed: str) -> list[_RaceEnd]:
    """One field from its first race to its last."""
    drawing, learning = random.Random(f"draw {seed}"), random.Random(f"learn {seed}")
    agents = sorted({agent for agent, _ in scores})
    held = [drawing.choice(agents) for _ in range(rules.miners)]
    since = [0] * rules.miners  # the race before which a miner handed in what it holds
    races = []
    for number in range(1, rules.races + 1):
        drawn = drawing.sample(problems, min(rules.problems, len(problems)))
        field = []
        for miner, agent in enumerate(held):  # who holds an agent longer committed to it earlier
            subject = Subject(
                agent_version_id=f"{miner:04}", miner_hotkey="", agent_sha256="", commitment_block=since[miner]
            )
            candidate = Candidate(subject=subject, qualifying_score_e4=0)
            field.append(AgentScore(candidate=candidate, problems=tuple(scores[agent, one] for one in drawn)))
        winner = int(rank(field, lambda_e4)[0].candidate.subject.agent_version_id)
        races.append(
            _RaceEnd(
                held[winner],
                sum(share_e4(agent, "is_agentic") for agent in field) // len(field),
                sum(share_e4(agent, "is_success") for agent in field) // len(field),
            )
        )
        for miner in range(rules.miners):
            lot = learning.randrange(10_000)
            other = learning.choice(agents)
            if miner == winner or lot >= rules.copy_e4 + rules.try_e4:
                continue
            taken = held[winner] if lot < rules.copy_e4 else other
            if taken != held[miner]:
                held[miner], since[miner] = taken, number
    return races


def course(
    export: Annotated[Path, typer.Argument(help="Export whose episodes are raced.", exists=True, file_okay=False)],
    without: Annotated[str, typer.Option("--without", help="Leave this agent out: its id's start.")] = "",
) -> None:
    """Race the episodes of an export under several weights, with the judge's coefficient and by success alone.

    Raises ArenaError for an export that does not verify.
    """
    verified, scores = open_export(export, verify), dict[tuple[str, str], ProblemScore]()
    for row in (row for shard in export_shards(verified) for row in shard()):
        if isinstance(row, Quarantined) or row.facts.agent is None or row.facts.is_success is None:
            continue  # unread, or unscored: it counts for nobody
        if without and row.facts.agent.startswith(without):
            continue
        facts, problem_id = row.facts, row.facts.problem_id or ""
        worth_e4 = coefficient_e4(0) if facts.coefficient_e4 is None else facts.coefficient_e4
        scores[row.facts.agent, problem_id] = ProblemScore(
            problem_id=problem_id,
            state="scored",
            score_e4=worth_e4 if facts.is_success else 0,
            is_success=bool(facts.is_success),
            is_agentic=bool(facts.is_agentic),
        )
    names = stated_supplement(Path(verified.folder), verified.manifest).names
    for name, scored in (("judged", scores), ("outcome", by_outcome(scores))):
        for lambda_e4 in (0, 1_000, 2_000, 3_000, 5_000, 6_000, 7_500, 10_000):
            found = course_of(scored, lambda_e4, FieldRules())
            races = sum(found.winners.values())
            won = (f"{names.get(who, who[:8])} {count / races:.0%}" for who, count in found.winners.items())
            typer.echo(
                f"{name:<8} lambda {lambda_e4:>5}: agentic {found.agentic_e4[0] / 100:.0f} to "
                f"{found.agentic_e4[-1] / 100:.0f} %, solved {found.success_e4 / 100:.0f} %, won by {', '.join(won)}"
            )


if __name__ == "__main__":
    typer.run(course)
