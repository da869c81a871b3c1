"""The board in that API's terms: versions, races, leaderboard, runs, as far as everybody may see them, and a miner's
own versions from `arena.door.status`.

It takes every value from the same rows as `arena.api.reads` and asks the same rule, so nothing is public here that is
not public there, and a miner and the public read one number and one time. A run is what one validator evaluates of one
agent version in one race, or on the suite; counts of its records are all that is known of it before the race is
settled.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any, Literal

import msgspec

from arena.api.board import Board, RaceView
from arena.api.rows import ListedAgent, agent_rows, is_told, standings_of
from arena.chain.real import BLOCK_MS
from arena.door.status import SubmissionStatus
from arena.race.settle import policy_of
from arena.race.weights import margin_e4
from arena.records.model import Candidate, SettlementRecord, Standing
from arena.records.port import StoredSubmission, SubmissionState
from arena.sn15.values import (
    AgentVersionPublic,
    AgentVersionState,
    AgentVersionStatus,
    CurrentAgent,
    Leaderboard,
    LeaderboardEntry,
    OwnAgent,
    OwnAgents,
    OwnVersion,
    OwnVersionStatus,
    RacePublic,
    RaceQualifierPublic,
    RaceStatus,
    RunDetail,
    RunPublic,
    RunStatus,
    RunUnderWay,
    SuitePublic,
    TopAgent,
    TopHistory,
    TopHistoryEntry,
    ValidatorPublic,
    Violation,
    WaitingSummary,
    WaitingVersion,
    WaitingVersions,
    agent_uuid,
    fraction,
    race_uuid,
    run_uuid,
    suite_number,
    utc_text,
    version_uuid,
)
from foundation.errors import ArenaError

_STATES: dict[SubmissionState | Literal["unknown"], AgentVersionState] = {
    "unknown": "RECEIVED",
    "waiting": "RECEIVED",
    "withdrawn": "CANCELLED",
    "refused": "DISCARDED",
    "rejected": "DISCARDED",
    "review": "QUEUED",
    "accepted": "QUEUED",  # RUNNING from its first episode on
    "qualified": "ELIGIBLE",
    "unqualified": "ELIGIBLE",  # through the suite, below the bar
}
CLOSED: frozenset[AgentVersionState] = frozenset({"ELIGIBLE", "DISCARDED", "CANCELLED"})  # no more runs are wanted


class Picture:
    """One look at the board. Make a new one after each refresh."""

    def __init__(self, board: Board) -> None:
        self._board = board
        self.rows = agent_rows(board)
        self._races = board.races()
        self._by_id = {race.race_id: race for race in self._races}
        self._standings = standings_of(board)
        self._numbers = _version_numbers(self.rows)
        self._settled = [race for race in self._races if _told(race) is not None]
        self._candidates: dict[str, Candidate] = {}
        for race in self._races:
            self._candidates |= {one.subject.agent_version_id: one for one in _field(race)}
        names = list(board.suites) or sorted(set(board.suite_episodes) - {""}) or ["s0"]
        self.suite_names = {suite_number(name): name for name in names}
        self.active_suite = next(iter(self.suite_names))

    def version(self, wanted: str) -> ListedAgent | None:
        """The agent version with that UUID, or None."""
        return next((row for agent, row in self.rows.items() if version_uuid(agent) == wanted), None)

    def race(self, wanted: str) -> RaceView | None:
        """The race with that UUID, or None."""
        return next((race for race in self._races if race_uuid(race.race_id) == wanted), None)

    def current(self) -> RaceView | None:
        """The race that is not over, else the latest."""
        waiting = [race for race in self._races if self.race_public(race).status in ("QUALIFYING_OPEN", "RACE_RUNNING")]
        return next(iter([*waiting, *reversed(self._races)]), None)

    def finished(self) -> list[RaceView]:
        """Races that are over, newest first."""
        over = ("RACE_COMPLETE", "RACE_CANCELLED")
        return [race for race in reversed(self._races) if self.race_public(race).status in over]

    def suite(self, number: int) -> SuitePublic:
        """A suite by its number."""
        return SuitePublic(suite_id=number, suite_version=1, is_active=number == self.active_suite)

    def number(self, agent_version_id: str) -> int:
        """Which version of its name it is, from 1; 0 for one that is not known here."""
        return self._numbers.get(agent_version_id, 0)

    def next_number(self, miner_hotkey: str, name: str) -> int:
        """Which version of this name the hotkey's next one is."""
        return 1 + sum((row.miner_hotkey, row.name) == (miner_hotkey, name) for row in self.rows.values())

    def submitted_at(self, agent_version_id: str, received_ms: int = 0) -> str:
        """When a version was first seen here; `received_ms`: of one that no record tells of, unix milliseconds."""
        return utc_text(self._board.first_seen_ms.get(agent_version_id, received_ms))

    def state(self, row: ListedAgent) -> AgentVersionState:
        """In that API's words."""
        return "RUNNING" if row.state == "accepted" and row.suite_episodes else _STATES[row.state]

    def facts(self, row: ListedAgent) -> dict[str, Any]:
        """What everybody may know of a version, under every name that API has for it."""
        agent, state, opens = row.agent_version_id, self.state(row), row.source.opens_ms
        found, candidate = self._standings.get(agent), self._candidates.get(agent)
        return {
            **self._named(agent, row.name, row.miner_hotkey, state),
            "version_number": self._numbers[agent],
            "submitted_at": self.submitted_at(agent),
            "final_score": fraction(candidate.qualifying_score_e4) if candidate else None,
            "race_score": fraction(found[-1].standing.race_score_e4) if found else None,
            "release_state": "RELEASED" if row.source.is_public else "HIDDEN",
            "code_available_at": utc_text(opens) if opens else None,
            "is_active_qualifier": candidate is not None,
        }

    def status(self, row: ListedAgent) -> AgentVersionStatus:
        """Where a version stands."""
        return msgspec.convert(self.facts(row), AgentVersionStatus)

    def received(self, row: StoredSubmission) -> AgentVersionStatus:
        """Where a submission stands that the gate has not looked at."""
        agent, hotkey = row.subject.agent_version_id, row.subject.miner_hotkey
        facts = {
            **self._named(agent, row.name, hotkey, "RECEIVED"),
            "version_number": self.next_number(hotkey, row.name),
            "submitted_at": self.submitted_at(agent, row.received_ms),
        }
        return msgspec.convert(facts, AgentVersionStatus)

    def own(self, told: SubmissionStatus) -> OwnVersionStatus:
        """The same of one of a miner's own versions, with what its door tells beside it."""
        agent, state = told.agent_version_id, _own_state(told)
        row = self.rows.get(agent)
        findings = [
            Violation(rule=one.rule, severity=one.severity, message=one.detail, line=one.line) for one in told.findings
        ]
        if told.failure is not None and not findings:
            findings = [Violation(rule=told.failure.code, severity="", message=told.failure.detail, line=0)]
        facts = {
            **(self.facts(row) if row else {}),
            **self._named(agent, told.name, told.hotkey, state),
            "version_number": self.number(agent) or self.next_number(told.hotkey, told.name),
            "submitted_at": self.submitted_at(agent, told.received_ms),
            "final_score": fraction(told.qualifying.score_e4) if told.qualifying is not None else None,
            "is_active_qualifier": self.is_in(told, "QUALIFYING_OPEN", "RACE_RUNNING"),
            "detail": told.what_to_do,
            "violations": findings,
        }
        return msgspec.convert(facts, OwnVersionStatus)

    def is_in(self, told: SubmissionStatus, *wanted: RaceStatus) -> bool:
        """Whether one of a miner's version's races stands so for the public."""
        races = (self._by_id.get(one.race.race_id) for one in told.races)
        return any(self.race_public(race).status in wanted for race in races if race)

    def public_version(self, row: ListedAgent) -> AgentVersionPublic:
        """A version whose source is public."""
        facts = self.facts(row)
        released = facts["code_available_at"] or facts["submitted_at"]
        facts |= {"released_at": released, "code_available_at": released, "latest_final_score": facts["final_score"]}
        return msgspec.convert(facts, AgentVersionPublic)

    def _named(self, agent: str, name: str, hotkey: str, state: AgentVersionState) -> dict[str, Any]:
        return {
            "agent_version_id": version_uuid(agent),
            "agent_id": agent_uuid(hotkey, name),
            "agent_name": name,
            "miner_hotkey": hotkey,
            "suite_id": self.active_suite,
            "state": state,
            "success_count": int(state == "ELIGIBLE"),
            "active_count": int(state == "RUNNING"),
            "is_closed": state in CLOSED,
        }

    def race_public(self, race: RaceView) -> RacePublic:
        """A race; before its settlement without a winner or a score."""
        told = _told(race)
        is_over = told is not None and told.state == "settled"
        stage = race.state.stage if race.state is not None else ""
        status: RaceStatus
        if is_over:
            status = "RACE_COMPLETE"
        elif told is not None or stage == "cancelled":
            status = "RACE_CANCELLED"
        else:
            status = "QUALIFYING_OPEN" if race.moment == "open" else "RACE_RUNNING"
        winner = _standing(told, told.top_agent_version_id) if told is not None and is_over else None
        name = self.rows[winner.agent_version_id].name if winner and winner.agent_version_id in self.rows else None
        return RacePublic(
            race_id=race_uuid(race.race_id),
            suite_id=self.active_suite,
            status=status,
            race_number=race.number,
            qualifying_closes_at=utc_text(race.closes_ms) if race.closes_ms else None,
            winner_agent_version_id=version_uuid(winner.agent_version_id) if winner else None,
            winner_score=fraction(winner.race_score_e4) if winner else None,
            winner_agent_name=name,
            qualifier_count=len(_field(race)) or len(told.standings if told else ()),
            scored_count=self._board.race_episodes[race.race_id],
        )

    def qualifiers(self, race: RaceView) -> tuple[RaceQualifierPublic, ...]:
        """The field of a race."""
        told, shown = _told(race), []
        for one in _field(race):
            agent = one.subject.agent_version_id
            row, standing = self.rows.get(agent), _standing(told, agent)
            shown.append(
                RaceQualifierPublic(
                    agent_version_id=version_uuid(agent),
                    qualification_type="INCUMBENT" if one.is_incumbent else "SCORED",
                    agent_name=row.name if row else None,
                    miner_hotkey=one.subject.miner_hotkey,
                    version_number=self._numbers.get(agent, 0),
                    qualifying_score=fraction(one.qualifying_score_e4),
                    race_score=fraction(standing.race_score_e4) if standing else None,
                    race_rank=standing.rank if standing else None,
                    weighted_score=fraction(standing.crown_score_e4) if standing else None,
                )
            )
        return tuple(shown)

    def leaderboard(self, limit: int, offset: int, query: str) -> Leaderboard:
        """Every version that has a qualifying score."""
        last = _told(self._settled[-1]) if self._settled else None
        top = last.top_agent_version_id if last else ""
        scored = [(self.rows[agent], one) for agent, one in self._candidates.items() if agent in self.rows]
        race_scores = {row.agent_version_id: row.race_score_e4 for row in (last.standings if last else ())}

        def place(each: tuple[ListedAgent, Candidate]) -> tuple[int, int, str]:
            agent = each[0].agent_version_id
            return -race_scores.get(agent, -1), -each[1].qualifying_score_e4, agent

        entries = tuple(
            msgspec.convert(
                self.facts(row)
                | {
                    "rank": rank,
                    "final_score": candidate.qualifying_score_e4 / 10_000,
                    "race_score": fraction(race_scores.get(row.agent_version_id)),
                    "is_current_top": row.agent_version_id == top,
                    "was_top": bool(row.promoted_in) and row.agent_version_id != top,
                },
                LeaderboardEntry,
            )
            for rank, (row, candidate) in enumerate(sorted(scored, key=place), start=1)
        )
        found = [each for each in entries if query.lower() in f"{each.agent_name} {each.miner_hotkey}".lower()]
        return Leaderboard(
            total=len(found),
            limit=limit,
            offset=offset,
            suite=self.suite(self.active_suite),
            entries=tuple(found[offset : offset + limit]),
            unique_miners=len({each.miner_hotkey for each in found}),
            challenge_threshold=self.top().challenge_threshold,
        )

    def top(self) -> TopAgent:
        """Who is at the top after the latest settled race, and by how much a challenger must be better now."""
        computed_at = utc_text(self._board.now_ms())
        last = _told(self._settled[-1]) if self._settled else None
        standing = _standing(last, last.top_agent_version_id) if last else None
        margin = _margin_e4(last, self._promoted_ms(standing), self._board.now_ms()) if last and standing else None
        return TopAgent(
            suite_id=self.active_suite,
            computed_at=computed_at,
            top_agent_version_id=version_uuid(standing.agent_version_id) if standing else None,
            top_miner_hotkey=standing.miner_hotkey if standing else None,
            top_score=fraction(standing.race_score_e4) if standing else None,
            challenge_threshold=standing.race_score_e4 * (10_000 + margin) / 1e8
            if standing and margin is not None
            else None,
            margin=fraction(margin),
        )

    def top_history(self) -> TopHistory:
        """Who came to the top, newest first."""
        entries, current = [], self.top().top_agent_version_id
        for race in reversed(self._settled):
            told = _told(race)
            standing = _standing(told, told.top_agent_version_id) if told and told.is_promotion else None
            row = self.rows.get(standing.agent_version_id) if standing else None
            if standing is None or row is None:
                continue
            is_top = version_uuid(row.agent_version_id) == current
            score, at = standing.race_score_e4 / 10_000, utc_text(race.closes_ms or 0)
            facts = {"final_score": score, "top_at": at, "is_current_top": is_top, "was_top": not is_top}
            entries.append(msgspec.convert(self.facts(row) | facts, TopHistoryEntry))
        return TopHistory(suite_id=self.active_suite, entries=tuple(entries))

    def _promoted_ms(self, standing: Standing | None) -> int:
        races = self._board.promotions().get(standing.agent_version_id, ()) if standing else ()
        return max((race.closes_ms or 0 for race in races), default=0)


def _told(race: RaceView) -> SettlementRecord | None:
    """The settlement of a race that everybody may know."""
    return race.settlement if is_told(race) else None


def _field(race: RaceView) -> tuple[Candidate, ...]:
    """Who races, once the field is fixed on chain."""
    if race.state is not None and race.state.field is not None:
        return race.state.field.field
    told = _told(race)
    return told.inputs.field if told is not None and told.inputs is not None else ()


def _standing(record: SettlementRecord | None, agent_version_id: str) -> Standing | None:
    rows = record.standings if record is not None else ()
    return next((row for row in rows if row.agent_version_id == agent_version_id), None)


def _margin_e4(record: SettlementRecord, promoted_ms: int, now_ms: int) -> int | None:
    if record.inputs is None:
        return None
    try:
        rules = policy_of(record).promotion
    except ArenaError:
        return None
    return margin_e4(rules, max(0, now_ms - promoted_ms))


def _version_numbers(rows: dict[str, ListedAgent]) -> dict[str, int]:
    counts: dict[tuple[str, str], int] = defaultdict(int)
    numbers = {}
    for row in sorted(rows.values(), key=lambda row: (row.commitment_block, row.agent_version_id)):
        counts[row.miner_hotkey, row.name] += 1
        numbers[row.agent_version_id] = counts[row.miner_hotkey, row.name]
    return numbers


class Runs:
    """The runs of one look at the board."""

    def __init__(self, board: Board, picture: Picture) -> None:
        self._board, self._picture = board, picture
        self._races = {race.race_id: race for race in board.races()}

    def of(self, agent_version_id: str) -> list[RunPublic]:
        """What validators ran of a version, in the order in which they began."""
        found = sorted(self._every(agent_version_id), key=lambda run: (run["claimed_at"], run["eval_run_id"]))
        return msgspec.convert(found, list[RunPublic])

    def detail(self, eval_run_id: str) -> RunDetail | None:
        """The run with that UUID, or None."""
        run = next((run for run in self._every() if run["eval_run_id"] == eval_run_id), None)
        return msgspec.convert(run, RunDetail) if run else None

    def under_way(self) -> list[RunUnderWay]:
        """The runs that are not over."""
        return msgspec.convert([run for run in self._every() if run["status"] == "RUNNING"], list[RunUnderWay])

    def waiting(self, limit: int, offset: int) -> WaitingVersions:
        """Accepted versions of which no run has begun, first in, first out."""
        rows = [row for row in self._picture.rows.values() if row.state == "accepted" and not row.suite_episodes]
        rows.sort(key=lambda row: (row.commitment_block, row.agent_version_id))
        items = []
        for row in rows[offset : offset + limit]:
            facts = self._picture.facts(row)
            facts |= {"work_item_id": run_uuid("", "", row.agent_version_id), "queued_at": facts["submitted_at"]}
            items.append(msgspec.convert(facts, WaitingVersion))
        active = len(self.under_way())
        summary = WaitingSummary(total_pending=len(rows), total_runs_needed=len(rows), total_runs_active=active)
        return WaitingVersions(summary=summary, items=tuple(items))

    def validators(self) -> list[ValidatorPublic]:
        """The validators whose logs are served here; one whose log is empty has nothing to show yet."""
        latest: dict[str, dict[str, Any]] = {}
        for run in sorted(self._every(), key=lambda run: run["last_heartbeat_at"]):
            if run["status"] == "RUNNING":
                latest[run["validator_hotkey"]] = run | {"version_id": run["agent_version_id"]}
        return [
            ValidatorPublic(
                hotkey=name,
                status="evaluating" if name in latest else "available",
                registered_at=utc_text(log.first_recorded_ms),
                last_seen_at=utc_text(log.last_recorded_ms),
                current_agent=msgspec.convert(latest[name], CurrentAgent) if name in latest else None,
            )
            for name, log in self._board.logs.items()
            if log.first_recorded_ms is not None and log.last_recorded_ms is not None
        ]

    def _every(self, agent_version_id: str = "") -> Iterator[dict[str, Any]]:
        """All runs, or those of one version: what may be known of each, under every name that API has for it."""
        shown = {name: self._picture.race_public(race) for name, race in self._races.items()}
        whole = len(self._board.suites.get(self._picture.suite_names[self._picture.active_suite], ()))
        for (validator, race_id, agent), counts in self._board.runs.items():
            row = self._picture.rows.get(agent)
            if row is None or agent_version_id not in ("", agent):
                continue
            race = shown.get(race_id)
            status: RunStatus = "RUNNING"
            score = None
            if not race_id:
                status = "SUCCESS" if self._picture.state(row) == "ELIGIBLE" else "RUNNING"
                score = self._picture.facts(row)["final_score"]
            elif race is not None and race.status == "RACE_COMPLETE":
                standing = _standing(_told(self._races[race_id]), agent)
                status, score = "SUCCESS", fraction(standing.race_score_e4) if standing else None
            elif race is not None and race.status == "RACE_CANCELLED":
                status = "CANCELLED"
            began, latest = utc_text(counts.first_ms), utc_text(counts.last_ms)
            yield {
                **self._picture.facts(row),
                "eval_run_id": run_uuid(validator, race_id, agent),
                "validator_hotkey": validator,
                "status": status,
                "claimed_at": began,
                "started_at": began,
                "lease_expires_at": latest,
                "last_heartbeat_at": latest,
                "completed_at": None if status == "RUNNING" else latest,
                "is_included": status == "SUCCESS",
                "validator_score": score,
                "score": score,
                "phase": "QUALIFYING" if race is None else "RACE",
                "race_id": race.race_id if race else None,
                "race_number": race.race_number if race else None,
                "progress_percent": min(100.0, 100.0 * counts.episodes / whole) if whole and race is None else 0.0,
            }


class OwnVersions:
    """The versions of one hotkey at one moment."""

    def __init__(self, picture: Picture, statuses: Sequence[SubmissionStatus], now_ms: int) -> None:
        """`statuses` are the door's; `now_ms` is unix milliseconds."""
        self._picture, self._statuses, self._now_ms = picture, statuses, now_ms

    def one(self, agent_version_id: str) -> OwnVersionStatus | None:
        """The version with that UUID, or None."""
        told = next((each for each in self._statuses if version_uuid(each.agent_version_id) == agent_version_id), None)
        return None if told is None else self._picture.own(told)

    def agents(self) -> OwnAgents:
        """All of them by name, the newest first."""
        racing = next((one for one in self._statuses if self._picture.is_in(one, "RACE_RUNNING")), None)
        opens_ms = self._opens_ms()
        return OwnAgents(
            agents=tuple(
                OwnAgent(
                    agent_id=agent_uuid(rows[0].hotkey, name),
                    miner_hotkey=rows[0].hotkey,
                    agent_name=name,
                    created_at=self._picture.own(rows[-1]).submitted_at,
                    latest_version=_listed(self._picture.own(rows[0])),
                )
                for name, rows in self._by_name().items()
            ),
            can_submit=opens_ms <= self._now_ms and not any(each.state == "waiting" for each in self._statuses),
            next_allowed_at=utc_text(opens_ms) if opens_ms > self._now_ms else None,
            racing_agent_version_id=version_uuid(racing.agent_version_id) if racing else None,
            racing_agent_id=agent_uuid(racing.hotkey, racing.name) if racing else None,
        )

    def history(self, agent_id: str) -> tuple[OwnVersion, ...]:
        """The versions of the agent with that UUID, the newest first; none where there is no such agent."""
        named = {agent_uuid(rows[0].hotkey, name): rows for name, rows in self._by_name().items()}
        return tuple(_listed(self._picture.own(each)) for each in named.get(agent_id, ()))

    def _by_name(self) -> dict[str, list[SubmissionStatus]]:
        found: dict[str, list[SubmissionStatus]] = defaultdict(list)
        for each in self._statuses:
            found[each.name].append(each)
        return found

    def _opens_ms(self) -> int:
        blocks = max((each.next_allowed_block - each.block for each in self._statuses), default=0)
        return block_time_ms(blocks, self._now_ms)


def block_time_ms(blocks: int, now_ms: int) -> int:
    """When a block comes that is so many blocks away, at the chain's own pace: an estimate, in unix milliseconds."""
    return now_ms + max(0, blocks) * BLOCK_MS


def _own_state(told: SubmissionStatus) -> AgentVersionState:
    is_running = told.state == "accepted" and told.qualifying is not None and told.qualifying.done > 0
    return "RUNNING" if is_running else _STATES[told.state]


def _listed(own: OwnVersionStatus) -> OwnVersion:
    return msgspec.convert(own, OwnVersion, from_attributes=True)
