"""OpenAI-compatible endpoints: one attempt per `complete`, the error mapped to what the endpoint said.

Whose fault it is, retries and failover are the gateway's; what a reply says, `reply.py` reads. Agents' requests go out
as the bytes that the gateway hashed (`OpenAIUpstream`): the `openai` package would build the body anew, and importing
it costs a worker 0.6 s and 30 MB. What the project itself asks goes through that package (`SdkUpstream`). Both are
imported on first use.
"""

from __future__ import annotations

import contextlib
import functools
import re
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from foundation.codes import BAD_REQUEST, MODEL_BUSY, MODEL_FAILED, MODEL_UNREADABLE, NO_ENDPOINT, NO_TURN
from foundation.durable_files import coded, try_lock
from foundation.errors import ArenaError
from harness.inference.port import ModelReply, RetryLaterError, Upstream
from harness.inference.reply import read_reply

if TYPE_CHECKING:
    import httpx2
    from openai import OpenAI

    from foundation.bounded_http import BoundedClient


_DETAIL_CHARS = 300
_POLL_S = 0.02
_REPLY_BYTES = 8 << 20  # of one reply: a hundred times the text of the longest completion, with its token ids
_REQUEST_AT_FAULT = frozenset({400, 413, 422})
_ENDPOINT_MISSING = frozenset({401, 402, 403, 404, 405})


class OpenAIUpstream(Upstream):
    """An `Upstream` at `base_url` (with its version path, e.g. `https://host/v1`). Thread-safe."""

    name = ""

    def __init__(
        self, name: str, base_url: str, api_key: str, timeout_ms: int, *, at_once: int = 0, slots: Path = Path()
    ) -> None:
        """`name` is what ledger and messages show. `at_once`: requests that all processes which name the folder `slots`
        have here at once; 0: any number."""
        self.name = name
        self._slots = tuple(slots / f"{place}.lock" for place in range(at_once))
        self._timeout_s = timeout_ms / 1000
        self._access = base_url, api_key

    @functools.cached_property
    def _client(self) -> BoundedClient:
        return open_client(*self._access, self._timeout_s)

    def complete(self, request: str) -> ModelReply:
        """One attempt at `request`, the JSON text of a rebuilt request.

        Raises ArenaError as `successful`, U3003 for an unreadable reply, U3008 where no turn came within the timeout,
        V2027 where the folder of turns can't be written.
        """

        def once() -> httpx2.Response:
            headers = {"content-type": "application/json"}
            body, within_s = request.encode(), self._timeout_s
            return self._client.ask(
                "POST", "chat/completions", content=body, headers=headers, bytes_max=_REPLY_BYTES, within_s=within_s
            )

        with self._turn():
            raw = successful(once)
        return read_reply(raw, request)

    @contextlib.contextmanager
    def _turn(self) -> Iterator[None]:
        ends_s = time.monotonic() + self._timeout_s
        with contextlib.ExitStack() as held:
            while self._slots and not any(_is_taken(file, held) for file in self._slots):
                if time.monotonic() >= ends_s:
                    waited = f"all {len(self._slots)} requests at once were under way for {self._timeout_s:g} s"
                    raise ArenaError(NO_TURN, waited)
                time.sleep(_POLL_S)
            yield


def _is_taken(slot: Path, held: contextlib.ExitStack) -> bool:
    """Whether the slot was free and is `held` now. Its lock is of the open file: threads wait for each other too, and a
    process that was killed holds none."""
    with coded(slot, "V2027"), contextlib.ExitStack() as opened:
        slot.parent.mkdir(parents=True, exist_ok=True)
        file = opened.enter_context(slot.open("ab"))
        if try_lock(file):
            held.enter_context(opened.pop_all())
            return True
    return False


class SdkUpstream(OpenAIUpstream):
    """The same through the `openai` package, over our bounded transport: for what the project asks itself. It retries
    nothing."""

    @functools.cached_property
    def _sdk(self) -> OpenAI:
        import openai

        url, key = self._access
        return openai.OpenAI(
            base_url=url, api_key=key or "none", http_client=self._client, timeout=self._timeout_s, max_retries=0
        )

    def ask(self, call: Callable[[OpenAI], httpx2.Response], *, bytes_max: int = _REPLY_BYTES) -> bytes:
        """The body of the raw response that `call` gets. Raises ArenaError as `successful`."""

        def once() -> httpx2.Response:
            import openai

            try:
                with self._client.within(self._timeout_s, bytes_max):
                    return call(self._sdk)
            except openai.APIStatusError as error:
                return error.response
            except openai.APIConnectionError as error:
                raise error.__cause__ or error from None

        return successful(once)

    def complete(self, request: str) -> ModelReply:
        """As `OpenAIUpstream.complete`."""
        fields: dict[str, Any] = orjson.loads(request)
        raw = self.ask(lambda sdk: sdk.chat.completions.with_raw_response.create(**fields).http_response)
        return read_reply(raw, request)

    def close(self) -> None:
        """Close the connections."""
        self._client.close()


def successful(ask: Callable[[], httpx2.Response]) -> bytes:
    """The body of a successful answer.

    Raises ArenaError A1040 (the endpoint says the request is at fault), U3001 (missing endpoint, refused key or
    request, unknown model), U3002 (timeout, no connection, 5xx), U3003 (compressed or too long), U3004 (rate limit);
    RetryLaterError where the endpoint says when to come back.
    """
    import httpx2

    from foundation.bounded_http import UnfitAnswerError

    try:
        response = ask()
    except UnfitAnswerError as error:
        raise ArenaError(MODEL_UNREADABLE, str(error)) from error
    except (httpx2.HTTPError, httpx2.InvalidURL) as error:  # timeouts, connection errors, what is no HTTP
        raise ArenaError(MODEL_FAILED, explain_silence(error)) from error
    if response.is_success:
        return response.content
    detail, status = explain_refusal(response), response.status_code
    code, pause_ms = code_of_status(status), read_retry_after(response.headers)
    if pause_ms is None or code not in (MODEL_BUSY, MODEL_FAILED):
        raise ArenaError(code, detail)
    raise RetryLaterError(code, detail, retry_after_ms=pause_ms)


def code_of_status(status: int) -> str:
    """What an HTTP status of an endpoint means: the request is at fault, the endpoint missing, busy or broken."""
    if status in _REQUEST_AT_FAULT:
        return BAD_REQUEST
    if status in _ENDPOINT_MISSING:
        return NO_ENDPOINT
    return MODEL_BUSY if status == 429 else MODEL_FAILED


def open_client(base_url: str, api_key: str, timeout_s: float) -> BoundedClient:
    """An HTTP client of an OpenAI-compatible endpoint: paths are relative to `base_url`. `timeout_s` bounds connecting
    and each wait for bytes. Raises httpx2.InvalidURL."""
    from foundation.bounded_http import BoundedClient

    return BoundedClient(
        base_url=base_url,
        headers={b"authorization": f"Bearer {api_key or 'none'}".encode(), b"accept": b"application/json"},
        silence_s=timeout_s,
        connect_s=timeout_s,
        redirects=20,
        connections=None,  # how many requests run at once is bounded elsewhere
    )


def explain_refusal(response: httpx2.Response) -> str:
    """The status of a reply that failed, and the message of an error in the protocol's form; of other bodies
    nothing is repeated."""
    try:
        body: Any = orjson.loads(response.content)
        error = body.get("error", body)
        said = error["message"] if isinstance(error["message"], str) else ""
    except (ValueError, TypeError, LookupError, AttributeError):
        said = ""
    told = f"HTTP {response.status_code}: {said or response.reason_phrase}"[:_DETAIL_CHARS]
    return told.encode("utf-8", "replace").decode()


def explain_silence(error: Exception) -> str:
    """Why a request had no reply. A request that could not be written may show its key in its error's text."""
    import httpx2

    said = "" if isinstance(error, httpx2.LocalProtocolError) else str(error)
    of_system = re.fullmatch(r"\[Errno -?\d+\] (.+)", said, re.DOTALL)  # its words are plain, its number is not
    told = of_system[1][:1].lower() + of_system[1][1:] if of_system else f"{type(error).__name__}: {said}"
    return told[:_DETAIL_CHARS].encode("utf-8", "replace").decode()


def read_retry_after(headers: Mapping[str, str]) -> int | None:
    """Milliseconds until the endpoint wants to be asked again (RFC 9110, 10.2.3), or None when it does not say so in
    seconds, as model endpoints do. Keys are looked up in lower case."""
    given = headers.get("retry-after", "").strip()
    return int(given[:9]) * 1000 if given.isascii() and given.isdigit() else None
