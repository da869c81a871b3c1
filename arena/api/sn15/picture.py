"""The board in that API's terms: versions, races, leaderboard and top, as far as everybody may see them.

It takes every value from the same rows as `arena.api.reads` and asks the same rule, so nothing is public here
that is not public there.
"""

from __future__ import annotations

from collections import defaultdict

import msgspec

from arena.api.reads.agents import agent_rows, standings_of
from arena.api.reads.answers import ListedAgent
from arena.api.reads.board import Board, RaceView
from arena.api.sn15.answers import (
    AgentVersionPublic,
    AgentVersionState,
    AgentVersionStatus,
    Leaderboard,
    LeaderboardEntry,
    RacePublic,
    RaceQualifierPublic,
    RaceStatus,
    SuitePublic,
    TopAgent,
    TopHistory,
    TopHistoryEntry,
)
from arena.api.sn15.names import agent_uuid, fraction, race_uuid, suite_number, utc_text, version_uuid
from arena.policy import Policy
from arena.race.settlement.promotion import margin_e4
from arena.records.model import Candidate, SettlementRecord, Standing
from arena.store.port import StoredSubmission
from arena.visibility.rule import may_see
from foundation.canonical import UNREADABLE_JSON

_STATES: dict[str, AgentVersionState] = {
    "review": "QUEUED",
    "accepted": "QUEUED",  # RUNNING from its first episode on
    "qualified": "ELIGIBLE",
    "unqualified": "ELIGIBLE",  # through the suite, below the bar
    "rejected": "DISCARDED",
    "unknown": "RECEIVED",
}


CLOSED: frozenset[AgentVersionState] = frozenset({"ELIGIBLE", "DISCARDED", "CANCELLED"})  # no more runs are wanted


class Picture:
    """One look at the board. Make a new one after each refresh."""

    def __init__(self, board: Board) -> None:
        self._board = board
        self.rows = agent_rows(board)
        self._races = board.races()
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

    def qualifying_score(self, agent_version_id: str) -> float | None:
        """On the suite, once a field that holds it is fixed on chain."""
        candidate = self._candidates.get(agent_version_id)
        return fraction(candidate.qualifying_score_e4) if candidate else None

    def state(self, row: ListedAgent) -> AgentVersionState:
        """In that API's words."""
        return "RUNNING" if row.state == "accepted" and row.suite_episodes else _STATES[row.state]

    def status(self, row: ListedAgent) -> AgentVersionStatus:
        """Where a version stands."""
        state = self.state(row)
        found = self._standings.get(row.agent_version_id)
        opens = row.source.opens_ms
        return AgentVersionStatus(
            agent_version_id=version_uuid(row.agent_version_id),
            agent_name=row.name,
            miner_hotkey=row.miner_hotkey,
            version_number=self._numbers[row.agent_version_id],
            submitted_at=self.submitted_at(row.agent_version_id),
            state=state,
            suite_id=self.active_suite,
            final_score=self.qualifying_score(row.agent_version_id),
            race_score=fraction(found[-1][1].race_score_e4) if found else None,
            release_state="RELEASED" if row.source.is_public else "HIDDEN",
            code_available_at=utc_text(opens) if opens else None,
            is_active_qualifier=row.agent_version_id in self._candidates,
            success_count=int(state == "ELIGIBLE"),
            active_count=int(state == "RUNNING"),
            is_closed=state in CLOSED,
        )

    def received(self, row: StoredSubmission) -> AgentVersionStatus:
        """Where a submission stands that the gate has not looked at."""
        return AgentVersionStatus(
            agent_version_id=version_uuid(row.subject.agent_version_id),
            agent_name=row.name,
            miner_hotkey=row.subject.miner_hotkey,
            version_number=self.next_number(row.subject.miner_hotkey, row.name),
            submitted_at=self.submitted_at(row.subject.agent_version_id, row.received_ms),
            state="RECEIVED",
            suite_id=self.active_suite,
            final_score=None,
            race_score=None,
            release_state="HIDDEN",
            code_available_at=None,
            is_active_qualifier=False,
            success_count=0,
            active_count=0,
            is_closed=False,
        )

    def public_version(self, row: ListedAgent) -> AgentVersionPublic:
        """A version whose source is public."""
        status = self.status(row)
        released = status.code_available_at or status.submitted_at
        return AgentVersionPublic(
            agent_version_id=status.agent_version_id,
            agent_id=agent_uuid(row.miner_hotkey, row.name),
            agent_name=row.name,
            miner_hotkey=row.miner_hotkey,
            version_number=status.version_number,
            submitted_at=status.submitted_at,
            released_at=released,
            code_available_at=released,
            suite_id=status.suite_id,
            latest_final_score=status.final_score,
        )

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

    def race_score(self, race: RaceView, agent_version_id: str) -> float | None:
        """An agent's score in a race, once it is settled."""
        standing = _standing(_told(race), agent_version_id)
        return fraction(standing.race_score_e4) if standing else None

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
            LeaderboardEntry(
                rank=rank,
                agent_version_id=version_uuid(row.agent_version_id),
                agent_name=row.name,
                miner_hotkey=row.miner_hotkey,
                version_number=self._numbers[row.agent_version_id],
                final_score=candidate.qualifying_score_e4 / 10_000,
                race_score=fraction(race_scores.get(row.agent_version_id)),
                is_current_top=row.agent_version_id == top,
                was_top=bool(row.promoted_in) and row.agent_version_id != top,
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
            uuid = version_uuid(row.agent_version_id)
            entries.append(
                TopHistoryEntry(
                    agent_version_id=uuid,
                    agent_name=row.name,
                    miner_hotkey=row.miner_hotkey,
                    version_number=self._numbers[row.agent_version_id],
                    final_score=standing.race_score_e4 / 10_000,
                    top_at=utc_text(race.closes_ms or 0),
                    is_current_top=uuid == current,
                    was_top=uuid != current,
                    suite_id=self.active_suite,
                )
            )
        return TopHistory(suite_id=self.active_suite, entries=tuple(entries))

    def _promoted_ms(self, standing: Standing | None) -> int:
        races = self._board.promotions().get(standing.agent_version_id, ()) if standing else ()
        return max((race.closes_ms or 0 for race in races), default=0)


def _told(race: RaceView) -> SettlementRecord | None:
    """The settlement of a race that everybody may know."""
    return race.settlement if may_see("public", "score", race.moment).is_seen else None


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
        rules = msgspec.json.decode(record.inputs.policy, type=Policy).promotion
    except UNREADABLE_JSON:
        return None
    return margin_e4(rules, max(0, now_ms - promoted_ms))


def _version_numbers(rows: dict[str, ListedAgent]) -> dict[str, int]:
    counts: dict[tuple[str, str], int] = defaultdict(int)
    numbers = {}
    for row in sorted(rows.values(), key=lambda row: (row.commitment_block, row.agent_version_id)):
        counts[row.miner_hotkey, row.name] += 1
        numbers[row.agent_version_id] = counts[row.miner_hotkey, row.name]
    return numbers
