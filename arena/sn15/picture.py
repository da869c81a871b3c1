"""The board in the terms of the published SN15 API: versions, races, leaderboard, runs, as far as everybody may see
them, and a miner's own versions from `arena.door.service`.

Field names and words are those of the models of the generated client `oro-sdk`, 7.0.0 and 7.0.2 alike. A field this
arena has no value for is null, as the client allows; a miner is told more of its own versions than that API knows
(`detail`, `violations`): its clients keep fields they do not know.

Every value comes from the same rows as `arena.api.reads`, so nothing is public here that is not public there, and a
miner and the public read one number and one time. A run is what one validator evaluates of one agent version in one
race, or on the suite; counts of its records are all that is known of it before the race is settled. No run has a lease:
`lease_expires_at` and `last_heartbeat_at` are when its last record was made.
"""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Literal, NamedTuple

from fastapi import Query

from arena.api.board import Board, RaceView, RunCounts
from arena.api.rows import ListedAgent, agent_rows, by_commitment, is_told, standings_of
from arena.chain.real import BLOCK_MS
from arena.door.service import SubmissionStatus
from arena.race.settle import policy_of
from arena.race.weights import margin_e4
from arena.records.model import Candidate, SettlementRecord, Standing
from arena.records.port import StoredSubmission, SubmissionState
from arena.sn15.ids import (
    agent_uuid,
    fraction,
    problem_uuid,
    race_uuid,
    run_uuid,
    suite_number,
    utc_text,
    version_uuid,
)
from foundation.errors import ArenaError

RaceStatus = Literal["QUALIFYING_OPEN", "RACE_RUNNING", "RACE_COMPLETE", "RACE_CANCELLED"]
AgentVersionState = Literal["CANCELLED", "DISCARDED", "ELIGIBLE", "QUEUED", "RECEIVED", "RUNNING"]
RunStatus = Literal["CANCELLED", "CLAIMED", "FAILED", "RUNNING", "STALE", "SUCCESS", "TIMED_OUT"]


Answer = dict[str, Any]  # one object of that API
Limit = Annotated[int, Query(ge=1, le=500)]
Offset = Annotated[int, Query(ge=0, le=1_000_000)]
Suite = Annotated[str, Query(alias="suite_id", max_length=16, description="There is one active suite: ignored.")]
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
_CLOSED = ("ELIGIBLE", "DISCARDED", "CANCELLED")  # no more runs are wanted


class _Run(NamedTuple):
    row: ListedAgent
    validator: str
    race_id: str  # "": on the suite
    race: RaceView | None
    counts: RunCounts
    status: RunStatus
    score: float | None  # the settled one, on which the validators agree

    @property
    def uuid(self) -> str:
        return run_uuid(self.validator, self.race_id, self.row.agent_version_id)


class Picture:
    """One look at the board. Make a new one after each refresh."""

    def __init__(self, board: Board) -> None:
        self._board = board
        self.rows = agent_rows(board)
        self._races = board.races()
        self._by_id = {race.race_id: race for race in self._races}
        self._standings = standings_of(board)
        self._settled = [(race, record) for race in self._races if (record := _settlement(race)) is not None]
        self._numbers: dict[str, int] = {}
        counts: dict[tuple[str, str], int] = defaultdict(int)
        for row in sorted(self.rows.values(), key=by_commitment):
            counts[row.miner_hotkey, row.name] += 1
            self._numbers[row.agent_version_id] = counts[row.miner_hotkey, row.name]
        self._candidates = {one.subject.agent_version_id: one for race in self._races for one in _field(race)}
        names = list(board.suites) or sorted(set(board.suite_episodes) - {""}) or ["s0"]
        self.suite_names = {suite_number(name): name for name in names}
        self.active_suite = next(iter(self.suite_names))

    # -- versions

    def version(self, wanted: str) -> ListedAgent | None:
        """The agent version with that UUID, or None."""
        return next((row for agent, row in self.rows.items() if version_uuid(agent) == wanted), None)

    def status(self, row: ListedAgent) -> Answer:
        """Where a version stands."""
        agent = row.agent_version_id
        stands = self._stands(agent, row.name, row.miner_hotkey, self._state(row), self._seen_at(agent))
        return stands | self._known(row)

    def received(self, row: StoredSubmission) -> Answer:
        """Where a submission stands that the gate has not looked at."""
        agent = row.subject.agent_version_id
        return self._stands(
            agent, row.name, row.subject.miner_hotkey, "RECEIVED", self._seen_at(agent, row.received_ms)
        )

    def own(self, status: SubmissionStatus) -> Answer:
        """Where one of a miner's own versions stands, with what its door tells beside it."""
        agent, row = status.agent_version_id, self.rows.get(status.agent_version_id)
        is_running = status.state == "accepted" and status.qualifying is not None and status.qualifying.done > 0
        state = "RUNNING" if is_running else _STATES[status.state]
        violations = [violation(one.rule, one.severity, one.detail, one.line) for one in status.findings]
        if status.failure is not None and not violations:
            violations = [violation(status.failure.code, "", status.failure.detail, 0)]
        stands = self._stands(agent, status.name, status.hotkey, state, self._seen_at(agent, status.received_ms))
        return {
            **stands,
            **(self._known(row) if row else {}),
            "final_score": fraction(status.qualifying.score_e4) if status.qualifying else None,
            "is_active_qualifier": self._is_in(status, "QUALIFYING_OPEN", "RACE_RUNNING"),
            "detail": status.what_to_do,
            "violations": violations,
        }

    def own_agents(self, statuses: Sequence[SubmissionStatus], now_ms: int) -> Answer:
        """A hotkey's agents by name, the newest first, and when it may submit again. `now_ms` is unix milliseconds."""
        racing = next((one for one in statuses if self._is_in(one, "RACE_RUNNING")), None)
        opens_ms = block_time_ms(max((one.next_allowed_block - one.block for one in statuses), default=0), now_ms)
        return {
            "agents": [
                {
                    "agent_id": agent_id,
                    "miner_hotkey": versions[0].hotkey,
                    "agent_name": versions[0].name,
                    "created_at": self.own(versions[-1])["submitted_at"],
                    "latest_version": self._listed(versions[0]),
                }
                for agent_id, versions in _by_agent(statuses).items()
            ],
            "can_submit": opens_ms <= now_ms and not any(one.state == "waiting" for one in statuses),
            "next_allowed_at": utc_text(opens_ms) if opens_ms > now_ms else None,
            "racing_agent_version_id": version_uuid(racing.agent_version_id) if racing else None,
            "racing_agent_id": agent_uuid(racing.hotkey, racing.name) if racing else None,
        }

    def own_history(self, statuses: Sequence[SubmissionStatus], agent_id: str) -> list[Answer]:
        """The versions of the agent with that UUID, the newest first; none where there is no such agent."""
        return [self._listed(one) for one in _by_agent(statuses).get(agent_id, ())]

    def public_version(self, row: ListedAgent) -> Answer:
        """A version whose source is public."""
        shown = self.status(row)
        released = shown["code_available_at"] or shown["submitted_at"]
        return {
            **self._names(row),
            "agent_id": agent_uuid(row.miner_hotkey, row.name),
            "submitted_at": shown["submitted_at"],
            "released_at": released,
            "code_available_at": released,
            "suite_id": self.active_suite,
            "latest_final_score": shown["final_score"],
        }

    def _state(self, row: ListedAgent) -> AgentVersionState:
        return "RUNNING" if row.state == "accepted" and row.suite_episodes else _STATES[row.state]

    def _seen_at(self, agent_version_id: str, received_ms: int = 0) -> str:
        """When a version was first seen here; `received_ms`: of one that no record tells of, unix milliseconds."""
        return utc_text(self._board.first_seen_ms.get(agent_version_id, received_ms))

    def _names(self, row: ListedAgent) -> Answer:
        return {
            "agent_version_id": version_uuid(row.agent_version_id),
            "agent_name": row.name,
            "miner_hotkey": row.miner_hotkey,
            "version_number": self._numbers[row.agent_version_id],
        }

    def _stands(self, agent: str, name: str, hotkey: str, state: AgentVersionState, submitted_at: str) -> Answer:
        coming = 1 + sum((row.miner_hotkey, row.name) == (hotkey, name) for row in self.rows.values())
        return {
            "agent_version_id": version_uuid(agent),
            "agent_name": name,
            "miner_hotkey": hotkey,
            "version_number": self._numbers.get(agent, coming),
            "submitted_at": submitted_at,
            "state": state,
            "suite_id": self.active_suite,
            "success_count": int(state == "ELIGIBLE"),  # 1 once the suite is through
            "active_count": int(state == "RUNNING"),
            "is_closed": state in _CLOSED,
            "final_score": None,
            "race_score": None,
            "release_state": "HIDDEN",
            "code_available_at": None,
            "is_active_qualifier": False,
            "required_successes": 1,
        }

    def _known(self, row: ListedAgent) -> Answer:
        """What everybody may know of how a version did, in place of the nulls."""
        found = self._standings.get(row.agent_version_id)
        opens_ms, candidate = row.source.opens_ms, self._candidates.get(row.agent_version_id)
        return {
            "final_score": fraction(candidate.qualifying_score_e4) if candidate else None,
            "race_score": fraction(found[-1].standing.race_score_e4) if found else None,
            "release_state": "RELEASED" if row.source.is_public else "HIDDEN",
            "code_available_at": utc_text(opens_ms) if opens_ms else None,
            "is_active_qualifier": candidate is not None,
        }

    def _is_in(self, status: SubmissionStatus, *wanted: RaceStatus) -> bool:
        """Whether one of a miner's version's races stands so for the public."""
        races = (self._by_id.get(one.race.race_id) for one in status.races)
        return any(_race_status(race) in wanted for race in races if race)

    def _listed(self, status: SubmissionStatus) -> Answer:
        """Nothing is pinned here: of a hotkey's versions the one that qualified best races."""
        own, names = self.own(status), ("agent_version_id", "version_number", "submitted_at", "state", "final_score")
        return {name: own[name] for name in names} | {"is_selected_for_race": False, "is_pinnable": False}

    # -- races

    def one_race(self, race_id: str) -> Answer | None:
        """The race with that UUID and its field, or None."""
        return next((self._with_field(race) for race in self._races if race_uuid(race.race_id) == race_id), None)

    def current_race(self) -> Answer:
        """The race that is not over yet, else the latest, with its field."""
        waiting = [race for race in self._races if _race_status(race) in ("QUALIFYING_OPEN", "RACE_RUNNING")]
        return self._with_field(next(iter([*waiting, *reversed(self._races)]), None))

    def history(self, suite_id: Suite = "", limit: Limit = 20, offset: Offset = 0) -> Answer:
        """Races that are over, newest first."""
        over = [race for race in reversed(self._races) if _race_status(race) in ("RACE_COMPLETE", "RACE_CANCELLED")]
        races = [self.race_public(race) for race in over[offset : offset + limit]]
        return {"total": len(over), "limit": limit, "offset": offset, "races": races}

    def _with_field(self, race: RaceView | None) -> Answer:
        return {"race": self.race_public(race) if race else None, "qualifiers": self.qualifiers(race) if race else ()}

    def race_public(self, race: RaceView) -> Answer:
        """A race; before its settlement without a winner or a score."""
        status, record = _race_status(race), _settlement(race)
        winner = _standing(record, record.top_agent_version_id) if record and status == "RACE_COMPLETE" else None
        row = self.rows.get(winner.agent_version_id) if winner else None
        return {
            "race_id": race_uuid(race.race_id),
            "suite_id": self.active_suite,
            "status": status,
            "race_number": race.number,
            "qualifying_closes_at": utc_text(race.closes_ms) if race.closes_ms else None,
            "winner_agent_version_id": version_uuid(winner.agent_version_id) if winner else None,
            "winner_score": fraction(winner.race_score_e4) if winner else None,
            "winner_agent_name": row.name if row else None,
            "qualifier_count": len(_field(race)) or len(record.standings if record else ()),
            "scored_count": self._board.race_episodes[race.race_id],
        }

    def qualifiers(self, race: RaceView) -> list[Answer]:
        """The field of a race; score and rank are null until it is settled."""
        shown = []
        for one in _field(race):
            agent = one.subject.agent_version_id
            row, standing = self.rows.get(agent), _standing(_settlement(race), agent)
            answer = {
                "agent_version_id": version_uuid(agent),
                "qualification_type": "INCUMBENT" if one.is_incumbent else "SCORED",
                "agent_name": row.name if row else None,
                "miner_hotkey": one.subject.miner_hotkey,
                "version_number": self._numbers.get(agent, 0),
                "qualifying_score": fraction(one.qualifying_score_e4),
                "race_score": fraction(standing.race_score_e4) if standing else None,
                "race_rank": standing.rank if standing else None,
                "weighted_score": fraction(standing.crown_score_e4) if standing else None,
            }
            shown.append(answer)
        return shown

    # -- standings and suites

    def suites(self) -> list[Answer]:
        """The suites."""
        return list(map(self._suite, self.suite_names))

    def suite(self) -> Answer:
        """The active suite."""
        return self._suite(self.active_suite)

    def _suite(self, number: int) -> Answer:
        is_active, kind = number == self.active_suite, "legacy_shoppingbench"
        return {"suite_id": number, "suite_version": 1, "is_active": is_active, "execution_kind": kind}

    def suite_problems(
        self, suite_id: str, include_embeddings: Annotated[str, Query(max_length=8)] = ""
    ) -> Answer | None:
        """A suite with its problems, as an agent is asked them; None where they are not known here."""
        number = int(suite_id) if suite_id.isascii() and suite_id.isdecimal() and len(suite_id) < 8 else -1
        problems = self._board.suites.get(self.suite_names.get(number, ""))
        if problems is None:
            return None
        shown = [
            {
                "problem_id": problem_uuid(one.problem_id),
                "suite_id": number,
                "metadata": {"problem_id": one.problem_id, "category": one.category, "query": one.query},
            }
            for one in (problem.view() for problem in problems)
        ]
        return {"suite": self._suite(number), "problems": shown}

    def leaderboard(
        self,
        suite_id: Suite = "",
        score_type: Annotated[str, Query(max_length=32)] = "qualifying",
        limit: Limit = 100,
        offset: Offset = 0,
        q: Annotated[str, Query(max_length=128)] = "",
    ) -> Answer:
        """Every version that has a qualifying score, by its score in the latest settled race and then by that one."""
        last = self._settled[-1][1] if self._settled else None
        top = last.top_agent_version_id if last else ""
        race_scores = {row.agent_version_id: row.race_score_e4 for row in (last.standings if last else ())}
        scored = [(agent, one.qualifying_score_e4) for agent, one in self._candidates.items() if agent in self.rows]
        entries = [
            {
                **self._names(self.rows[agent]),
                "rank": rank,
                "final_score": score_e4 / 10_000,
                "race_score": fraction(race_scores.get(agent)),
                "is_current_top": agent == top,
                "was_top": bool(self.rows[agent].promoted_in) and agent != top,
            }
            for rank, (agent, score_e4) in enumerate(
                sorted(scored, key=lambda each: (-race_scores.get(each[0], -1), -each[1], each[0])), start=1
            )
        ]
        found = [each for each in entries if q.lower() in f"{each['agent_name']} {each['miner_hotkey']}".lower()]
        return {
            "total": len(found),
            "limit": limit,
            "offset": offset,
            "suite": self.suite(),
            "entries": found[offset : offset + limit],
            "unique_miners": len({each["miner_hotkey"] for each in found}),
            "challenge_threshold": self.top()["challenge_threshold"],
        }

    def top(self) -> Answer:
        """Who is at the top after the latest settled race, and the score that beats it now."""
        now_ms, standing, margin = self._board.now_ms(), None, None
        if self._settled:
            record = self._settled[-1][1]
            standing = _standing(record, record.top_agent_version_id)
            races = self._board.promotions().get(standing.agent_version_id, ()) if standing else ()
            promoted_ms = max((race.closes_ms or 0 for race in races), default=0)
            with contextlib.suppress(ArenaError):  # a policy of another release
                if record.inputs is not None:
                    margin = margin_e4(policy_of(record).promotion, max(0, now_ms - promoted_ms))
        beaten = standing.race_score_e4 * (10_000 + margin) / 1e8 if standing and margin is not None else None
        return {
            "suite_id": self.active_suite,
            "computed_at": utc_text(now_ms),
            "top_agent_version_id": version_uuid(standing.agent_version_id) if standing else None,
            "top_miner_hotkey": standing.miner_hotkey if standing else None,
            "top_score": fraction(standing.race_score_e4) if standing else None,
            "challenge_threshold": beaten,
            "margin": fraction(margin) if standing else None,
        }

    def top_history(self, suite_id: Suite = "") -> Answer:
        """Who came to the top, newest first."""
        entries, current = [], self.top()["top_agent_version_id"]
        for race, record in reversed(self._settled):
            standing = _standing(record, record.top_agent_version_id) if record.is_promotion else None
            row = self.rows.get(standing.agent_version_id) if standing else None
            if standing is not None and row is not None:
                is_top = version_uuid(row.agent_version_id) == current
                score, at = standing.race_score_e4 / 10_000, utc_text(race.closes_ms or 0)
                shown = {"final_score": score, "top_at": at, "is_current_top": is_top, "was_top": not is_top}
                entries.append(self._names(row) | shown | {"suite_id": self.active_suite})
        return {"suite_id": self.active_suite, "entries": entries}

    # -- runs

    def runs(self, agent_version_id: str) -> list[Answer] | None:
        """What validators ran of an agent version: the suite, and each race; None for no version."""
        row = self.version(agent_version_id)
        if row is None:
            return None
        found = [
            {
                **_run(run),
                "suite_id": self.active_suite,
                "lease_expires_at": utc_text(run.counts.last_ms),
                "last_heartbeat_at": utc_text(run.counts.last_ms),
                "validator_score": run.score,
                "phase": "RACE" if run.race else "QUALIFYING",
                "race_id": race_uuid(run.race.race_id) if run.race else None,
                "race_number": run.race.number if run.race else None,
            }
            for run in self._runs(row.agent_version_id)
        ]
        return sorted(found, key=lambda run: (run["claimed_at"], run["eval_run_id"]))

    def run(self, eval_run_id: str) -> Answer | None:
        """The run with that UUID, or None."""
        for run in self._runs():
            if run.uuid == eval_run_id:
                named = {"agent_name": run.row.name, "version_number": self._numbers[run.row.agent_version_id]}
                return {**_run(run), **named, "score": run.score, "execution_kind": "legacy_shoppingbench"}
        return None

    def under_way(self) -> list[Answer]:
        """The runs that are not over. Progress is 0 in a race: how much it draws is told when it is settled."""
        whole = len(self._board.suites.get(self.suite_names[self.active_suite], ()))
        return [
            {
                **self._names(run.row),
                "eval_run_id": run.uuid,
                "validator_hotkey": run.validator,
                "status": run.status,
                "started_at": utc_text(run.counts.first_ms),
                "progress_percent": min(100.0, 100.0 * run.counts.episodes / whole) if whole and not run.race else 0.0,
                "phase": "RACE" if run.race else "QUALIFYING",
                "race_id": race_uuid(run.race.race_id) if run.race else None,
            }
            for run in self._runs()
            if run.status == "RUNNING"
        ]

    def waiting(self, suite_id: Suite = "", limit: Limit = 100, offset: Offset = 0) -> Answer:
        """Accepted versions of which no run has begun, first in, first out."""
        rows = [row for row in self.rows.values() if row.state == "accepted" and not row.suite_episodes]
        rows.sort(key=by_commitment)
        items = [
            {
                **self._names(row),
                "work_item_id": run_uuid("", "", row.agent_version_id),
                "suite_id": self.active_suite,
                "queued_at": self._seen_at(row.agent_version_id),
                "required_successes": 1,
                "completed_successes": 0,
                "active_runs": 0,
                "remaining": 1,
                "phase": "QUALIFYING",
            }
            for row in rows[offset : offset + limit]
        ]
        active = sum(run.status == "RUNNING" for run in self._runs())
        summary = {"total_pending": len(rows), "total_runs_needed": len(rows), "total_runs_active": active}
        return {"summary": summary, "items": items}

    def validators(self) -> list[Answer]:
        """The validators whose logs are served here; one whose log is empty has nothing to show yet. A validator is
        registered since its log begins."""
        latest: dict[str, Answer] = {}
        for run in sorted(self._runs(), key=lambda run: run.counts.last_ms):
            if run.status == "RUNNING":
                latest[run.validator] = {
                    "agent_name": run.row.name,
                    "version_id": version_uuid(run.row.agent_version_id),
                    "version_number": self._numbers[run.row.agent_version_id],
                    "started_at": utc_text(run.counts.first_ms),
                }
        return [
            {
                "hotkey": name,
                "status": "evaluating" if name in latest else "available",
                "registered_at": utc_text(log.first_recorded_ms),
                "last_seen_at": utc_text(log.last_recorded_ms),
                "current_agent": latest.get(name),
            }
            for name, log in self._board.logs.items()
            if log.first_recorded_ms is not None and log.last_recorded_ms is not None
        ]

    def _runs(self, agent_version_id: str = "") -> Iterator[_Run]:
        """All runs, or those of one version."""
        for (validator, race_id, agent), counts in self._board.runs.items():
            row, race = self.rows.get(agent), self._by_id.get(race_id)
            if row is None or agent_version_id not in ("", agent):
                continue
            status: RunStatus = "RUNNING"
            score = None
            if not race_id:
                status = "SUCCESS" if self._state(row) == "ELIGIBLE" else "RUNNING"
                score = self._known(row)["final_score"]
            elif race is not None and _race_status(race) == "RACE_COMPLETE":
                standing = _standing(_settlement(race), agent)
                status, score = "SUCCESS", fraction(standing.race_score_e4) if standing else None
            elif race is not None and _race_status(race) == "RACE_CANCELLED":
                status = "CANCELLED"
            yield _Run(row, validator, race_id, race, counts, status, score)


def violation(rule: str, severity: str, message: str, line: int) -> Answer:
    """What the gate, or the door before it, has against a file. `line` 0: the file as a whole."""
    return {"rule": rule, "severity": severity, "message": message, "line": line}


def block_time_ms(blocks: int, now_ms: int) -> int:
    """When a block comes that is so many blocks away, at the chain's own pace: an estimate, in unix milliseconds."""
    return now_ms + max(0, blocks) * BLOCK_MS


def _run(run: _Run) -> Answer:
    return {
        "eval_run_id": run.uuid,
        "agent_version_id": version_uuid(run.row.agent_version_id),
        "validator_hotkey": run.validator,
        "status": run.status,
        "claimed_at": utc_text(run.counts.first_ms),
        "completed_at": None if run.status == "RUNNING" else utc_text(run.counts.last_ms),
        "is_included": run.status == "SUCCESS",
    }


def _by_agent(statuses: Sequence[SubmissionStatus]) -> dict[str, list[SubmissionStatus]]:
    found: dict[str, list[SubmissionStatus]] = defaultdict(list)
    for one in statuses:
        found[agent_uuid(one.hotkey, one.name)].append(one)
    return found


def _settlement(race: RaceView) -> SettlementRecord | None:
    """The settlement of a race that everybody may know."""
    return race.settlement if is_told(race) else None


def _race_status(race: RaceView) -> RaceStatus:
    record = _settlement(race)
    if record is not None and record.state == "settled":
        return "RACE_COMPLETE"
    if record is not None or (race.state is not None and race.state.stage == "cancelled"):
        return "RACE_CANCELLED"
    return "QUALIFYING_OPEN" if race.moment == "open" else "RACE_RUNNING"


def _field(race: RaceView) -> tuple[Candidate, ...]:
    """Who races, once the field is fixed on chain."""
    if race.state is not None and race.state.field is not None:
        return race.state.field.field
    record = _settlement(race)
    return record.inputs.field if record is not None and record.inputs is not None else ()


def _standing(record: SettlementRecord | None, agent_version_id: str) -> Standing | None:
    rows = record.standings if record is not None else ()
    return next((row for row in rows if row.agent_version_id == agent_version_id), None)
