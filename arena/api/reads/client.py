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


def read_winner(url: str) -> WinnerFile:
    """The agent at the top, by the public reads at `url`.

    Raises ArenaError V2084 where they don't answer or speak something else, V2082 where no race is settled or none has
    a top, V2089 until the embargo is over.
    """
    with httpx.Client(base_url=url, timeout=TIMEOUT_S, follow_redirects=False, trust_env=False) as http:
        race = _value(_get(http, "/v1/leaderboard"), RaceDetail).race
        agent = race.top_agent_version_id
        if not agent:
            raise ArenaError("V2082", f"{race.race_id} has no agent at the top")
        detail = _value(_get(http, f"/v1/agents/{agent}"), AgentDetail)
        source = _get(http, f"/v1/agents/{agent}/source")
    if agent_version_id(detail.agent.miner_hotkey, hashlib.sha256(source).hexdigest()) != agent:
        raise ArenaError("V2084", f"{url}: the file is not the one that agent version {agent[:16]} names")
    return WinnerFile(race_id=race.race_id, agent=detail, source=source)


def _get(http: httpx.Client, target: str) -> bytes:
    try:
        with http.stream("GET", target, headers={"accept-encoding": "identity"}) as answer:
            content = bytearray()
            for piece in answer.iter_raw():
                content += piece
                if len(content) > ANSWER_BYTES_MAX:
                    raise ArenaError("V2084", f"{http.base_url}: an answer of more than {ANSWER_BYTES_MAX} bytes")
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise ArenaError("V2084", f"{http.base_url}: {str(error) or type(error).__name__}") from error
    if answer.is_success:
        return bytes(content)
    refused = _value(bytes(content), ServedRefusal)
    raise ArenaError(refused.code if refused.code in CODES else "V2084", refused.message)


def _value(content: bytes, kind: type[_Value]) -> _Value:
    try:
        return msgspec.json.decode(content, type=kind)
    except UNREADABLE_JSON as error:
        raise ArenaError("V2084", "no answer of an arena's public reads") from error
