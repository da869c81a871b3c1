"""SN15's `src.agent.proxy_client` over the host: `ProxyClient` without a network, and the session of its environment.

Each path is one recorded request: GET /search/find_product and /search/view_product_information are tool calls, as is
POST /search/TOOL of the contract with nonces, by which an agent hands on a call as the model wrote it, POST
/inference/chat/completions is a completion, POST /environment/call is a turn of SN15's present contract, where a
problem has an environment; the searches answer 410 there, as on SN15. Parameters are read as SN15's server reads them,
so equal parameters give the same page: a query that the agent has URL-encoded itself stays encoded. Addresses, keys,
time-outs and retries are accepted and have no effect, since the host retries upstream faults itself and a refusal does
not heal; like there, a call that fails returns None.

An envelope is one turn: binding, `call_id`, `idempotency_key`, `turn` and either `calls` or one `action`. Each action
is one recorded tool call; what is kept here is only the order that SN15's session service asks for. A turn sent again
with its key is answered again and executes nothing. There is no simulated shopper: `user_message` is null.
"""

from __future__ import annotations

import itertools
import json
import logging
import os
import threading
from typing import Any, NamedTuple
from urllib.parse import parse_qsl

import sn15
from arena_sdk import ToolError, llm, tools

_JsonObject = dict[str, Any]
_ENDING = "terminate"
_numbers = itertools.count(1)


class EnvironmentSession:
    """One session, from any thread."""

    def __init__(self, environment: _JsonObject) -> None:
        """`environment` is the problem's, and gets its tools here."""
        self._binding: _JsonObject = environment["binding"]
        view: _JsonObject = environment["policy_view"]
        view["tools"] = tools.schemas()
        self._calls_max = int(view["max_calls_per_turn"])
        self._steps_max = int(view["max_steps"])
        self._answered: dict[str, tuple[str, _JsonObject]] = {}
        self._call_ids: set[str] = set()
        self._turns = self._actions = 0
        self._is_over = False
        self._lock = threading.Lock()

    def call(self, envelope: object) -> _JsonObject:
        """Execute one turn, or repeat the answer to it. Raises RefusedEnvelopeError."""
        if not isinstance(envelope, dict):
            raise sn15.RefusedEnvelopeError(422, "call envelope must be an object")
        for name, value in self._binding.items():
            if envelope.get(name) != value:
                raise sn15.RefusedEnvelopeError(409, f"{name} does not match the active session")
        call_id, key = _text(envelope, "call_id"), _text(envelope, "idempotency_key")
        turn = envelope.get("turn")
        if not isinstance(turn, int) or isinstance(turn, bool) or turn < 1:
            raise sn15.RefusedEnvelopeError(422, "turn must be a positive integer")
        calls = self._read_calls(envelope, call_id)
        asked = json.dumps([call_id, calls], sort_keys=True, default=str)
        with self._lock:
            if key in self._answered:
                before, answer = self._answered[key]
                if before != asked:
                    raise sn15.RefusedEnvelopeError(409, "idempotency key reused with a different call or action")
                return {**answer, "replayed": True}
            named = {call_id, *(each["call_id"] for each in calls)}
            if self._is_over:
                raise sn15.RefusedEnvelopeError(409, "session already reached a terminal observation")
            if named & self._call_ids:
                raise sn15.RefusedEnvelopeError(409, "call_id already belongs to another turn")
            if turn != self._turns + 1:
                raise sn15.RefusedEnvelopeError(
                    409, f"turn does not match session sequence: expected {self._turns + 1}, got {turn}"
                )
            self._call_ids |= named
            answer = self._execute(envelope, call_id, turn, calls)
            self._answered[key] = (asked, answer)
            return answer

    def _read_calls(self, envelope: _JsonObject, call_id: str) -> list[_JsonObject]:
        action, calls = envelope.get("action"), envelope.get("calls")
        if action is not None:
            if calls is not None:
                raise sn15.RefusedEnvelopeError(422, "set action or calls, not both")
            calls = [{"call_id": call_id, "action": action}]
        if not isinstance(calls, list) or not 0 < len(calls) <= self._calls_max:
            raise sn15.RefusedEnvelopeError(422, f"calls must be a list of 1 to {self._calls_max} items")
        for each in calls:
            if not isinstance(each, dict) or not isinstance(each.get("action"), dict):
                raise sn15.RefusedEnvelopeError(422, "each call must be an object with an action")
            _text(each, "call_id")
        if len({each["call_id"] for each in calls}) < len(calls):
            raise sn15.RefusedEnvelopeError(422, "call ids within one solver turn must be unique")
        return calls

    def _execute(self, envelope: _JsonObject, call_id: str, turn: int, calls: list[_JsonObject]) -> _JsonObject:
        self._turns = turn
        done = [{"call_id": each["call_id"], "observation": self._observe(each["action"])} for each in calls]
        self._is_over = self._is_over or turn >= self._steps_max
        answer = {
            **self._binding,
            "call_id": call_id,
            "turn": turn,
            "solver_turn_count": turn,
            "action_count": self._actions,
            "calls": done,
            "user_message": None,
            "provider_status": "complete",
            "environment_error": False,
            "replayed": False,
        }
        if envelope.get("calls") is None:
            answer["observation"] = done[0]["observation"]
        return answer

    def _observe(self, action: _JsonObject) -> _JsonObject:
        """One action's observation. What the model wrote wrong is an error to read, not the end of the turn."""
        if self._is_over:
            return {"observation": {}, "done": True, "error": "the session is over"}
        self._actions += 1
        name, arguments = action.get("name"), action.get("args")
        try:
            result = json.loads(tools.execute(str(name), {} if arguments is None else arguments))
        except (ToolError, TypeError, ValueError) as error:
            return {"observation": {}, "done": False, "error": str(error)}
        failed = isinstance(result, dict) and "error" in result and "code" in result
        self._is_over = name == _ENDING and not failed
        shown = result if isinstance(result, dict) else {"results": result}
        return {
            "observation": {} if failed else shown,
            "done": self._is_over,
            "error": result["error"] if failed else None,
        }


def _text(fields: _JsonObject, name: str) -> str:
    value = fields.get(name)
    if not isinstance(value, str) or not value:
        raise sn15.RefusedEnvelopeError(422, f"{name} must be a non-empty string")
    return value


logger = logging.getLogger(__name__)
_FILTERS = ("shop_id", "price", "sort", "service")
_OF_THE_CALL = frozenset({"nonce", "call_id", "tool_call_id", "tool_name", "name"})
_PAGE_MAX = 5
_NO_PAGE = 0  # find_product answers it with an empty page, as SN15's server answers one it cannot read


class InferenceStats:
    """SN15's counts of completions, for an agent that puts them into its dialogue; the record has the host's. It is
    SN15's log of requests too, of which nothing is kept."""

    def __init__(self, *_: object, **__: object) -> None:
        self._succeeded = self._failed = 0

    def record(self, *_: object, **__: object) -> None:
        """Nothing is kept."""

    def record_success(self, *_: object, **__: object) -> None:
        """One more completion."""
        self._succeeded += 1

    def record_failure(self, *_: object, **__: object) -> None:
        """One more request that was refused."""
        self._failed += 1

    def to_dict(self) -> dict[str, int]:
        """The counts under SN15's names."""
        counted = {"inference_success": self._succeeded, "inference_failed": self._failed}
        return {**counted, "inference_total": self._succeeded + self._failed}


RequestLog = InferenceStats


class PostResult(NamedTuple):
    """Either the decoded answer, or `kind`, `status` and `body` of what went wrong."""

    data: _JsonObject | None
    error: _JsonObject | None

    @property
    def ok(self) -> bool:
        """Whether there is an answer."""
        return self.data is not None


class ProxyClient:
    """The client that agents construct; one or many of them, from any thread."""

    def __init__(
        self,
        proxy_url: str | None = None,
        timeout: float = 120,
        max_retries: int = 3,
        retry_delay: float = 2,
        rate_limit_retry_delay: float = 5,
        api_key: str | None = None,
        **_: object,
    ) -> None:
        self.proxy_url = proxy_url or os.getenv("SANDBOX_PROXY_URL", "http://proxy:80")
        self.timeout = timeout
        self.max_retries = max_retries
        self.retry_delay = retry_delay
        self.rate_limit_retry_delay = rate_limit_retry_delay
        self.api_key = api_key or os.getenv("CHUTES_ACCESS_TOKEN")
        self.request_log = self.inference_stats = InferenceStats()

    def get(self, path: str, params: _JsonObject | None = None) -> Any:
        """The decoded answer of a search path, or None."""
        route, _, query = path.partition("?")
        if sn15.session() is not None and route.startswith("/search/"):
            return _fail(f"GET {path}", "410 gone: this contract has POST /environment/call")
        given = {**dict(parse_qsl(query)), **{k: v for k, v in (params or {}).items() if v is not None}}
        if route == "/search/find_product":
            return _execute("find_product", _search_arguments(given))
        if route == "/search/view_product_information":
            return _execute("view_product_information", {k: _first(given[k]) for k in ("product_ids",) if k in given})
        return _fail(f"GET {path}", "there is no such path")

    def post(self, path: str, json_data: _JsonObject | None = None) -> _JsonObject | None:
        """A completion in the shape of the OpenAI protocol, or the answer to one turn; None for what is refused."""
        return self.post_verbose(path, json_data).data

    def post_verbose(self, path: str, json_data: _JsonObject | None = None) -> PostResult:
        """The decoded answer, or why there is none."""
        try:
            if path == "/environment/call" and sn15.session() is not None:
                return PostResult(sn15.session().call(json_data), None)
            if path == "/inference/chat/completions":
                completion = _complete(json_data)
                self.inference_stats.record_success()
                return PostResult(completion, None)
            if path.startswith("/search/") and sn15.session() is None:
                return PostResult(self._dispatch_posted(path.removeprefix("/search/"), json_data), None)
            status, reason = 404, "there is no such path"
        except (ToolError, TypeError) as error:
            status, reason = 400, str(error)
        except sn15.RefusedEnvelopeError as error:
            status, reason = error.status, str(error)
        if path.startswith("/inference/"):
            self.inference_stats.record_failure()
        _fail(f"POST {path}", reason)
        return PostResult(None, {"kind": "upstream", "status": status, "body": reason})

    def parse_nonces(self, response_json: _JsonObject | None) -> dict[str, str]:
        """Always empty: here a call needs no nonce, the host matches it with the completion itself."""
        return {}

    def dispatch_tool(self, tool_name: str, arguments_raw: str, nonce: str = "", call_id: str = "") -> Any:
        """Run one of the model's calls with the arguments as it wrote them; the decoded result, or None."""
        sn15.note_nonce(tool_name)
        return _execute(tool_name, arguments_raw)

    def _dispatch_posted(self, tool_name: str, sent: _JsonObject | None) -> Any:
        """A call of the model's that was posted: its arguments under their name, or as the whole body."""
        given = {key: value for key, value in (sent or {}).items() if key not in _OF_THE_CALL}
        arguments = given.get("arguments", given.get("arguments_raw", given))
        return self.dispatch_tool(tool_name, arguments)


def _complete(json_data: _JsonObject | None) -> _JsonObject:
    asked = dict(json_data or {})
    model = _allowed(asked.pop("model", None))
    reply = llm.chat(asked.pop("messages", []), model=model, **asked)
    sn15.note_reply(reply.tool_calls)
    usage = {**reply.usage, "total_tokens": sum(reply.usage.values())}
    choice = {"index": 0, "message": reply.message, "finish_reason": reply.finish_reason}
    head = {"id": f"chatcmpl-{next(_numbers)}", "object": "chat.completion", "created": 0}  # a record holds no clock
    return {**head, "model": model, "choices": [choice], "usage": usage}


def _execute(name: str, arguments: _JsonObject | str) -> Any:
    result = json.loads(tools.execute(name, arguments))
    if isinstance(result, dict) and "error" in result and "code" in result:
        return _fail(name, str(result["error"]))
    return result


def _fail(what: str, reason: str) -> None:
    logger.error("%s failed: %s", what, reason)


def _search_arguments(given: _JsonObject) -> _JsonObject:
    filters = {key: _first(given[key]) for key in _FILTERS if key in given}
    return {"q": _first(given.get("q", "")), "page": _page(_first(given.get("page", ""))), **filters}


def _page(text: str) -> int:
    """1 to 5, or the page that is always empty: SN15's server knows no default page."""
    try:
        page = int(text) if text.isdigit() else _NO_PAGE
    except ValueError:  # a digit that is not decimal, such as a superscript two
        return _NO_PAGE
    return page if page <= _PAGE_MAX else _NO_PAGE


def _first(value: object) -> str:
    """A parameter as it arrives at a server that takes the first of several."""
    if isinstance(value, list | tuple):
        value = value[0] if value else ""
    return str(value)


def _allowed(model: object) -> str:
    """The model asked for when the run allows it, else the run's first: names differ between subnets."""
    known: list[str] = llm.models()
    if model in known or not known:
        return str(model)
    if model is not None:
        logger.warning("model %s is not one of this run; %s answers", model, known[0])
    return known[0]
