"""From the public picture of a store to what each page shows.

Pages show what the reads show (`arena.api.reads`), which ask `arena.visibility.rule`; nothing here looks at a
race's secrets by itself. What follows from a board alone is worked out once between two refreshes.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from arena.api.board import Board as Picture
from arena.api.board import RaceView
from arena.api.reads import agent_rows, race_detail, race_row, standings_of
from arena.api.results import DEFAULT_POOLS, pools_of
from arena.api.rows import ListedAgent, PairResult, ProblemRow, RaceRow
from arena.bank.batch import Explained
from arena.race.scores import results_needed
from arena.race.settle import policy_of
from arena.records.model import SettlementRecord, Standing
from arena.view.reading import JudgeView, Piece, TraceStep, TraceView
from arena.visibility.rule import may_see
from arena.web.figures import Results, reasons
from arena.web.values import (
    AgentName,
    Appearance,
    BucketShare,
    Cell,
    IntervalMark,
    Leader,
    MatrixRow,
    PairedGap,
    Qualified,
    RaceStep,
    RankedBoard,
    Solver,
    SourceLine,
)
from foundation.errors import ArenaError
from judge.neutral import neutral_name, neutral_text
from problems.model import BUCKETS, Pool

ID_SHOWN = 10
LEADERS = 40  # what is shown of long lists: a page stays under 200 kB
COLUMNS = 20
APPEARANCES = 60
SOURCE_CHARS, LINE_CHARS = 60_000, 300
TRACE_CHARS, PIECE_CHARS = 60_000, 1_500
QUERY_CHARS, SAID_CHARS = 4_000, 8_000  # of a question, and of all that judges said
CONSTRAINTS, CONSTRAINT_CHARS = 100, 300  # of what a problem asked, and of each value of it
Comparison = Mapping[tuple[str, str], tuple[int, int]]  # by two validators: results both have, and those that differ


def name_of(rows: Mapping[str, ListedAgent], agent_version_id: str) -> AgentName:
    """How an agent is called."""
    row = rows.get(agent_version_id)
    short = agent_version_id[:ID_SHOWN]
    if row is None:
        return AgentName(agent_version_id=agent_version_id, name=short)
    return AgentName(
        agent_version_id=agent_version_id, name=neutral_name(row.name).strip() or short, miner=row.miner_hotkey
    )


def read_front(picture: Picture, results: Results, gap: PairedGap | None) -> dict[str, Any]:
    """The latest settled race and the one to come. `results` are those of the settled race, as far as they are
    public; `gap` is between its first two."""
    race = latest_settled(picture)
    unsettled = [one for one in picture.races() if one.settlement is None and one.state is not None]
    return dict(
        board=None if race is None else read_board(picture, race, results, gap),
        coming=race_row(picture, unsettled[-1]) if unsettled else None,
        validators=(),
    )


def latest_settled(picture: Picture) -> RaceView | None:
    """The newest race whose standings everybody may see."""
    for race in reversed(picture.races()):
        if race.settlement and race.settlement.standings and may_see("public", "score", race.moment).is_seen:
            return race
    return None


def read_board(picture: Picture, race: RaceView, results: Results, gap: PairedGap | None) -> RankedBoard:
    """The leaderboard of a settled race that everybody may see."""
    assert race.settlement is not None  # `latest_settled`, or a page that looked
    settlement, rows = race.settlement, agent_rows(picture)
    ranked = sorted(settlement.standings, key=lambda one: one.rank)
    standings = ranked[:LEADERS]
    low = min((one.low_e4 for one in standings), default=0)
    high = max((one.high_e4 for one in standings), default=10_000)
    low, high = max(0, low // 500 * 500), min(10_000, -(-high // 500) * 500)
    of_agent: dict[str, list[PairResult]] = defaultdict(list)
    for problem_id, pairs in results.items():
        for pair in pairs if problem_id not in settlement.void else ():
            of_agent[pair.agent_version_id].append(pair)
    promotions = picture.promotions()
    is_open = may_see("public", "trace", race.moment, pool="train", pools=DEFAULT_POOLS).is_seen
    leaders = []
    for one in standings:
        given = of_agent.get(one.agent_version_id, ())
        promoted = promotions.get(one.agent_version_id, ())
        is_top = one.agent_version_id == settlement.top_agent_version_id
        leaders.append(
            Leader(
                standing=one,
                agent=name_of(rows, one.agent_version_id),
                mark=mark_of(one, low, high),
                is_top=is_top,
                since=promoted[-1].race_id if is_top and promoted else "",
                buckets=buckets_of(given),
                missed=missed_of(given),
                tokens=sum(each.tokens for each in given) // len(given) if given else None,
                cost_micro_usd=sum(each.cost_micro_usd for each in given) // len(given) if given else None,
            )
        )
    return RankedBoard(
        detail=race_detail(picture, race),
        leaders=tuple(leaders),
        more=len(ranked) - len(standings),
        low=low / 10_000,
        high=high / 10_000,
        is_told=bool(results),
        why=tuple(reasons(settlement, leaders, results, picture.now_ms(), is_open=is_open)),
        gap=gap,
        pools=tuple(sorted(set(pools_of(race).values()))),
    )


def mark_of(standing: Standing, low_e4: int = 0, high_e4: int = 10_000) -> IntervalMark:
    """A standing's score with its interval on an axis."""
    width = max(1, high_e4 - low_e4)
    low, value, high = (
        100 * (one - low_e4) / width for one in (standing.low_e4, standing.race_score_e4, standing.high_e4)
    )
    return IntervalMark(low=low, value=value, high=high)


def missed_of(given: Iterable[PairResult]) -> tuple[tuple[str, int], ...]:
    """On how many problems that were not solved each axis was missed, most first."""
    return tuple(Counter(axis for one in given if not one.is_success for axis in one.missed).most_common())


def buckets_of(given: Iterable[PairResult]) -> tuple[BucketShare, ...]:
    """Solved of scored in each bucket."""
    solved, asked = Counter[str](), Counter[str]()
    for one in given:
        if one.is_success is not None:
            asked[one.bucket] += 1
            solved[one.bucket] += one.is_success
    return tuple(BucketShare(bucket=name, solved=solved[name], asked=asked[name]) for name in BUCKETS if asked[name])


def read_matrix(
    race: RaceView, results: Results, agents: Sequence[AgentName], pools: Sequence[Pool]
) -> tuple[MatrixRow, ...]:
    """Released problems of these pools against agents. A pair that several validators ran shows the first result; its
    mouse text names all."""
    void = frozenset(race.settlement.void) if race.settlement else frozenset()
    rows = []
    for problem_id, pool in sorted(pools_of(race).items()):
        if not may_see("public", "outcome", race.moment, pool=pool, pools=pools).is_seen:
            continue
        given: dict[str, list[PairResult]] = defaultdict(list)
        for one in results.get(problem_id, ()):
            given[one.agent_version_id].append(one)
        if not given and problem_id not in void:
            continue
        is_open = may_see("public", "trace", race.moment, pool=pool, pools=pools).is_seen
        cells = tuple(_cell(given.get(agent.agent_version_id, ()), pool, is_open=is_open) for agent in agents)
        rows.append(MatrixRow(problem_id=problem_id, pool=pool, is_void=problem_id in void, cells=cells))
    return tuple(rows)


def _cell(given: Sequence[PairResult], pool: str, *, is_open: bool) -> Cell:
    if not given:
        return Cell(kind="none", says="no result")
    one = given[0]
    if one.is_success is None:
        kind = "unscored"
    elif one.is_success:
        kind = "solved"
    else:
        kind = "partial" if one.rule_e4 else "failed"
    says = [kind]
    if one.rule_e4 is not None and not one.is_success:
        says.append(f"{one.rule_e4 / 100:.0f} % of what was asked")
    if one.missed:
        says.append(f"misses {', '.join(one.missed)}")
    if one.failure:
        says.append(one.failure)
    if one.coefficient_e4 is not None:
        says.append(f"coefficient {f'{one.coefficient_e4 / 10_000:.4f}'}")
    if len({each.is_success for each in given}) > 1:
        says.append("validators differ")
    return Cell(kind=kind, says="; ".join(says), href=trace_href(one, pool) if is_open else "")


def trace_href(result: PairResult, pool: str) -> str:
    """The page of a result's trace."""
    return f"/traces/{result.validator}/{result.seq}" + ("" if pool == "train" else f"?pool={pool}")


def read_appearances(picture: Picture, agent_version_id: str) -> tuple[Appearance, ...]:
    """An agent in the settled races that may be told, oldest first."""
    found = standings_of(picture).get(agent_version_id, ())[-APPEARANCES:]
    return tuple(Appearance(race_id=race, standing=one, mark=mark_of(one)) for race, one in found)


def read_source(text: str, findings: Iterable[tuple[int, str]]) -> tuple[tuple[SourceLine, ...], int]:
    """The beginning of a published file line by line, and how many lines it leaves out. `findings` are (line, what was
    found)."""
    told: dict[int, list[str]] = defaultdict(list)
    for number, said in findings:
        told[number].append(cut_text(neutral_text(said), LINE_CHARS))
    lines, shown, chars = text.removesuffix("\n").split("\n"), [], 0
    for number, line in enumerate(lines, 1):
        cut = neutral_text(line[:LINE_CHARS])
        chars += len(cut) + 40
        if chars > SOURCE_CHARS:
            break
        shown.append(SourceLine(number=number, text=cut, findings=tuple(told.get(number, ()))))
    return tuple(shown), len(lines) - len(shown)


def shorten_trace(view: TraceView) -> TraceView:
    """A trace that fits a page: of a long one, the beginning of each text that no judge quoted, and of a very long one
    the first steps."""
    view = msgspec.structs.replace(
        view,
        query=cut_text(view.query, QUERY_CHARS),
        judges=tuple(_judges(view.judges)),
        constraints=tuple(
            msgspec.structs.replace(
                one, asked=cut_text(one.asked, CONSTRAINT_CHARS), found=cut_text(one.found, CONSTRAINT_CHARS)
            )
            for one in view.constraints[:CONSTRAINTS]
        ),
    )
    if sum(len(step.text) for step in view.steps) <= TRACE_CHARS:
        return view
    steps: list[TraceStep] = []
    chars = 0
    for step in view.steps:
        pieces = tuple(
            piece
            if piece.quotes or len(piece.text) <= PIECE_CHARS
            else Piece(text=f"{piece.text[:PIECE_CHARS]} … ({len(piece.text) - PIECE_CHARS} characters more)")
            for piece in step.pieces
        )
        chars += sum(len(piece.text) for piece in pieces)
        if chars > TRACE_CHARS:
            left = f"{len(view.steps) - len(steps)} more steps stand in the raw record"
            steps.append(TraceStep(kind="refused", title=left))
            break
        steps.append(msgspec.structs.replace(step, pieces=pieces))
    return msgspec.structs.replace(view, steps=tuple(steps))


def cut_text(text: str, most: int) -> str:
    """The beginning of a text, and how much it leaves out."""
    return text if len(text) <= most else f"{text[:most]} … ({len(text) - most} characters more)"


def _judges(judges: Iterable[JudgeView]) -> Iterable[JudgeView]:
    left = SAID_CHARS
    for judge in judges:
        sentences = []
        for model, said in judge.sentences:
            sentences.append((model, cut_text(said, max(0, left))))
            left -= len(said)
        yield msgspec.structs.replace(judge, sentences=tuple(sentences))


def read_problem(
    picture: Picture,
    race: RaceView,
    row: ProblemRow,
    query: str,
    explained: Sequence[Explained],
    pools: Sequence[Pool],
) -> dict[str, Any]:
    """One released problem of a race that everybody may see. `explained` are results on it whose traces are open."""
    rows, release = agent_rows(picture), race.release
    assert release is not None  # the row is of a released race
    clusters = {one.problem_id: one.cluster_id for one in release.problems}
    mine = clusters.get(row.problem_id, "")
    shown = pools_of(race)
    is_open = may_see("public", "trace", race.moment, pool=row.pool, pools=pools).is_seen
    return dict(
        race_id=race.race_id,
        row=row,
        query=cut_text(neutral_text(query), QUERY_CHARS),
        cluster_id=mine,
        nearest=tuple(
            name
            for name, cluster in sorted(clusters.items())
            if cluster == mine and name != row.problem_id and shown.get(name) in pools
        ),
        solvers=tuple(
            Solver(
                agent=name_of(rows, one.agent_version_id),
                result=one,
                href=trace_href(one, row.pool) if is_open else "",
            )
            for one in row.results
        ),
        asked=tuple(
            msgspec.structs.replace(one, asked=cut_text(neutral_text(one.asked), CONSTRAINT_CHARS))
            for one in next((one.constraints for one in explained), ())[:CONSTRAINTS]
        ),
        accepted=tuple(
            msgspec.structs.replace(
                one, product_id=neutral_name(one.product_id), title=cut_text(neutral_text(one.title), CONSTRAINT_CHARS)
            )
            for one in sorted(
                {one for each in explained for one in each.accepted},
                key=lambda one: (one.slot, not one.is_answer, one.product_id),
            )
        )[:CONSTRAINTS],
    )


def disagreements(results: Results) -> Comparison:
    """Of a race, by two validators: pairs of agent and problem that both evaluated, and those with another outcome."""
    both, other = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
    for given in results.values():
        of_agent: dict[str, list[PairResult]] = defaultdict(list)
        for one in given:
            of_agent[one.agent_version_id].append(one)
        for pair in of_agent.values():
            for place, first in enumerate(pair):
                for second in pair[place + 1 :]:
                    if first.validator != second.validator:
                        names = min(first.validator, second.validator), max(first.validator, second.validator)
                        both[names] += 1
                        other[names] += first.is_success != second.is_success
    return {names: (count, other[names]) for names, count in both.items()}


def add_up(races: Iterable[Comparison]) -> tuple[tuple[str, str, int, int], ...]:
    """The same of several races together, by name."""
    both, other = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
    for race in races:
        for names, (count, differing) in race.items():
            both[names] += count
            other[names] += differing
    return tuple((*names, count, other[names]) for names, count in sorted(both.items()))


def moment(at_ms: int | None) -> str:
    """A moment in UTC; "" for none."""
    if at_ms is None:
        return ""
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%a %d %b %Y %H:%M UTC")


def sentence(text: str) -> str:
    """A message with a capital first letter and an end, unless it begins with a name."""
    first, _, rest = text.partition(" ")
    begins = first[:1].upper() + first[1:] if first.isalpha() and first.islower() else first
    whole = f"{begins} {rest}".strip() if rest else begins
    return whole if whole.endswith((".", "!", "?")) or not whole else f"{whole}."


_STAGES = ("open", "closed", "running", "settling", "settled", "released", "published")


def read_steps(race: RaceView, row: RaceRow, now_ms: int) -> tuple[RaceStep, ...]:
    """The stages of a race, and how far it is. Of a cancelled one, stages that it never came to are not done."""
    reached: str = row.stage if row.stage in _STAGES else "open"
    if race.release is not None:
        reached = "published" if race.moment == "published" else "released"
    draw = race.state.draw if race.state is not None else None
    is_cancelled = row.stage == "cancelled"
    state = race.state
    ran = [f"{len(draw.drawn)} problems drawn"] if draw is not None else []
    if row.episodes:  # of how many, where one validator alone evaluates the race
        is_alone = state is not None and state.field is not None and len(state.field.validators) == 1
        items = (state.items or 0) if state is not None and is_alone and row.stage == "running" else 0
        ran.append(f"{row.episodes}{f' of {items}' if items > row.episodes else ''} episodes evaluated")
    says = {
        "closed": f"{row.agents} agents in the field" if row.agents else "",
        "running": ", ".join(ran),
        "settled": "cancelled" if is_cancelled else "",
        "released": "problems and results are public" if race.release is not None else "",
    }
    is_closed = row.closes_ms is not None and row.closes_ms <= now_ms
    is_opened = row.opens_ms is not None and row.opens_ms <= now_ms
    moments = {
        "open": ("closed" if is_closed else "closes", row.closes_ms),
        "published": ("source and traces opened" if is_opened else "source and traces open", row.opens_ms),
    }
    place = _STAGES.index("settled" if is_cancelled else reached)
    skipped = ("running", "settling") if is_cancelled and draw is None else ()
    return tuple(
        RaceStep(
            name=name,
            is_done=number < place and name not in skipped,
            is_current=number == place,
            says=says.get(name, ""),
            at_says=moments[name][0] if name in moments else "",
            at_ms=moments[name][1] if name in moments else None,
        )
        for number, name in enumerate(_STAGES)
    )


def read_qualified(settlement: SettlementRecord, rows: Mapping[str, ListedAgent]) -> tuple[Qualified, ...]:
    """Who raced and with which qualifying score, best first; none where the settlement does not state it."""
    field = settlement.inputs.field if settlement.inputs is not None else ()
    ranked = sorted(field, key=lambda one: (-one.qualifying_score_e4, one.subject.agent_version_id))
    return tuple(
        Qualified(
            agent=name_of(rows, one.subject.agent_version_id),
            score_e4=one.qualifying_score_e4,
            is_incumbent=one.is_incumbent,
        )
        for one in ranked[:LEADERS]
    )


def void_reason(settlement: SettlementRecord) -> str:
    """By which rule problems of this race are void."""
    try:
        rules = policy_of(settlement).race
    except ArenaError:
        return "too many results on it are missing"
    needed = results_needed(rules, len(settlement.inputs.validators) if settlement.inputs else 1)
    lacking = "no validator has" if needed == 1 else f"fewer than {needed} validators have"
    if rules.control_sha256:
        return f"{lacking} a result of the control agent on it"
    return f"{lacking} a result on it for two agents or more, at least {rules.void_agents_e4 / 100:g} % of the field"
