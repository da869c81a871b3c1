"""From the public picture of a store to what each page shows: pure, and bounded so that a page stays under 200 kB.

Pages show the rows of the reads (`arena.api.rows`), which ask `arena.visibility.rule`; nothing here looks at a race's
secrets by itself.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import combinations, groupby
from math import log10
from operator import attrgetter
from typing import Any, NamedTuple

import msgspec

from arena.api.board import Board, RaceView
from arena.api.rows import (
    AgentRace,
    PairResult,
    ProblemRow,
    RaceRow,
    agent_races,
    called,
    is_seen,
    pools_of,
    race_detail,
)
from arena.bank.batch import Explanation
from arena.race.schedule import timeline
from arena.race.scores import results_needed
from arena.race.settle import evidence_needed, readable_policy
from arena.records.model import SettlementRecord, Standing
from arena.view.reading import JudgeView, Piece, TraceStep, TraceView
from judge.render import neutral_text
from problems.model import BUCKETS, Pool

LEADERS, DECIDING = 40, 6  # of a leaderboard; of the problems on which one agent beat another
SOURCE_CHARS, LINE_CHARS = 60_000, 300
TRACE_CHARS, PIECE_CHARS = 60_000, 1_500
QUERY_CHARS, SAID_CHARS = 4_000, 8_000  # of a question, and of all that judges said
CONSTRAINTS, CONSTRAINT_CHARS = 100, 300  # of what a problem asked, and of each value of it
Results = Mapping[str, Sequence[PairResult]]  # by problem
Reason = tuple[str, Sequence[tuple[str, str]]]  # a sentence of why, and what it follows from: (address, name)
_STAGES = ("open", "closed", "running", "settling", "settled", "released", "published")


class Cell(NamedTuple):
    """One agent on one problem: solved, partial, failed, unscored or none, its tooltip, its coefficient."""

    kind: str
    says: str
    href: str = ""
    coefficient_e4: int | None = None


class MatrixRow(NamedTuple):
    """One problem with every agent's cell."""

    problem_id: str
    pool: str
    is_void: bool
    cells: Sequence[Cell]


# -- leaderboards


def read_standings(board: Board, race: RaceView, results: Results) -> dict[str, Any]:
    """The leaderboard of a settled race that everybody may see. `results`: as far as they are public, and what
    follows from them is of those."""
    settlement = race.settlement
    assert settlement is not None  # `latest_settled`, or a page that looked
    ranked = sorted(agent_races(settlement), key=lambda row: row.standing.rank)
    standings = [row.standing for row in ranked[:LEADERS]]
    of_agent: dict[str, list[PairResult]] = defaultdict(list)
    for problem_id, pairs in results.items():
        for pair in pairs if problem_id not in settlement.void else ():
            of_agent[pair.agent_version_id].append(pair)
    leaders, paid, alike = [], paid_by_hotkey(settlement), Counter(row.standing.race_score_e4 for row in ranked)
    reigned = settlement.inputs.incumbent if settlement.inputs else None
    for stood in ranked[:LEADERS]:
        one = stood.standing
        given, promoted = of_agent[one.agent_version_id], board.promotions().get(one.agent_version_id, ())
        is_top = one.agent_version_id == settlement.top_agent_version_id
        leader = dict(
            standing=one,
            is_tied=alike[one.race_score_e4] > 1,
            evidence=stood.evidence,
            paid=paid.get(one.miner_hotkey, 0.0),
            since=promoted[-1].race_id if is_top and promoted else "",  # the race that brought it to the top
            buckets=buckets_of(given),
            missed=missed_of(given),
            no_place=stood.no_place.says(called(board, stood.no_place.holder)) if stood.no_place else "",
            tokens=sum(each.tokens for each in given) // len(given) if given else None,
            cost_micro_usd=sum(each.cost_micro_usd for each in given) // len(given) if given else None,
        )
        leaders.append(leader)
    return dict(
        detail=race_detail(board, race),
        top=settlement.top_agent_version_id,
        reigned=reigned.agent_version_id if reigned else "",  # whom wins and losses are against
        evidence_needed=evidence_needed(settlement),
        leaders=leaders,
        more=len(ranked) - len(standings),
        is_told=bool(results),
        why=tuple(_reasons(board, race, standings, results)),
    )


def paid_by_hotkey(settlement: SettlementRecord) -> dict[str, float]:
    """The shares of emission that a race's weights give, from 0 to 1; what burns is nobody's."""
    if settlement.inputs is None or (policy := readable_policy(settlement)) is None:
        return {}
    weights = dict(zip(settlement.uids, settlement.weights_u16, strict=True))
    whole, burning = sum(weights.values()), policy.weights.burn_uid
    paid = {one.hotkey: weights.get(one.uid, 0) for one in settlement.inputs.neurons if one.uid != burning}
    return {hotkey: weight / whole for hotkey, weight in paid.items() if weight}


def missed_of(given: Iterable[PairResult]) -> Sequence[tuple[str, int]]:
    """On how many problems that were not solved each axis was missed, most first."""
    return Counter(axis for one in given if not one.is_success for axis in one.missed).most_common()


def buckets_of(given: Iterable[PairResult]) -> Sequence[tuple[str, int, int]]:
    """Solved of scored in each bucket."""
    solved, asked = Counter[str](), Counter[str]()
    for one in given:
        if one.is_success is not None:
            asked[one.bucket] += 1
            solved[one.bucket] += one.is_success
    return [(name, solved[name], asked[name]) for name in BUCKETS if asked[name]]


def evidence_curve(races: Iterable[AgentRace]) -> dict[str, Any] | None:
    """What a miner's evidence came to after each of these races, as points (x, y, what each says) on a scale of powers,
    in percent of a picture's width and height from the upper left; None under policies that crown otherwise."""
    held = [(one.race_id, one.evidence, one.evidence_needed) for one in races if one.evidence and one.evidence_needed]
    if not held:
        return None
    *_, (_, last, needed) = held
    low = log10(min(0.1, *(value for _, value, _ in held)))
    high = log10(2 * max(needed, *(value for _, value, _ in held)))
    step = 100 / len(held)

    def height(value: float) -> float:
        return round(100 * (high - log10(value)) / (high - low), 2)

    points = [
        (round(step * (place + 0.5), 2), height(value), f"{race_id}: {value:.4g}")
        for place, (race_id, value, _) in enumerate(held)
    ]
    return dict(points=points, needed_y=height(needed), start_y=height(1), held=last, needed=needed)


def _reasons(board: Board, race: RaceView, ranked: Sequence[Standing], results: Results) -> Iterator[Reason]:
    """Why the first is before the second, why the top is who it is, and what it takes to take the top today."""
    settlement, race_id = race.settlement, race.race_id
    assert settlement is not None
    counted: dict[str, dict[str, PairResult]] = {}  # by problem and agent: the first result
    for name, given in sorted(results.items()):
        if name not in settlement.void:
            counted[name] = {one.agent_version_id: one for one in reversed(given)}
    if len(ranked) > 1:
        first, second = (called(board, one.agent_version_id) for one in ranked[:2])
        gap_e4 = ranked[0].race_score_e4 - ranked[1].race_score_e4
        shares = [
            f"{one.race_score_e4 / 10_000:.4f} [{one.low_e4 / 10_000:.4f}, {one.high_e4 / 10_000:.4f}]"
            for one in ranked[:2]
        ]
        did = f"scored {gap_e4 / 10_000:.4f} more than {second}" if gap_e4 else f"and {second} tie"
        yield f"{first} {did}: {shares[0]} against {shares[1]}.", [(f"/v1/races/{race_id}/leaderboard", "standings")]
        is_open = is_seen(race, "trace")
        yield from _duel(race_id, (ranked[0], ranked[1]), (first, second), counted, is_open=is_open)
    for one in race_detail(board, race).decision:
        yield f"{one}.", [(f"/v1/races/{race_id}/settlement", "settlement")]


def _duel(
    race_id: str,
    pair: tuple[Standing, Standing],
    names: tuple[str, str],
    counted: Mapping[str, Mapping[str, PairResult]],
    *,
    is_open: bool,
) -> Iterator[Reason]:
    """On which problems each did better than the other."""
    mine, theirs = (one.agent_version_id for one in pair)
    both = {name: (found[mine], found[theirs]) for name, found in counted.items() if mine in found and theirs in found}
    for side in (0, 1):
        won = [name for name, found in both.items() if _score_e4(found[side]) > _score_e4(found[1 - side])]
        links = []
        for name in won[:DECIDING]:
            left, right = both[name][side], both[name][1 - side]
            beside = f"/traces/{left.validator}/{left.seq}?with={right.validator}/{right.seq}"
            called = f"{left.bucket} {name[:6]}".strip()
            links.append((beside if is_open else f"/races/{race_id}/problems/{name}", called))
        more = f" these, and {len(won) - len(links)} more" if len(won) > len(links) else ""
        if won:
            did = f"{names[side]} did better on {len(won)} of the {len(both)} problems of pool train:"
            yield did + more, links


def _score_e4(one: PairResult) -> int:
    return (one.coefficient_e4 or 0) if one.is_success else 0


# -- one race


def read_matrix(race: RaceView, results: Results, agents: Sequence[str], pools: Sequence[Pool]) -> Sequence[MatrixRow]:
    """Released problems of these pools against agents. A pair that several validators ran shows the first result; its
    mouse text names all."""
    void = frozenset(race.settlement.void) if race.settlement else frozenset()
    rows = []
    for problem_id, pool in sorted(pools_of(race).items()):
        if not is_seen(race, "outcome", pool, pools):
            continue
        given: dict[str, list[PairResult]] = defaultdict(list)
        for one in results.get(problem_id, ()):
            given[one.agent_version_id].append(one)
        if given or problem_id in void:
            is_open = is_seen(race, "trace", pool, pools)
            cells = [_cell(given[agent], pool, is_open=is_open) for agent in agents]
            rows.append(MatrixRow(problem_id, pool, problem_id in void, cells))
    return rows


def _cell(given: Sequence[PairResult], pool: str, *, is_open: bool) -> Cell:
    if not given:
        return Cell("none", "no result")
    one = given[0]
    failed = "partial" if one.rule_e4 else "failed"
    kind = "unscored" if one.is_success is None else "solved" if one.is_success else failed
    says = [kind]
    if one.rule_e4 is not None and not one.is_success:
        says.append(f"{one.rule_e4 / 100:.0f} % of what was asked")
    if one.missed:
        says.append(f"misses {', '.join(one.missed)}")
    if one.failure:
        says.append(one.failure)
    if one.coefficient_e4 is not None:
        says.append(f"coefficient {one.coefficient_e4 / 10_000:.4f}")
    if len({each.is_success for each in given}) > 1:
        says.append("validators differ")
    return Cell(kind, "; ".join(says), trace_href(one, pool) if is_open else "", one.coefficient_e4)


def trace_href(result: PairResult, pool: str) -> str:
    """The page of a result's trace."""
    return f"/traces/{result.validator}/{result.seq}" + ("" if pool == "train" else f"?pool={pool}")


def items_of(race: RaceView) -> int:
    """How many episodes a running race takes, where one validator alone evaluates it; else 0."""
    state = race.state
    is_alone = state is not None and state.field is not None and len(state.field.validators) == 1
    return (state.items or 0) if state is not None and is_alone and state.stage == "running" else 0


def settles_ms(race: RaceView) -> int | None:
    """When a race is settled at the latest, in unix milliseconds; None for one that was not opened here."""
    if race.state is None or (opened := race.state.opened) is None:
        return None
    if opened.policy.admission.rule == "agreed":
        return timeline(opened.closes_ms, opened.policy.race).countersign_ms
    drawn_ms = race.state.draw.drawn_ms if race.state.draw else 0
    return max(opened.closes_ms, drawn_ms) + opened.policy.race.run_ms


def read_steps(race: RaceView, row: RaceRow, now_ms: int) -> Sequence[Mapping[str, Any]]:
    """The stages of a race, and how far it is; `at_says` is what happens at `at_ms`. Of a cancelled one, stages that it
    never came to are not done."""
    reached: str = row.stage if row.stage in _STAGES else "open"
    if race.release is not None:
        reached = "published" if race.moment == "published" else "released"
    state = race.state
    draw = state.draw if state is not None else None
    is_cancelled, items = row.stage == "cancelled", items_of(race)
    ran = [f"{len(draw.drawn)} problems drawn"] if draw is not None else []
    if row.episodes:
        ran.append(f"{row.episodes}{f' of {items}' if items > row.episodes else ''} episodes evaluated")
    says = {
        "closed": f"{row.agents} agents in the field" if row.agents else "",
        "running": ", ".join(ran),
        "settled": "cancelled" if is_cancelled else "",
        "released": "problems and results are public" if race.release is not None else "",
    }
    is_closed = row.closes_ms is not None and row.closes_ms <= now_ms
    is_opened = row.opens_ms is not None and row.opens_ms <= now_ms
    moments: dict[str, tuple[str, int | None]] = {
        "open": ("closed" if is_closed else "closes", row.closes_ms),
        "published": ("source and traces opened" if is_opened else "source and traces open", row.opens_ms),
    }
    place = _STAGES.index("settled" if is_cancelled else reached)
    skipped = ("running", "settling") if is_cancelled and draw is None else ()
    return [
        dict(
            name=name,
            is_done=number < place and name not in skipped,
            is_current=number == place,
            says=says.get(name, ""),
            at_says=moments.get(name, ("", None))[0],
            at_ms=moments.get(name, ("", None))[1],
        )
        for number, name in enumerate(_STAGES)
    ]


def void_reason(settlement: SettlementRecord) -> str:
    """By which rule problems of this race are void."""
    if (policy := readable_policy(settlement)) is None:
        return "too many results on it are missing"
    needed = results_needed(policy.race, len(settlement.inputs.validators) if settlement.inputs else 1)
    lacking = "no validator has" if needed == 1 else f"fewer than {needed} validators have"
    return f"{lacking} a result of the control agent on it"


def disagreements(races: Iterable[Results]) -> Sequence[tuple[str, str, int, int]]:
    """By two validators, by name: pairs of agent and problem that both evaluated in these races, and how many of them
    with another outcome."""
    both, other, whose = Counter[tuple[str, str]](), Counter[tuple[str, str]](), attrgetter("agent_version_id")
    for given in (given for results in races for given in results.values()):
        for _, pairs in groupby(sorted(given, key=whose), whose):
            for first, second in combinations(sorted(pairs, key=lambda one: one.validator), 2):
                names = first.validator, second.validator
                both[names] += first.validator != second.validator
                other[names] += first.validator != second.validator and first.is_success != second.is_success
    return [(*names, count, other[names]) for names, count in sorted(both.items()) if count]


def read_problem(
    race: RaceView, row: ProblemRow, query: str, explained: Sequence[Explanation], pools: Sequence[Pool]
) -> dict[str, Any]:
    """One released problem of a race that everybody may see. `explained` are results on it whose traces are open."""
    release = race.release
    assert release is not None  # the row is of a released race
    clusters = {one.problem_id: one.cluster_id for one in release.problems}
    mine, shown = clusters.get(row.problem_id, ""), pools_of(race)
    asked = next((one.constraints for one in explained), ())[:CONSTRAINTS]
    accepted = sorted(
        {one for each in explained for one in each.accepted},
        key=lambda one: (one.slot, not one.is_answer, one.product_id),
    )[:CONSTRAINTS]
    return dict(
        race_id=race.race_id,
        row=row,
        is_open=is_seen(race, "trace", row.pool, pools),
        query=query,
        cluster_id=mine,
        nearest=[
            name
            for name, cluster in sorted(clusters.items())
            if cluster == mine and name != row.problem_id and shown.get(name) in pools
        ],
        asked=asked,
        accepted=accepted,
    )


def harmless(text: str, most: int = CONSTRAINT_CHARS) -> str:
    """A foreign text that may stand on a page: its beginning, without what would act on a screen."""
    return cut_text(neutral_text(text), most)


# -- texts


def read_source_lines(
    text: str, findings: Iterable[tuple[int, str]]
) -> tuple[Sequence[tuple[int, str, Sequence[str]]], int]:
    """The beginning of a published file as (number, text, findings), and how many lines it leaves out. `findings` are
    (line, what was found)."""
    told: dict[int, list[str]] = defaultdict(list)
    for number, said in findings:
        told[number].append(cut_text(neutral_text(said), LINE_CHARS))
    lines, shown, chars = text.removesuffix("\n").split("\n"), [], 0
    for number, line in enumerate(lines, 1):
        cut = neutral_text(line[:LINE_CHARS])
        chars += len(cut) + 40
        if chars > SOURCE_CHARS:
            break
        shown.append((number, cut, told[number]))
    return shown, len(lines) - len(shown)


def shorten_trace(view: TraceView) -> TraceView:
    """A trace that fits a page: of a long one, the beginning of each text that no judge quoted, and of a very long one
    the first steps."""
    constraints = [
        msgspec.structs.replace(
            one, asked=cut_text(one.asked, CONSTRAINT_CHARS), found=cut_text(one.found, CONSTRAINT_CHARS)
        )
        for one in view.constraints[:CONSTRAINTS]
    ]
    view = msgspec.structs.replace(
        view,
        query=cut_text(view.query, QUERY_CHARS),
        judges=tuple(_judges(view.judges)),
        constraints=tuple(constraints),
    )
    if sum(len(step.text) for step in view.steps) <= TRACE_CHARS:
        return view
    steps: list[TraceStep] = []
    chars = 0
    for step in view.steps:
        pieces = tuple(
            piece if piece.quotes else Piece(text=cut_text(piece.text, PIECE_CHARS)) for piece in step.pieces
        )
        chars += sum(len(piece.text) for piece in pieces)
        if chars > TRACE_CHARS:
            left = f"{len(view.steps) - len(steps)} more steps stand in the raw record"
            steps.append(TraceStep(kind="refused", title=left))
            break
        steps.append(msgspec.structs.replace(step, pieces=pieces))
    return msgspec.structs.replace(view, steps=tuple(steps))


def _judges(judges: Iterable[JudgeView]) -> Iterable[JudgeView]:
    left = SAID_CHARS
    for judge in judges:
        sentences = []
        for model, said in judge.sentences:
            sentences.append((model, cut_text(said, max(0, left))))
            left -= len(said)
        yield msgspec.structs.replace(judge, sentences=tuple(sentences))


def cut_text(text: str, most: int) -> str:
    """The beginning of a text, and how much it leaves out."""
    return text if len(text) <= most else f"{text[:most]} … ({len(text) - most} characters more)"


def moment(at_ms: int | None) -> str:
    """A moment in UTC; "" for none."""
    return "" if at_ms is None else datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%a %d %b %Y %H:%M UTC")


def sentence(text: str) -> str:
    """A message with a capital first letter and an end, unless it begins with a name."""
    first, _, rest = text.partition(" ")
    begins = first[:1].upper() + first[1:] if first.isalpha() and first.islower() else first
    whole = f"{begins} {rest}".strip() if rest else begins
    return whole if whole.endswith((".", "!", "?")) or not whole else f"{whole}."
