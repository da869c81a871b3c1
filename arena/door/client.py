"""A miner's side of the door: which doors there are, signed requests, answers of bounded size in bounded time; and the
agent at the top, by the public reads.

A source goes to validators of this subnet alone, in requests signed for that receiver, and no redirect or proxy is
followed: a door that the chain names has to be that hotkey's, one that its URL names of a hotkey that holds a permit.
As many are asked as the policy has qualify an agent at once, in the agent's own order; the others fetch it by its
commitment.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections.abc import Awaitable, Sequence
from typing import Annotated, TypeVar

import httpx2
import msgspec

from arena.api.rows import AgentDetail, ErrorAnswer, RaceDetail
from arena.chain.keys import HttpAuth
from arena.chain.port import Metagraph
from arena.door.answers import DoorState, SubmissionStatus
from arena.race.draw import permitted_validators, qualifying_order
from arena.records.log import agent_version_id
from arena.records.model import SettlementRecord
from arena.submissions.submission import SignedSubmission
from foundation.bounded_http import UnfitAnswerError, ask
from foundation.canonical import UNREADABLE_JSON
from foundation.codes import CODES, PEER_AWAY, PEER_LIED, PEER_REFUSED, TAIL_LACKS
from foundation.durable_files import coded
from foundation.errors import ArenaError, Failure

CONNECT_S, ANSWER_S, ANSWER_BYTES_MAX = 5.0, 60.0, 16 << 20
NAMES_ASKED = 20

_Value = TypeVar("_Value")


class DoorPort(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What an exchange says of the door beside it."""

    port: Annotated[int, msgspec.Meta(ge=1, le=65_535)]


class DoorClient(contextlib.AbstractAsyncContextManager["DoorClient"]):
    """Asks doors, and the reads beside them, by their base URLs. Close it when done."""

    def __init__(self, auth: HttpAuth | None = None, *, answer_s: float = ANSWER_S) -> None:
        """`auth` None: only `place`, `winner` and `leaderboard` can be asked. `answer_s`: for a whole answer."""
        self._auth, self._answer_s = auth, answer_s
        self._http = httpx2.AsyncClient(
            timeout=httpx2.Timeout(answer_s, connect=CONNECT_S), follow_redirects=False, trust_env=False
        )

    async def __aexit__(self, *_: object) -> None:
        await self._http.aclose()

    async def place(self, url: str) -> tuple[str, DoorState]:
        """The address of the door that is here, or beside the exchange that is, and whose it is. Raises ArenaError
        U3040, U3042, or what the door refuses with."""
        try:
            content = await self._fetch("GET", url, "/v1/door")
        except ArenaError as error:
            if error.failure.code != TAIL_LACKS:
                raise
            raise ArenaError(PEER_LIED, f"{url} serves public reads; miners submit at another port of it") from error
        with contextlib.suppress(*UNREADABLE_JSON):
            url = at_port(url, msgspec.json.decode(content, type=DoorPort).port)
            content = await self._fetch("GET", url, "/v1/door")
        return url, _read(url, content, DoorState)

    async def submit(self, url: str, receiver: str, submission: SignedSubmission) -> SubmissionStatus:
        """Hand in a submission at the door of `receiver`. Raises as `place`."""
        form = {
            "agent_name": submission.name,
            "submitted_ms": str(submission.submitted_ms),
            "signature": submission.signature,
        }
        file = {"file": ("agent.py", submission.source.encode(), "text/x-python")}
        made = httpx2.Request("POST", "http://form", data=form, files=file)
        kind = {"content-type": made.headers["content-type"]}
        taken = await self._fetch("POST", url, "/v1/submissions", receiver, made.read(), kind)
        return _read(url, taken, SubmissionStatus)

    async def statuses(self, url: str, receiver: str) -> list[SubmissionStatus]:
        """Where all of the own submissions stand. Raises as `place`."""
        return _read(url, await self._fetch("GET", url, "/v1/submissions", receiver), list[SubmissionStatus])

    async def withdraw(self, url: str, receiver: str, agent_version_id: str) -> SubmissionStatus:
        """Take a version back. Raises as `place`."""
        left = await self._fetch("DELETE", url, f"/v1/submissions/{agent_version_id}", receiver)
        return _read(url, left, SubmissionStatus)

    async def leaderboard(self, url: str) -> tuple[SettlementRecord, dict[str, str]]:
        """The latest settled race, by the public reads at `url`, and the names of its first agents by version. Raises
        as `place`; V2082 where no race is settled."""
        race = _read(url, await self._fetch("GET", url, "/v1/leaderboard"), RaceDetail).race.race_id
        found = _read(url, await self._fetch("GET", url, f"/v1/races/{race}/settlement"), SettlementRecord)
        names = {}
        for row in found.standings[:NAMES_ASKED]:
            agent = await self._fetch("GET", url, f"/v1/agents/{row.agent_version_id}")
            names[row.agent_version_id] = _read(url, agent, AgentDetail).agent.name
        return found, names

    async def winner(self, url: str) -> tuple[AgentDetail, bytes]:
        """The agent at the top, by the public reads at `url`, and its file, which is the one that its version names.

        Raises as `place`: V2082 where no race is settled or none has a top, V2089 until the embargo is over.
        """
        race = _read(url, await self._fetch("GET", url, "/v1/leaderboard"), RaceDetail).race
        agent = race.top_agent_version_id
        if not agent:
            raise ArenaError("V2082", f"{race.race_id} has no agent at the top")
        detail = _read(url, await self._fetch("GET", url, f"/v1/agents/{agent}"), AgentDetail)
        source = await self._fetch("GET", url, f"/v1/agents/{agent}/source")
        if agent_version_id(detail.agent.miner_hotkey, hashlib.sha256(source).hexdigest()) != agent:
            raise ArenaError(PEER_LIED, f"{url}: the file is not the one that agent version {agent[:16]} names")
        return detail, source

    async def _fetch(
        self,
        method: str,
        url: str,
        route: str,
        receiver: str = "",
        body: bytes = b"",
        headers: dict[str, str] | None = None,
    ) -> bytes:
        target = url.rstrip("/") + route
        try:
            path = httpx2.URL(target).raw_path.decode("ascii")
            signed = self._auth.sign(method, path, receiver, body) if self._auth and receiver else {}
            answer = await ask(
                self._http,
                method,
                target,
                headers={**(headers or {}), **signed},
                content=body or None,
                bytes_max=ANSWER_BYTES_MAX,
                within_s=self._answer_s,
            )
        except UnfitAnswerError as error:
            raise ArenaError(PEER_LIED, f"{url}: {error}") from error
        except (httpx2.TransportError, httpx2.InvalidURL) as error:
            raise ArenaError(PEER_AWAY, f"{url}: {str(error) or type(error).__name__}") from error
        if answer.is_success:
            return answer.content
        refused = _read(url, answer.content, ErrorAnswer)
        if refused.code not in CODES:
            raise ArenaError(PEER_REFUSED, f"{url}: {refused.code[:8]} {refused.message[:300]}")
        detail = refused.message.removeprefix(CODES[refused.code].title)  # alone it stands for no detail
        raise ArenaError(refused.code, f"line {refused.line}: {detail[:500]}" if refused.line else detail[:500])


def _read(url: str, content: bytes, kind: type[_Value]) -> _Value:
    with coded(f"{url}: no answer of a validator", PEER_LIED):
        return msgspec.json.decode(content, type=kind)


class DoorAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What one validator's door said: its state, the caller's submissions, that it took one, or why it would not."""

    url: str
    state: DoorState | None = None
    submissions: tuple[SubmissionStatus, ...] = ()
    taken: SubmissionStatus | None = None
    failure: Failure | None = None

    @property
    def validator(self) -> str:
        """Whose it is, "" while that is not known."""
        return self.state.validator if self.state is not None else ""


async def find_doors(client: DoorClient, metagraph: Metagraph, urls: Sequence[str] = ()) -> list[DoorAnswer]:
    """The doors at these URLs, or where the chain says that validators are. One that fails has its reason."""
    permitted = frozenset(permitted_validators(metagraph))
    wanted = dict.fromkeys(urls, permitted)
    if not urls:
        named = [each for each in metagraph.neurons if each.endpoint and each.hotkey in permitted]
        wanted = {each.endpoint: frozenset({each.hotkey}) for each in named}
    looks = {url: _look(client, url, whose, metagraph.netuid) for url, whose in wanted.items()}
    return list(await asyncio.gather(*(_or_failure(DoorAnswer(url=url), look) for url, look in looks.items())))


async def read_statuses(client: DoorClient, doors: Sequence[DoorAnswer]) -> list[DoorAnswer]:
    """The same doors with what they tell of the own submissions; one that fails has its reason."""

    async def read(door: DoorAnswer) -> DoorAnswer:
        if door.state is None:
            return door
        return msgspec.structs.replace(door, submissions=tuple(await client.statuses(door.url, door.validator)))

    return list(await asyncio.gather(*(_or_failure(door, read(door)) for door in doors)))


def would_take(door: DoorAnswer, agent_version_id: str, block: int) -> DoorAnswer:
    """The same door; with the reason where it would not take this version now. To be asked before anything is
    committed, since a commitment in vain costs its miner time. `block`: in which it would be committed at the earliest.
    """
    own = door.submissions
    waiting = next((each for each in own if each.state == "waiting"), None)
    allowed = max((each.next_allowed_block for each in own), default=0)
    failure = None
    if door.state is not None and door.state.pause.is_paused:
        failure = Failure(code="V2200", detail=f"{door.validator}: {door.state.pause.reason}")
    elif any(each.agent_version_id == agent_version_id for each in own):
        return door
    elif waiting is not None:
        failure = Failure(code="A1012", detail=f"{waiting.name}, version {waiting.agent_version_id[:16]}")
    elif block < allowed:
        failure = Failure(code="A1006", detail=f"allowed from block {allowed}, and the chain is at {block - 1}")
    return msgspec.structs.replace(door, failure=failure) if failure else door


async def deliver(
    client: DoorClient, submission: SignedSubmission, doors: Sequence[DoorAnswer], wanted: int
) -> list[DoorAnswer]:
    """Hand a submission in until `wanted` validators took it, or no door is left. In the order they were asked."""
    by_validator = {door.validator: door for door in doors if door.state is not None}
    said: list[DoorAnswer] = []

    async def hand_in(door: DoorAnswer) -> DoorAnswer:
        taken = await client.submit(door.url, door.validator, submission)
        return msgspec.structs.replace(door, taken=taken)

    for validator in qualifying_order(submission.agent_version_id, by_validator):
        if sum(each.taken is not None for each in said) >= wanted:
            break
        door = by_validator[validator]
        said.append(await _or_failure(door, hand_in(door)))
    return said


async def _or_failure(door: DoorAnswer, asked: Awaitable[DoorAnswer]) -> DoorAnswer:
    try:
        return await asked
    except ArenaError as error:
        return msgspec.structs.replace(door, failure=error.failure)


async def _look(client: DoorClient, url: str, whose: frozenset[str], netuid: int) -> DoorAnswer:
    url, place = await client.place(url)
    if place.validator not in whose:
        raise ArenaError(PEER_LIED, f"{url} is not the door of a validator with a permit on this subnet")
    if place.netuid != netuid:  # whose registrations and commitments are others
        raise ArenaError(PEER_LIED, f"{url} is a door of netuid {place.netuid}, and this is netuid {netuid}")
    return DoorAnswer(url=url, state=place)


def at_port(url: str, port: int) -> str:
    """The same host at another port."""
    return str(httpx2.URL(url).copy_with(port=port, path="/", query=None)).rstrip("/")
