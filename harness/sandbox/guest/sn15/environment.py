"""SN15's present contract over the host: `problem_data["environment"]` and POST /environment/call.

An envelope is one turn: binding, `call_id`, `idempotency_key`, `turn` and either `calls` or one `action`. Each action
is one recorded tool call, so the host executes, attributes and counts it like any other; what is kept here is only the
order that SN15's session service asks for. A turn sent again with its key is answered again and executes nothing.
There is no simulated shopper: `user_message` is null.
"""

from __future__ import annotations

import json
import threading
from typing import Any

from arena_sdk import ToolError, tools
from sn15 import RefusedEnvelopeError

_JsonObject = dict[str, Any]
_ENDING = "terminate"


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
            raise RefusedEnvelopeError(422, "call envelope must be an object")
        for name, value in self._binding.items():
            if envelope.get(name) != value:
                raise RefusedEnvelopeError(409, f"{name} does not match the active session")
        call_id, key = _text(envelope, "call_id"), _text(envelope, "idempotency_key")
        turn = envelope.get("turn")
        if not isinstance(turn, int) or isinstance(turn, bool) or turn < 1:
            raise RefusedEnvelopeError(422, "turn must be a positive integer")
        calls = self._read_calls(envelope, call_id)
        asked = json.dumps([call_id, calls], sort_keys=True, default=str)
        with self._lock:
            if key in self._answered:
                before, answer = self._answered[key]
                if before != asked:
                    raise RefusedEnvelopeError(409, "idempotency key reused with a different call or action")
                return {**answer, "replayed": True}
            named = {call_id, *(each["call_id"] for each in calls)}
            if self._is_over:
                raise RefusedEnvelopeError(409, "session already reached a terminal observation")
            if named & self._call_ids:
                raise RefusedEnvelopeError(409, "call_id already belongs to another turn")
            if turn != self._turns + 1:
                raise RefusedEnvelopeError(
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
                raise RefusedEnvelopeError(422, "set action or calls, not both")
            calls = [{"call_id": call_id, "action": action}]
        if not isinstance(calls, list) or not 0 < len(calls) <= self._calls_max:
            raise RefusedEnvelopeError(422, f"calls must be a list of 1 to {self._calls_max} items")
        for each in calls:
            if not isinstance(each, dict) or not isinstance(each.get("action"), dict):
                raise RefusedEnvelopeError(422, "each call must be an object with an action")
            _text(each, "call_id")
        if len({each["call_id"] for each in calls}) < len(calls):
            raise RefusedEnvelopeError(422, "call ids within one solver turn must be unique")
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
        raise RefusedEnvelopeError(422, f"{name} must be a non-empty string")
    return value
