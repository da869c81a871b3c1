"""What decided a race, the first against the second, and how episodes differ: sentences, intervals and bars. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from arena.api.rows import PairResult
from arena.policy import PromotionRules, RaceRules
from arena.race.model import AgentScore, TrajectoryResult
from arena.race.scores import (
    Interval,
    bootstrap_interval,
    difference_interval,
    problem_score,
    race_score_e4,
    resample,
    results_needed,
)
from arena.race.settle import policy_of
from arena.race.weights import margin_e4
from arena.records.model import Candidate, SettlementRecord, Standing, Subject
from arena.web.values import CountBar, Leader, PairedGap, Reason, ShapePanel
from foundation.errors import ArenaError
from harness.trace import EvaluationBody, ToolCall
from judge.neutral import neutral_name

Results = Mapping[str, Sequence[PairResult]]  # by problem
DECIDING = 6  # problems named on each side
_Scored = Mapping[str, Mapping[str, PairResult]]  # by problem and agent


def reasons(
    settlement: SettlementRecord,
    leaders: Sequence[Leader],
    results: Mapping[str, Sequence[PairResult]],
    now_ms: int,
    *,
    is_open: bool,
) -> Iterator[Reason]:
    """Why the first is before the second, why the top is who it is, and what it takes to take the top today.

    `results`: of the race, as far as they are public; `is_open`: their traces are public, too.
    """
    race_id = settlement.race_id
    counted = {name: _first(given) for name, given in results.items() if name not in settlement.void}
    if len(leaders) > 1:
        first, second = leaders[0], leaders[1]
        gap_e4 = first.standing.race_score_e4 - second.standing.race_score_e4
        yield Reason(
            text=f"{first.agent.name} scored {_share(gap_e4)} more than {second.agent.name}:"
            f" {_interval(first.standing)} against {_interval(second.standing)}.",
            links=((f"/v1/races/{race_id}/leaderboard", "standings"),),
        )
        yield from _duel(race_id, first, second, counted, is_open=is_open)
        yield from _axes(race_id, (first, second), counted)
    yield from _top(settlement, leaders)
    yield from _margin(settlement, now_ms)


def _first(given: Sequence[PairResult]) -> dict[str, PairResult]:
    """The first result of each agent."""
    found: dict[str, PairResult] = {}
    for one in given:
        found.setdefault(one.agent_version_id, one)
    return found


def _score_e4(one: PairResult) -> int:
    return (one.coefficient_e4 or 0) if one.is_success else 0


def _duel(race_id: str, first: Leader, second: Leader, counted: _Scored, *, is_open: bool) -> Iterator[Reason]:
    mine, theirs = first.agent.agent_version_id, second.agent.agent_version_id
    both = {name: pair for name, pair in sorted(counted.items()) if mine in pair and theirs in pair}
    for better, worse, who in ((mine, theirs, first), (theirs, mine, second)):
        won = [name for name, pair in both.items() if _score_e4(pair[better]) > _score_e4(pair[worse])]
        if not won:
            continue
        links = []
        for name in won[:DECIDING]:
            left, right = both[name][better], both[name][worse]
            beside = f"/traces/{left.validator}/{left.seq}?with={right.validator}/{right.seq}"
            links.append((beside if is_open else f"/races/{race_id}/problems/{name}", name))
        more = len(won) - len(links)
        yield Reason(
            text=f"{who.agent.name} did better on {len(won)} of the {len(both)} problems of pool train:"
            + (f" these, and {more} more" if more else ""),
            links=tuple(links),
        )


def _axes(race_id: str, leaders: Sequence[Leader], counted: _Scored) -> Iterator[Reason]:
    """Which axes each failed on."""
    said = []
    for one in leaders:
        name = one.agent.agent_version_id
        missed = Counter(
            axis
            for pair in counted.values()
            if name in pair and not pair[name].is_success
            for axis in pair[name].missed
        )
        told = ", ".join(
            f"{axis} {count} times" if count > 1 else f"{axis} once" for axis, count in missed.most_common()
        )
        if told:
            said.append(f"{one.agent.name} missed {told}")
    if said:
        yield Reason(text="; ".join(said) + ".", links=((f"/v1/races/{race_id}/problems", "results"),))


def _top(settlement: SettlementRecord, leaders: Sequence[Leader]) -> Iterator[Reason]:
    top = next((one for one in leaders if one.is_top), None)
    inputs = settlement.inputs
    before = inputs.incumbent.agent_version_id if inputs and inputs.incumbent else ""
    old = next((one for one in leaders if one.agent.agent_version_id == before), None)
    link = ((f"/v1/races/{settlement.race_id}/settlement", "settlement"),)
    if top is not None and settlement.is_promotion:
        text = f"{top.agent.name} came to the top in this race"
        if old is not None:
            now, then = top.standing, old.standing
            text += f", before {old.agent.name}: {_share(now.crown_score_e4)} against {_share(then.crown_score_e4)}"
            text += f", {now.wins} problems better, {now.losses} worse"
        yield Reason(text=f"{text}.", links=link)
    elif top is not None and not leaders[0].is_top:
        yield Reason(
            text=f"{top.agent.name} stays at the top: {leaders[0].agent.name} ranked first, but not by the margin.",
            links=link,
        )
    elif top is not None:
        yield Reason(text=f"{top.agent.name} stays at the top.", links=link)


def _margin(settlement: SettlementRecord, now_ms: int) -> Iterator[Reason]:
    """What the rule asks of a challenger: at the race, and today."""
    inputs = settlement.inputs
    try:
        rules: PromotionRules = policy_of(settlement).promotion
    except ArenaError:
        return
    if inputs is None or rules.kind == "sequential":
        return
    link = ((f"/v1/races/{settlement.race_id}", "the rule"),)
    if inputs.incumbent is not None:
        then = margin_e4(rules, inputs.closes_ms - inputs.incumbent.promoted_ms)
        yield Reason(
            text=f"In this race a challenger had to score {then / 100:.2f} % more than the top agent."
            if then
            else "In this race any score above the top agent's was enough: the margin had fallen to nothing.",
            links=link,
        )
    since_ms = (
        inputs.closes_ms if settlement.is_promotion else inputs.incumbent.promoted_ms if inputs.incumbent else None
    )
    if since_ms is not None:
        today = margin_e4(rules, max(0, now_ms - since_ms))
        days = rules.decay_ms / 86_400_000
        asked = f"has to score {today / 100:.2f} % more than the top agent" if today else "needs any higher score"
        yield Reason(
            text=f"Today a challenger {asked}; after a promotion the margin falls from"
            f" {rules.margin_e4 / 100:.2f} % to nothing within {days:g} days.",
            links=link,
        )


def _interval(standing: Standing) -> str:
    return f"{_share(standing.race_score_e4)} [{_share(standing.low_e4)}, {_share(standing.high_e4)}]"


def _share(value_e4: int) -> str:
    return f"{value_e4 / 10_000:.4f}"


def paired_gap(settlement: SettlementRecord, results: Results) -> PairedGap | None:
    """The two best of a settled race. `results`: every one on its problems, whatever their pools."""
    ranked = sorted(settlement.standings, key=lambda one: one.rank)[:2]
    counted = [name for name in settlement.drawn if name not in settlement.void]
    if len(ranked) < 2 or not counted or settlement.inputs is None:
        return None
    try:
        rules, picks = policy_of(settlement).race, resample(settlement.seed, len(counted))
    except (ArenaError, ValueError):  # a policy, or a seed, of another release
        return None
    required = 1 if rules.control_sha256 else results_needed(rules, len(settlement.inputs.validators))
    first, second = (_score(one, counted, results, rules, required) for one in ranked)
    for standing, score in zip(ranked, (first, second), strict=True):
        found = race_score_e4(score, rules.lambda_e4), bootstrap_interval(score, rules.lambda_e4, picks)
        if found != (standing.race_score_e4, Interval(standing.low_e4, standing.high_e4)):
            return None
    interval = difference_interval(first, second, rules.lambda_e4, picks)
    return PairedGap(
        gap_e4=ranked[0].race_score_e4 - ranked[1].race_score_e4,
        low_e4=interval.low_e4,
        high_e4=interval.high_e4,
        problems=len(counted),
    )


def _score(standing: Standing, counted: Sequence[str], results: Results, rules: RaceRules, required: int) -> AgentScore:
    """The agent's problems as the settlement scores them, one result of each validator."""
    name = standing.agent_version_id
    subject = Subject(agent_version_id=name, miner_hotkey=standing.miner_hotkey, agent_sha256="")
    problems = []
    for problem_id in counted:
        given: dict[str, TrajectoryResult] = {}
        for one in results.get(problem_id, ()):
            if one.agent_version_id != name or one.is_success is None or one.validator in given:
                continue
            if one.is_success and one.coefficient_e4 is None:
                continue  # its verdict is owed
            given[one.validator] = TrajectoryResult(
                validator=one.validator,
                agent_version_id=name,
                problem_id=problem_id,
                is_success=one.is_success,
                is_agentic=one.is_agentic,
                score_e4=(one.coefficient_e4 or 0) if one.is_success else 0,
                quality_e4=None,
            )
        problems.append(problem_score(problem_id, tuple(given.values()), required))
    return AgentScore(candidate=Candidate(subject=subject, qualifying_score_e4=0), problems=tuple(problems))


SHAPES = 8
_Shape = tuple[str, ...]  # names of the tools called, in order


def bars(counts: Mapping[str, int], order: Sequence[str] = ()) -> tuple[CountBar, ...]:
    """Counts as bars: in `order`, else the greatest first."""
    names = [name for name in order if name in counts] or sorted(counts, key=lambda name: (-counts[name], name))
    most = max(counts.values(), default=1) or 1
    return tuple(CountBar(label=name, count=counts[name], percent=100 * counts[name] / most) for name in names)


def bins(values: Iterable[int], edges: Sequence[int]) -> tuple[CountBar, ...]:
    """How many values lie up to each edge, above the one before, and beyond the last."""
    lows = [0, *(edge + 1 for edge in edges)]
    labels = [f"{low:,} to {edge:,}" for low, edge in zip(lows, edges, strict=False)] + [f"over {edges[-1]:,}"]
    counts = dict.fromkeys(labels, 0)
    for value in values:
        place = next((number for number, edge in enumerate(edges) if value <= edge), len(edges))
        counts[labels[place]] += 1
    return bars(counts, labels)


def shape_of(body: EvaluationBody) -> _Shape:
    """The tools that an episode called, in order."""
    return tuple(neutral_name(event.name)[:40] for event in body.events if isinstance(event, ToolCall))


def shape_panel(shapes: Sequence[_Shape]) -> ShapePanel:
    """Which tools episodes call, and how many ways of calling them there are: the most frequent ones, and the tail."""
    calling = Counter(name for shape in shapes for name in set(shape))
    ways = Counter(shapes)
    shown = ways.most_common(SHAPES)
    counts = {_told(shape): count for shape, count in shown}
    rest = len(ways) - len(shown)
    if rest:
        counts[f"{rest} other ways"] = len(shapes) - sum(count for _, count in shown)
    return ShapePanel(
        episodes=len(shapes),
        ways=len(ways),
        once=sum(count == 1 for count in ways.values()),
        tools=bars(dict(calling.most_common(SHAPES))),
        shapes=bars(counts, list(counts)),
    )


def _told(shape: _Shape) -> str:
    """A shape in words: repeated calls are counted."""
    parts: list[tuple[str, int]] = []
    for name in shape:
        if parts and parts[-1][0] == name:
            parts[-1] = name, parts[-1][1] + 1
        else:
            parts.append((name, 1))
    said = ", ".join(name if count == 1 else f"{count} x {name}" for name, count in parts)
    return (said if len(said) <= 90 else said[:89] + "…") or "no call"
