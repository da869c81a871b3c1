"""Evaluation runs in that API's terms. Here a run is what one validator evaluates of one agent version in one race, or
on the suite; counts of its records are all that is known of it before the race is settled.

As `arena.api.sn15.picture`: nothing is public here that is not public in `arena.api.reads`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple

from arena.api.reads.answers import ListedAgent
from arena.api.reads.board import Board, RunCounts
from arena.api.sn15.answers import (
    CurrentAgent,
    RacePublic,
    RunDetail,
    RunPublic,
    RunStatus,
    RunUnderWay,
    ValidatorPublic,
    WaitingSummary,
    WaitingVersion,
    WaitingVersions,
)
from arena.api.sn15.names import run_uuid, utc_text, version_uuid
from arena.api.sn15.picture import Picture


class _VersionRun(NamedTuple):
    validator: str
    row: ListedAgent
    counts: RunCounts
    race: RacePublic | None  # None: the suite
    status: RunStatus
    score: float | None
    eval_run_id: str

    @property
    def phase(self) -> Literal["QUALIFYING", "RACE"]:
        return "QUALIFYING" if self.race is None else "RACE"

    @property
    def completed_at(self) -> str | None:
        return None if self.status == "RUNNING" else utc_text(self.counts.last_ms)


class Runs:
    """The runs of one look at the board."""

    def __init__(self, board: Board, picture: Picture) -> None:
        self._board, self._picture = board, picture
        self._races = {race.race_id: race for race in board.races()}

    def of(self, agent_version_id: str) -> list[RunPublic]:
        """What validators ran of a version, in the order in which they began."""
        found = sorted(self._every(agent_version_id), key=lambda run: (run.counts.first_ms, run.eval_run_id))
        return [
            RunPublic(
                eval_run_id=run.eval_run_id,
                agent_version_id=version_uuid(agent_version_id),
                suite_id=self._picture.active_suite,
                validator_hotkey=run.validator,
                status=run.status,
                claimed_at=utc_text(run.counts.first_ms),
                lease_expires_at=utc_text(run.counts.last_ms),
                last_heartbeat_at=utc_text(run.counts.last_ms),
                completed_at=run.completed_at,
                is_included=run.status == "SUCCESS",
                validator_score=run.score,
                phase=run.phase,
                race_id=run.race.race_id if run.race else None,
                race_number=run.race.race_number if run.race else None,
            )
            for run in found
        ]

    def detail(self, eval_run_id: str) -> RunDetail | None:
        """The run with that UUID, or None."""
        run = next((run for run in self._every() if run.eval_run_id == eval_run_id), None)
        if run is None:
            return None
        return RunDetail(
            eval_run_id=eval_run_id,
            agent_version_id=version_uuid(run.row.agent_version_id),
            agent_name=run.row.name,
            validator_hotkey=run.validator,
            status=run.status,
            version_number=self._picture.number(run.row.agent_version_id),
            claimed_at=utc_text(run.counts.first_ms),
            completed_at=run.completed_at,
            score=run.score,
            is_included=run.status == "SUCCESS",
        )

    def under_way(self) -> list[RunUnderWay]:
        """The runs that are not over."""
        return [
            RunUnderWay(
                eval_run_id=run.eval_run_id,
                agent_version_id=version_uuid(run.row.agent_version_id),
                agent_name=run.row.name,
                version_number=self._picture.number(run.row.agent_version_id),
                miner_hotkey=run.row.miner_hotkey,
                validator_hotkey=run.validator,
                status=run.status,
                started_at=utc_text(run.counts.first_ms),
                progress_percent=self._percent(run),
                phase=run.phase,
                race_id=run.race.race_id if run.race else None,
            )
            for run in self._every()
            if run.status == "RUNNING"
        ]

    def waiting(self, limit: int, offset: int) -> WaitingVersions:
        """Accepted versions of which no run has begun, first in, first out."""
        rows = [row for row in self._picture.rows.values() if row.state == "accepted" and not row.suite_episodes]
        rows.sort(key=lambda row: (row.commitment_block, row.agent_version_id))
        items = tuple(
            WaitingVersion(
                work_item_id=run_uuid("", "", row.agent_version_id),
                agent_version_id=version_uuid(row.agent_version_id),
                agent_name=row.name,
                version_number=self._picture.number(row.agent_version_id),
                miner_hotkey=row.miner_hotkey,
                suite_id=self._picture.active_suite,
                queued_at=self._picture.submitted_at(row.agent_version_id),
            )
            for row in rows[offset : offset + limit]
        )
        active = sum(run.status == "RUNNING" for run in self._every())
        summary = WaitingSummary(total_pending=len(rows), total_runs_needed=len(rows), total_runs_active=active)
        return WaitingVersions(summary=summary, items=items)

    def validators(self) -> list[ValidatorPublic]:
        """The validators whose logs are served here; one whose log is empty has nothing to show yet."""
        latest: dict[str, _VersionRun] = {}
        for run in sorted(self._every(), key=lambda run: run.counts.last_ms):
            if run.status == "RUNNING":
                latest[run.validator] = run
        return [
            ValidatorPublic(
                hotkey=name,
                status="evaluating" if name in latest else "available",
                registered_at=utc_text(log.first_recorded_ms),
                last_seen_at=utc_text(log.last_recorded_ms),
                current_agent=CurrentAgent(
                    agent_name=latest[name].row.name,
                    version_id=version_uuid(latest[name].row.agent_version_id),
                    version_number=self._picture.number(latest[name].row.agent_version_id),
                    started_at=utc_text(latest[name].counts.first_ms),
                )
                if name in latest
                else None,
            )
            for name, log in self._board.logs.items()
            if log.first_recorded_ms is not None and log.last_recorded_ms is not None
        ]

    def _every(self, agent_version_id: str = "") -> Iterator[_VersionRun]:
        """All runs, or those of one version."""
        shown = {name: self._picture.race_public(race) for name, race in self._races.items()}
        for (validator, race_id, agent), counts in self._board.runs.items():
            row = self._picture.rows.get(agent)
            if row is None or agent_version_id not in ("", agent):
                continue
            race = shown.get(race_id)
            status: RunStatus = "RUNNING"
            score = None
            if not race_id:
                status = "SUCCESS" if self._picture.state(row) == "ELIGIBLE" else "RUNNING"
                score = self._picture.qualifying_score(agent)
            elif race is not None and race.status == "RACE_COMPLETE":
                status, score = "SUCCESS", self._picture.race_score(self._races[race_id], agent)
            elif race is not None and race.status == "RACE_CANCELLED":
                status = "CANCELLED"
            yield _VersionRun(validator, row, counts, race, status, score, run_uuid(validator, race_id, agent))

    def _percent(self, run: _VersionRun) -> float:
        whole = len(self._board.suites.get(self._picture.suite_names[self._picture.active_suite], ()))
        if run.race is not None or not whole:
            return 0.0
        return min(100.0, 100.0 * run.counts.episodes / whole)
