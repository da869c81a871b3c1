"""Where a hotkey's versions stand, in the words of the published SN15 API: from `arena.door.status`, and what the board
says of the same version, so that a miner and the public read one number and one time.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from arena.api.sn15.answers import AgentVersionState, RaceStatus, Violation
from arena.api.sn15.names import agent_uuid, fraction, race_uuid, utc_text, version_uuid
from arena.api.sn15.picture import CLOSED, Picture
from arena.chain.block_times import BLOCK_MS
from arena.door.sn15.answers import OwnAgent, OwnAgents, OwnVersion, OwnVersionStatus
from arena.door.status import SubmissionStatus
from arena.store.port import SubmissionState

_STATES: dict[SubmissionState, AgentVersionState] = {
    "waiting": "RECEIVED",
    "withdrawn": "CANCELLED",
    "refused": "DISCARDED",
    "rejected": "DISCARDED",
    "review": "QUEUED",
    "accepted": "QUEUED",  # RUNNING from its first episode on
    "qualified": "ELIGIBLE",
    "unqualified": "ELIGIBLE",
}


class OwnVersions:
    """The versions of one hotkey at one moment."""

    def __init__(self, picture: Picture, statuses: Sequence[SubmissionStatus], now_ms: int) -> None:
        """`statuses` are the door's; `now_ms` is unix milliseconds."""
        self._picture, self._statuses, self._now_ms = picture, statuses, now_ms

    def one(self, agent_version_id: str) -> OwnVersionStatus | None:
        """The version with that UUID, or None."""
        told = next((each for each in self._statuses if version_uuid(each.agent_version_id) == agent_version_id), None)
        if told is None:
            return None
        row = self._picture.rows.get(told.agent_version_id)
        public = self._picture.status(row) if row else None
        state = _state(told)
        findings = [
            Violation(rule=one.rule, severity=one.severity, message=one.detail, line=one.line) for one in told.findings
        ]
        if told.failure is not None and not findings:
            message = told.failure.detail
            findings = [Violation(rule=told.failure.code, severity="", message=message, line=0)]
        return OwnVersionStatus(
            agent_version_id=agent_version_id,
            agent_name=told.name,
            miner_hotkey=told.hotkey,
            version_number=self._number(told),
            submitted_at=self._submitted_at(told),
            state=state,
            suite_id=self._picture.active_suite,
            final_score=_suite_score(told),
            race_score=public.race_score if public else None,
            release_state=public.release_state if public else "HIDDEN",
            code_available_at=public.code_available_at if public else None,
            is_active_qualifier=self._is_in(told, "QUALIFYING_OPEN", "RACE_RUNNING"),
            success_count=int(state == "ELIGIBLE"),
            active_count=int(state == "RUNNING"),
            is_closed=state in CLOSED,
            detail=told.what_to_do,
            violations=tuple(findings),
        )

    def agents(self) -> OwnAgents:
        """All of them by name, the newest first."""
        racing = next((one for one in self._statuses if self._is_in(one, "RACE_RUNNING")), None)
        opens_ms = self._opens_ms()
        return OwnAgents(
            agents=tuple(
                OwnAgent(
                    agent_id=agent_uuid(rows[0].hotkey, name),
                    miner_hotkey=rows[0].hotkey,
                    agent_name=name,
                    created_at=self._submitted_at(rows[-1]),
                    latest_version=self._listed(rows[0]),
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
        return tuple(self._listed(each) for each in named.get(agent_id, ()))

    def _is_in(self, told: SubmissionStatus, *wanted: RaceStatus) -> bool:
        """Whether one of its races stands so for the public."""
        races = (self._picture.race(race_uuid(race.race_id)) for race in told.races)
        return any(self._picture.race_public(race).status in wanted for race in races if race)

    def _by_name(self) -> dict[str, list[SubmissionStatus]]:
        found: dict[str, list[SubmissionStatus]] = defaultdict(list)
        for each in self._statuses:
            found[each.name].append(each)
        return found

    def _listed(self, told: SubmissionStatus) -> OwnVersion:
        return OwnVersion(
            agent_version_id=version_uuid(told.agent_version_id),
            version_number=self._number(told),
            submitted_at=self._submitted_at(told),
            state=_state(told),
            final_score=_suite_score(told),
        )

    def _number(self, told: SubmissionStatus) -> int:
        return self._picture.number(told.agent_version_id) or self._picture.next_number(told.hotkey, told.name)

    def _submitted_at(self, told: SubmissionStatus) -> str:
        return self._picture.submitted_at(told.agent_version_id, told.received_ms)

    def _opens_ms(self) -> int:
        blocks = max((each.next_allowed_block - each.block for each in self._statuses), default=0)
        return block_time_ms(blocks, self._now_ms)


def block_time_ms(blocks: int, now_ms: int) -> int:
    """When a block comes that is so many blocks away, at the chain's own pace: an estimate, in unix milliseconds."""
    return now_ms + max(0, blocks) * BLOCK_MS


def _state(told: SubmissionStatus) -> AgentVersionState:
    is_running = told.state == "accepted" and told.qualifying is not None and told.qualifying.done > 0
    return "RUNNING" if is_running else _STATES[told.state]


def _suite_score(told: SubmissionStatus) -> float | None:
    return fraction(told.qualifying.score_e4) if told.qualifying is not None else None
