"""A client of the public reads: the agent at the top, with its file, from another machine.

Answers are bounded in size and time, no redirect is followed, and a file is handed on only if it is the one
that its agent version names.
"""

from __future__ import annotations

import hashlib
from typing import TypeVar

import httpx
import msgspec

from arena.api.client import ServedRefusal
from arena.api.reads.answers import AgentDetail, RaceDetail
from arena.submissions.model import agent_version_id
from foundation.bounded_http import BoundedClient, UnfitAnswerError
from foundation.canonical import UNREADABLE_JSON
from foundation.codes import CODES
from foundation.errors import ArenaError

TIMEOUT_S, ANSWER_BYTES_MAX = 30.0, 16 << 20

_Value = TypeVar("_Value")


class WinnerFile(msgspec.Struct, frozen=True, kw_only=True):
    """The agent at the top after the latest settled race, and its file."""

    race_id: str
    agent: AgentDetail
    source: bytes

    @property
    def score_e4(self) -> int | None:
        """What it scored in that race; None where it did not run in it."""
        return next((one.standing.race_score_e4 for one in self.agent.races if one.race_id == self.race_id), None)


def read_winner(url: str, *, timeout_s: float = TIMEOUT_S) -> WinnerFile:
    """The agent at the top, by the public reads at `url`. `timeout_s` bounds each of three answers as a whole.

    Raises ArenaError V2084 where they don't answer or speak something else, V2082 where no race is settled or none has
    a top, V2089 until the embargo is over.
    """
    with BoundedClient(base_url=url, silence_s=timeout_s, connect_s=timeout_s, trust_env=False) as http:
        race = _value(_get(http, "/v1/leaderboard", timeout_s), RaceDetail).race
        agent = race.top_agent_version_id
        if not agent:
            raise ArenaError("V2082", f"{race.race_id} has no agent at the top")
        detail = _value(_get(http, f"/v1/agents/{agent}", timeout_s), AgentDetail)
        source = _get(http, f"/v1/agents/{agent}/source", timeout_s)
    if agent_version_id(detail.agent.miner_hotkey, hashlib.sha256(source).hexdigest()) != agent:
        raise ArenaError("V2084", f"{url}: the file is not the one that agent version {agent[:16]} names")
    return WinnerFile(race_id=race.race_id, agent=detail, source=source)


def _get(http: BoundedClient, target: str, timeout_s: float) -> bytes:
    try:
        answer = http.ask("GET", target, bytes_max=ANSWER_BYTES_MAX, within_s=timeout_s)
    except (httpx.HTTPError, httpx.InvalidURL, UnfitAnswerError) as error:
        raise ArenaError("V2084", f"{http.base_url}: {str(error) or type(error).__name__}") from error
    if answer.is_success:
        return answer.content
    refused = _value(answer.content, ServedRefusal)
    raise ArenaError(refused.code if refused.code in CODES else "V2084", refused.message)


def _value(content: bytes, kind: type[_Value]) -> _Value:
    try:
        return msgspec.json.decode(content, type=kind)
    except UNREADABLE_JSON as error:
        raise ArenaError("V2084", "no answer of an arena's public reads") from error
