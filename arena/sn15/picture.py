"""The board in the terms of the published SN15 API: versions, races, leaderboard, runs, as far as everybody may see
them, and a miner's own versions from `arena.door.service`.

Field names and words are those of the models of the generated client `oro-sdk`, 7.0.0 and 7.0.2 alike; a field this
arena has no value for is null. Every value comes from the same rows as `arena.api.reads`. A run is what one validator
evaluates of one agent version in one race, or on the suite; counts of its records are all that is known of it before
the race is settled. No run has a lease: `lease_expires_at` and `last_heartbeat_at` are when its last record was made.
"""

from __future__ import annotations

import hashlib
import re
import uuid
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from fastapi import Query

from arena.api.board import Board, RaceView
from arena.api.rows import ListedAgent, agent_rows, by_commitment, standings_of
from arena.chain.real import BLOCK_MS
from arena.door.answers import SubmissionStatus
from arena.race.settle import readable_policy
from arena.race.weights import margin_e4
from arena.records.log import SHA256
from arena.records.model import SettlementRecord, Standing
from arena.records.port import StoredSubmission, SubmissionState

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
_EXECUTION = "legacy_shoppingbench"
_RUN = ("eval_run_id", "agent_version_id", "validator_hotkey", "status")
_ENDED = (*_RUN, "claimed_at", "completed_at", "is_included")
RUN_FIELDS = (
    *(*_ENDED, "suite_id", "lease_expires_at", "last_heartbeat_at", "validator_score", "phase", "race_id"),
    "race_number",
)
ONE_RUN_FIELDS = (*_ENDED, "agent_name", "version_number", "score", "execution_kind")
UNDER_WAY_FIELDS = (
    *(*_RUN, "agent_name", "miner_hotkey", "version_number", "started_at", "progress_percent", "phase", "race_id"),
)


class Picture:
    """One look at the board. Make a new one after each refresh."""

    def __init__(self, board: Board) -> None:
        self._board = board
        self.rows = agent_rows(board)
        self._by_id = {race.race_id: race for race in board.races()}
        self._standings = standings_of(board)
        self._settled = [(race, race.told) for race in board.races() if race.told is not None]
        self._numbers: dict[str, int] = {}
        counts = Counter[tuple[str, str]]()
        for row in sorted(self.rows.values(), key=by_commitment):
            counts[row.miner_hotkey, row.name] += 1
            self._numbers[row.agent_version_id] = counts[row.miner_hotkey, row.name]
        self._versions = counts  # of each hotkey under each name
        self._candidates = {one.subject.agent_version_id: one for race in board.races() for one in race.field}
        names = list(board.suites) or sorted(set(board.suite_episodes) - {""}) or ["s0"]
        self.suite_names = {suite_number(name): name for name in names}
        self.active_suite = next(iter(self.suite_names))

    # -- versions

    def version(self, wanted: str) -> ListedAgent | None:
        """The agent version with that UUID, or None."""
        return next((row for agent, row in self.rows.items() if version_uuid(agent) == wanted), None)

    def status(self, row: ListedAgent) -> Answer:
        """Where a version stands."""
        return self._stands(row.agent_version_id, row.name, row.miner_hotkey, self._state(row))

    def received(self, row: StoredSubmission) -> Answer:
        """Where a submission stands that the gate has not looked at."""
        subject = row.subject
        return self._stands(subject.agent_version_id, row.name, subject.miner_hotkey, "RECEIVED", row.received_ms)

    def own(self, status: SubmissionStatus) -> Answer:
        """Where one of a miner's own versions stands, with what its door tells beside it."""
        is_running = status.state == "accepted" and status.qualifying is not None and status.qualifying.done > 0
        state = "RUNNING" if is_running else _STATES[status.state]
        violations = [violation(one.rule, one.severity, one.detail, one.line) for one in status.findings]
        if status.failure is not None and not violations:
            violations = [violation(status.failure.code, "", status.failure.detail, 0)]
        stands = self._stands(status.agent_version_id, status.name, status.hotkey, state, status.received_ms)
        return stands | {
            "final_score": fraction(status.qualifying.score_e4) if status.qualifying else None,
            "is_active_qualifier": self._is_in(status, "QUALIFYING_OPEN", "RACE_RUNNING"),
            "detail": status.what_to_do,
            "violations": violations,
        }

    def own_agents(self, statuses: Sequence[SubmissionStatus], now_ms: int) -> Answer:
        """A hotkey's agents by name, the newest first, and when it may submit again. `now_ms` is unix milliseconds."""
        racing = next((one for one in statuses if self._is_in(one, "RACE_RUNNING")), None)
        opens_ms = block_time_ms(max((one.next_allowed_block - one.block for one in statuses), default=0), now_ms)
        agents = []
        for agent_id in dict.fromkeys(uuid_of("agent", one.hotkey, one.name) for one in statuses):
            versions = self.own_history(statuses, agent_id)
            named = {"agent_id": agent_id, "miner_hotkey": statuses[0].hotkey, "agent_name": versions[0]["agent_name"]}
            agents.append(named | {"created_at": versions[-1]["submitted_at"], "latest_version": versions[0]})
        return {
            "agents": agents,
            "can_submit": opens_ms <= now_ms and not any(one.state == "waiting" for one in statuses),
            "next_allowed_at": utc_text(opens_ms) if opens_ms > now_ms else None,
            "racing_agent_version_id": version_uuid(racing.agent_version_id) if racing else None,
            "racing_agent_id": uuid_of("agent", racing.hotkey, racing.name) if racing else None,
        }

    def own_history(self, statuses: Sequence[SubmissionStatus], agent_id: str) -> list[Answer]:
        """The versions of the agent with that UUID, the newest first; none where there is no such agent. Nothing is
        pinned here: of a hotkey's versions the one that qualified best races."""
        unpinned = {"is_selected_for_race": False, "is_pinnable": False}
        return [self.own(one) | unpinned for one in statuses if uuid_of("agent", one.hotkey, one.name) == agent_id]

    def public_version(self, row: ListedAgent) -> Answer:
        """A version whose source is public."""
        shown = self.status(row)
        released = shown["code_available_at"] or shown["submitted_at"]
        return {
            **self._names(row),
            "agent_id": uuid_of("agent", row.miner_hotkey, row.name),
            "submitted_at": shown["submitted_at"],
            "released_at": released,
            "code_available_at": released,
            "suite_id": self.active_suite,
            "latest_final_score": shown["final_score"],
        }

    def _state(self, row: ListedAgent) -> AgentVersionState:
        return "RUNNING" if row.state == "accepted" and row.suite_episodes else _STATES[row.state]

    def _names(self, row: ListedAgent) -> Answer:
        return {
            "agent_version_id": version_uuid(row.agent_version_id),
            "agent_name": row.name,
            "miner_hotkey": row.miner_hotkey,
            "version_number": self._numbers[row.agent_version_id],
        }

    def _stands(self, agent: str, name: str, hotkey: str, state: AgentVersionState, received_ms: int = 0) -> Answer:
        """A version in this state, with what everybody may know of how it did. `received_ms`: when it came, of one that
        no record tells of (unix milliseconds)."""
        row, candidate, found = self.rows.get(agent), self._candidates.get(agent), self._standings.get(agent)
        opens_ms, is_public = (row.source.opens_ms, row.source.is_public) if row else (None, False)
        return {
            "agent_version_id": version_uuid(agent),
            "agent_name": name,
            "miner_hotkey": hotkey,
            "version_number": self._numbers.get(agent, 1 + self._versions[hotkey, name]),
            "submitted_at": utc_text(self._board.first_seen_ms.get(agent, received_ms)),
            "state": state,
            "suite_id": self.active_suite,
            "success_count": int(state == "ELIGIBLE"),  # 1 once the suite is through
            "active_count": int(state == "RUNNING"),
            "is_closed": state in _CLOSED,
            "final_score": fraction(candidate.qualifying_score_e4) if candidate else None,
            "race_score": fraction(found[-1].standing.race_score_e4) if found else None,
            "release_state": "RELEASED" if is_public else "HIDDEN",
            "code_available_at": utc_text(opens_ms) if opens_ms else None,
            "is_active_qualifier": candidate is not None,
            "required_successes": 1,
        }

    def _is_in(self, status: SubmissionStatus, *wanted: RaceStatus) -> bool:
        """Whether one of a miner's version's races stands so for the public."""
        races = (self._by_id.get(one.race.race_id) for one in status.races)
        return any(_race_status(race) in wanted for race in races if race)

    # -- races

    def one_race(self, race_id: str) -> Answer | None:
        """The race with that UUID and its field, or None."""
        return next(
            (self._with_field(race) for race in self._by_id.values() if uuid_of("race", race.race_id) == race_id), None
        )

    def current_race(self) -> Answer:
        """The race that is not over yet, else the latest, with its field."""
        races = list(self._by_id.values())
        waiting = [race for race in races if _race_status(race) in ("QUALIFYING_OPEN", "RACE_RUNNING")]
        return self._with_field(next(iter([*waiting, *reversed(races)]), None))

    def history(self, suite_id: Suite = "", limit: Limit = 20, offset: Offset = 0) -> Answer:
        """Races that are over, newest first."""
        races = reversed(list(self._by_id.values()))
        over = [race for race in races if _race_status(race) in ("RACE_COMPLETE", "RACE_CANCELLED")]
        shown = [self.race_public(race) for race in over[offset : offset + limit]]
        return {"total": len(over), "limit": limit, "offset": offset, "races": shown}

    def _with_field(self, race: RaceView | None) -> Answer:
        return {"race": self.race_public(race) if race else None, "qualifiers": self.qualifiers(race) if race else ()}

    def race_public(self, race: RaceView) -> Answer:
        """A race; before its settlement without a winner or a score."""
        status, record = _race_status(race), race.told
        winner = _top(record) if status == "RACE_COMPLETE" else None
        row = self.rows.get(winner.agent_version_id) if winner else None
        return {
            "race_id": uuid_of("race", race.race_id),
            "suite_id": self.active_suite,
            "status": status,
            "race_number": race.number,
            "qualifying_closes_at": utc_text(race.closes_ms) if race.closes_ms else None,
            "winner_agent_version_id": version_uuid(winner.agent_version_id) if winner else None,
            "winner_score": fraction(winner.race_score_e4) if winner else None,
            "winner_agent_name": row.name if row else None,
            "qualifier_count": len(race.field) or len(record.standings if record else ()),
            "scored_count": self._board.race_episodes[race.race_id],
        }

    def qualifiers(self, race: RaceView) -> list[Answer]:
        """The field of a race; score and rank are null until it is settled."""
        shown = []
        for one in race.field:
            agent = one.subject.agent_version_id
            row, standing = self.rows.get(agent), _standing(race.told, agent)
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
        is_active = number == self.active_suite
        return {"suite_id": number, "suite_version": 1, "is_active": is_active, "execution_kind": _EXECUTION}

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
                "problem_id": uuid_of("problem", one.problem_id),
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
        scored = [
            (agent, one.qualifying_score_e4 or 0) for agent, one in self._candidates.items() if agent in self.rows
        ]
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
            standing = _top(record)
            races = self._board.promotions().get(record.top_agent_version_id, ())
            promoted_ms = max((race.closes_ms or 0 for race in races), default=0)
            if policy := readable_policy(record):
                margin = margin_e4(policy.promotion, max(0, now_ms - promoted_ms))
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
        entries, current = [], _top(self._settled[-1][1]) if self._settled else None
        for race, record in reversed(self._settled):
            standing = _top(record) if record.is_promotion else None
            row = self.rows.get(standing.agent_version_id) if standing else None
            if standing is not None and row is not None:
                is_top = current is not None and standing.agent_version_id == current.agent_version_id
                score, at = standing.race_score_e4 / 10_000, utc_text(race.closes_ms or 0)
                shown = {"final_score": score, "top_at": at, "is_current_top": is_top, "was_top": not is_top}
                entries.append(self._names(row) | shown | {"suite_id": self.active_suite})
        return {"suite_id": self.active_suite, "entries": entries}

    # -- runs

    def runs(self, agent_version_id: str) -> list[Answer] | None:
        """What validators ran of an agent version: the suite, and each race; None for no version."""
        row = self.version(agent_version_id)
        found = self._runs(RUN_FIELDS, row.agent_version_id) if row else ()
        return sorted(found, key=lambda run: (run["claimed_at"], run["eval_run_id"])) if row else None

    def run(self, eval_run_id: str) -> Answer | None:
        """The run with that UUID, or None."""
        return next((run for run in self._runs(ONE_RUN_FIELDS) if run["eval_run_id"] == eval_run_id), None)

    def under_way(self) -> list[Answer]:
        """The runs that are not over. Progress is 0 in a race: how much it draws is shown when it is settled."""
        return [run for run in self._runs(UNDER_WAY_FIELDS) if run["status"] == "RUNNING"]

    def waiting(self, suite_id: Suite = "", limit: Limit = 100, offset: Offset = 0) -> Answer:
        """Accepted versions of which no run has begun, first in, first out."""
        rows = [row for row in self.rows.values() if row.state == "accepted" and not row.suite_episodes]
        rows.sort(key=by_commitment)
        items = [
            {
                **self._names(row),
                "work_item_id": uuid_of("run", "", "", row.agent_version_id),
                "suite_id": self.active_suite,
                "queued_at": utc_text(self._board.first_seen_ms.get(row.agent_version_id, 0)),
                "required_successes": 1,
                "completed_successes": 0,
                "active_runs": 0,
                "remaining": 1,
                "phase": "QUALIFYING",
            }
            for row in rows[offset : offset + limit]
        ]
        active = len(self.under_way())
        summary = {"total_pending": len(rows), "total_runs_needed": len(rows), "total_runs_active": active}
        return {"summary": summary, "items": items}

    def validators(self) -> list[Answer]:
        """The validators whose logs are served here; one whose log is empty has nothing to show yet. A validator is
        registered since its log begins."""
        latest: dict[str, Answer] = {}
        for run in self._runs():
            if run["status"] == "RUNNING":
                latest[run["validator_hotkey"]] = run | {"version_id": run["agent_version_id"]}
        shown = ("agent_name", "version_id", "version_number", "started_at")
        return [
            {
                "hotkey": name,
                "status": "evaluating" if name in latest else "available",
                "registered_at": utc_text(log.first_recorded_ms),
                "last_seen_at": utc_text(log.last_recorded_ms),
                "current_agent": {field: latest[name][field] for field in shown} if name in latest else None,
            }
            for name, log in self._board.logs.items()
            if log.first_recorded_ms is not None and log.last_recorded_ms is not None
        ]

    def _runs(self, fields: Sequence[str] = (), agent_version_id: str = "") -> Iterator[Answer]:
        """All runs, or those of one version, with these fields or all; the one recorded last is the last."""
        whole = len(self._board.suites.get(self.suite_names[self.active_suite], ()))
        for (validator, race_id, agent), counts in sorted(self._board.runs.items(), key=lambda run: run[1].last_ms):
            row, race = self.rows.get(agent), self._by_id.get(race_id)
            if row is None or agent_version_id not in ("", agent):
                continue
            status: RunStatus = "RUNNING"
            score, began, last = None, utc_text(counts.first_ms), utc_text(counts.last_ms)
            if not race_id:
                status = "SUCCESS" if self._state(row) == "ELIGIBLE" else "RUNNING"
                candidate = self._candidates.get(agent)
                score = fraction(candidate.qualifying_score_e4) if candidate else None
            elif race is not None and _race_status(race) == "RACE_COMPLETE":
                standing = _standing(race.told, agent)  # the settled score, on which the validators agree
                status, score = "SUCCESS", fraction(standing.race_score_e4) if standing else None
            elif race is not None and _race_status(race) == "RACE_CANCELLED":
                status = "CANCELLED"
            made = self._names(row) | {
                "eval_run_id": uuid_of("run", validator, race_id, agent),
                "suite_id": self.active_suite,
                "validator_hotkey": validator,
                "status": status,
                "claimed_at": began,
                "started_at": began,
                "completed_at": None if status == "RUNNING" else last,
                "lease_expires_at": last,
                "last_heartbeat_at": last,
                "is_included": status == "SUCCESS",
                "validator_score": score,
                "score": score,
                "progress_percent": min(100.0, 100.0 * counts.episodes / whole) if whole and not race else 0.0,
                "phase": "RACE" if race else "QUALIFYING",
                "race_id": uuid_of("race", race.race_id) if race else None,
                "race_number": race.number if race else None,
                "execution_kind": _EXECUTION,
            }
            yield {name: made[name] for name in fields or made}


def violation(rule: str, severity: str, message: str, line: int) -> Answer:
    """What the gate, or the door before it, has against a file. `line` 0: the file as a whole."""
    return {"rule": rule, "severity": severity, "message": message, "line": line}


def block_time_ms(blocks: int, now_ms: int) -> int:
    """When a block comes that is so many blocks away, at the chain's own pace: an estimate, in unix milliseconds."""
    return now_ms + max(0, blocks) * BLOCK_MS


def _race_status(race: RaceView) -> RaceStatus:
    if race.told is not None and race.told.state == "settled":
        return "RACE_COMPLETE"
    if race.told is not None or (race.state is not None and race.state.stage == "cancelled"):
        return "RACE_CANCELLED"
    return "QUALIFYING_OPEN" if race.moment == "open" else "RACE_RUNNING"


def _standing(record: SettlementRecord | None, agent_version_id: str) -> Standing | None:
    rows = record.standings if record is not None else ()
    return next((row for row in rows if row.agent_version_id == agent_version_id), None)


def _top(record: SettlementRecord | None) -> Standing | None:
    return _standing(record, record.top_agent_version_id) if record else None


_DIGITS = re.compile(r"\d{1,6}$")


def version_uuid(agent_version_id: str) -> str:
    """The UUID of an agent version."""
    is_sha256 = SHA256.fullmatch(agent_version_id)
    return _uuid8(bytes.fromhex(agent_version_id)) if is_sha256 else uuid_of("version", agent_version_id)


def uuid_of(kind: str, *parts: str) -> str:
    """The UUID of a race or problem by its id, of an agent (all versions of one name) by hotkey and name, and of a run
    by validator, race ("": the suite) and agent version."""
    return _uuid8(hashlib.sha256("\n".join((f"agent-arena/sn15/{kind}", *parts)).encode()).digest())


def suite_number(suite: str) -> int:
    """The number at the end of a suite's name; 0 for a name without one."""
    found = _DIGITS.search(suite)
    return int(found.group()) if found else 0


def utc_text(unix_ms: int) -> str:
    """A time as that API writes it."""
    return datetime.fromtimestamp(unix_ms / 1000, UTC).isoformat().replace("+00:00", "Z")


def fraction(score_e4: int | None) -> float | None:
    """A score in ten-thousandths as a fraction."""
    return None if score_e4 is None else score_e4 / 10_000


def _uuid8(digest: bytes) -> str:
    """48 bits, the version, 12 bits, the variant, 62 bits. The standard library makes these from Python 3.14 on."""
    bits = int.from_bytes(digest[:16])
    bits = bits & ~(0xF << 76) & ~(0x3 << 62) | 8 << 76 | 2 << 62
    return str(uuid.UUID(int=bits))
