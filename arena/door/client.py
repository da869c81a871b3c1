"""A miner's side of the door: signed requests, and answers of bounded size in bounded time.

Nothing is sent to a door that is not the named hotkey's word by word: requests are signed for that receiver,
and no redirect or proxy is followed. A submission is sent again where the line broke: the door answers it alike.
"""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Annotated, TypeVar

import httpx
import msgspec

from arena.api.refusals import ErrorAnswer
from arena.chain.port import RequestAuth
from arena.door.app import DoorState
from arena.door.status import SubmissionStatus
from arena.door.submission_service import TakenSubmission
from arena.submissions.model import SignedSubmission
from foundation.backoff import Backoff
from foundation.bounded_http import UnfitAnswerError, ask
from foundation.canonical import UNREADABLE_JSON
from foundation.codes import CODES
from foundation.errors import ArenaError

CONNECT_S, PLACE_S, ANSWER_S, ANSWER_BYTES_MAX = 5.0, 10.0, 60.0, 16 << 20
TRIES = 3
_PAUSES = Backoff(first_ms=500, most_ms=4_000)
_AWAY, _WRONG = "U3040", "U3042"

_Value = TypeVar("_Value")


class DoorPort(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What an exchange says of the door beside it."""

    port: Annotated[int, msgspec.Meta(ge=1, le=65_535)]


class DoorClient:
    """Asks doors by their base URLs. Close it when done."""

    def __init__(
        self,
        auth: RequestAuth | None = None,
        netuid: int | None = None,
        *,
        place_s: float = PLACE_S,
        answer_s: float = ANSWER_S,
    ) -> None:
        """`auth` None: only `place` can be asked. `netuid`: signed with every request, so that no other subnet's door
        takes it. `place_s` and `answer_s`: for one attempt at a whole answer, of `place` and of everything else."""
        self._auth, self._netuid = auth, netuid
        self._place_s, self._answer_s = place_s, answer_s
        self._http = httpx.AsyncClient(
            timeout=httpx.Timeout(answer_s, connect=CONNECT_S), follow_redirects=False, trust_env=False
        )

    async def __aenter__(self) -> DoorClient:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self._http.aclose()

    async def place(self, url: str) -> DoorState | DoorPort:
        """Whose door it is, or at which port of this address it is. Raises ArenaError U3040, U3042, or what the door
        refuses with."""
        found = await self._ask("GET", url, "/v1/door", dict[str, msgspec.Raw], within_s=self._place_s)
        kind: type[DoorPort | DoorState] = DoorPort if found.keys() == {"port"} else DoorState
        try:
            return msgspec.json.decode(msgspec.json.encode(found), type=kind)
        except UNREADABLE_JSON as error:
            raise ArenaError(_WRONG, f"{url}: no answer of a door") from error

    async def submit(self, url: str, receiver: str, submission: SignedSubmission) -> TakenSubmission:
        """Hand in a submission at the door of `receiver`. Raises as `place`."""
        form = {
            "agent_name": submission.name,
            "submitted_ms": str(submission.submitted_ms),
            "signature": submission.signature,
        }
        file = {"file": ("agent.py", submission.source.encode(), "text/x-python")}
        made = httpx.Request("POST", "http://form", data=form, files=file)
        kind = {"content-type": made.headers["content-type"]}
        return await self._ask("POST", url, "/v1/submissions", TakenSubmission, receiver, made.read(), kind)

    async def statuses(self, url: str, receiver: str) -> list[SubmissionStatus]:
        """Where all of the own submissions stand. Raises as `place`."""
        return await self._ask("GET", url, "/v1/submissions", list[SubmissionStatus], receiver)

    async def withdraw(self, url: str, receiver: str, agent_version_id: str) -> SubmissionStatus:
        """Take a version back. Raises as `place`."""
        return await self._ask("DELETE", url, f"/v1/submissions/{agent_version_id}", SubmissionStatus, receiver)

    async def _ask(
        self,
        method: str,
        url: str,
        route: str,
        kind: type[_Value],
        receiver: str = "",
        body: bytes = b"",
        headers: dict[str, str] | None = None,
        within_s: float | None = None,
    ) -> _Value:
        for attempt in range(1, TRIES + 1):
            try:
                answer = await self._send(method, url.rstrip("/") + route, receiver, body, headers or {}, within_s)
                break
            except UnfitAnswerError as error:
                raise ArenaError(_WRONG, f"{url}: {error}") from error
            except (httpx.TransportError, httpx.InvalidURL) as error:
                if attempt == TRIES or isinstance(error, httpx.InvalidURL | httpx.UnsupportedProtocol):
                    raise ArenaError(_AWAY, f"{url}: {str(error) or type(error).__name__}") from error
                await asyncio.sleep(_PAUSES.pause_ms(attempt) / 1_000)
        try:
            if answer.is_success:
                return msgspec.json.decode(answer.content, type=kind)
            refused = msgspec.json.decode(answer.content, type=ErrorAnswer)
        except UNREADABLE_JSON as error:
            raise ArenaError(_WRONG, f"{url}: status {answer.status_code}, no answer of a door") from error
        if refused.code not in CODES:
            raise ArenaError("U3041", f"{url}: {refused.code[:8]} {refused.message[:300]}")
        detail = refused.message.removeprefix(CODES[refused.code].title)  # alone it stands for no detail
        raise ArenaError(refused.code, f"line {refused.line}: {detail[:500]}" if refused.line else detail[:500])

    async def _send(
        self, method: str, url: str, receiver: str, body: bytes, headers: dict[str, str], within_s: float | None
    ) -> httpx.Response:
        signed = {}
        if receiver:
            assert self._auth is not None, "only a signed request has a receiver"
            if self._netuid is not None:
                url = f"{url}?netuid={self._netuid}"
            signed = self._auth.sign(method, httpx.URL(url).raw_path.decode("ascii"), receiver, body)
        return await ask(
            self._http,
            method,
            url,
            headers={**headers, **signed},
            content=body or None,
            bytes_max=ANSWER_BYTES_MAX,
            within_s=within_s or self._answer_s,
        )
