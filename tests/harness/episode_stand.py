"""Small stand-ins for the ports of an episode: a toolbox over three products, a gateway that plays a script."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from foundation.canonical import foreign_text, text_hash
from foundation.errors import Failure
from harness.inference.port import GatewayAnswer, ModelReply
from harness.limits import EpisodeLimits, WorkMeter
from harness.sandbox.port import GuestCallError
from harness.sandbox.processes import descendants
from harness.session import EpisodePorts, EpisodeRules
from harness.tools.functions import ToolOutcome
from harness.trace import EmittedCall
from problems.model import Problem, RewardItem

IDS = ("1000000001", "1000000002", "1000000003")


def _schema(name: str, **properties: object) -> dict[str, object]:
    return {"type": "function", "function": {"name": name, "parameters": {"type": "object", "properties": properties}}}


SCHEMAS = json.dumps(
    [
        _schema("find_product", q={"type": "string"}, page={"type": "integer", "default": 1}, shop_id={}, price={}),
        _schema("view_product_information", product_ids={"type": "string"}),
        _schema("recommend_product", product_ids={"type": "string"}),
        _schema("terminate", status={"type": "string", "default": "success"}),
    ]
)


class StandToolbox:
    """find_product answers all ids (in one order), recommend and terminate behave as the real ones."""

    profile = "stand"
    schemas = SCHEMAS
    schemas_sha256 = text_hash(SCHEMAS)

    def dispatch(self, name: str, arguments: str, work: WorkMeter | None = None) -> ToolOutcome:
        try:
            decoded = json.loads(arguments)
        except ValueError:
            return self._malformed("arguments are not JSON")
        if name == "find_product":
            return ToolOutcome(result=foreign_text([{"product_id": i} for i in IDS]), found_ids=IDS)
        if name == "view_product_information":
            return ToolOutcome(result=foreign_text([{"product_id": decoded["product_ids"]}]))
        if name == "recommend_product":
            ids = tuple(part.strip() for part in decoded["product_ids"].split(","))
            return ToolOutcome(result='"recommended"', recommended_ids=ids)
        if name == "terminate":
            return ToolOutcome(result='"terminated"', is_final=True)
        return self._malformed(f"there is no tool {name}")

    def _malformed(self, sentence: str) -> ToolOutcome:
        return ToolOutcome(result=foreign_text({"error": sentence}), failure=Failure(code="A1050", detail=sentence))


def reply(*calls: tuple[str, dict[str, object]], content: str = "", prompt_tokens: int = 10) -> ModelReply:
    emitted = tuple(
        EmittedCall(call_id=f"c{index}", name=name, arguments=json.dumps(arguments))
        for index, (name, arguments) in enumerate(calls)
    )
    message = {
        "role": "assistant",
        "content": content,
        "tool_calls": [
            {"id": c.call_id, "type": "function", "function": {"name": c.name, "arguments": c.arguments}}
            for c in emitted
        ],
    }
    return ModelReply(
        model="stand",
        content=content,
        calls=emitted,
        finish_reason="tool_calls" if calls else "stop",
        prompt_tokens=prompt_tokens,
        completion_tokens=5,
        message=foreign_text(message),
    )


class Answering:
    """An upstream that says ok."""

    name = "stand"

    def complete(self, request: str) -> ModelReply:
        return reply(content="ok")

    def probe(self) -> bool:
        return True


class StandGateway:
    """Plays replies in order, then the last one for ever; refuses a request without messages."""

    def __init__(self, replies: Sequence[ModelReply] = (reply(content="ok"),)) -> None:
        self._replies = list(replies)
        self.asked = 0

    def chat(self, params: dict[str, object], *, completion_tokens_left: int) -> GatewayAnswer:
        messages = params.get("messages")
        if not isinstance(messages, list) or not messages:
            raise GuestCallError("A1040", "messages is missing")
        answer = self._replies[min(self.asked, len(self._replies) - 1)]
        self.asked += 1
        texts = tuple(foreign_text(message) for message in messages)
        return GatewayAnswer(reply=answer, messages=texts, request_sha256=text_hash("".join(texts)), model_ms=7)


def problem() -> Problem:
    return Problem(
        problem_id="p-1",
        bucket="product",
        query="a red lamp",
        rewards=(RewardItem(product_id=IDS[0], title=("red lamp",)),),
    )


def rules(**limits: int) -> EpisodeRules:
    return EpisodeRules(
        policy_sha256="0" * 64, catalogue_sha256="1" * 64, limits=EpisodeLimits(**limits), models=("stand",)
    )


def ports(sandbox, gateway: StandGateway | None = None) -> EpisodePorts:
    return EpisodePorts(
        toolbox=StandToolbox(), gateway=gateway or StandGateway(), sandbox=sandbox, shown_bytes=lambda e: len(repr(e))
    )


def started_at(pid: int) -> str:
    """The start time of a living process; empty when it is gone or only waits to be reaped."""
    try:
        fields = Path("/proc", str(pid), "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] == "Z" else fields[19]


def is_alive(pid: int) -> bool:
    return bool(started_at(pid))


def wait_for(is_so: Callable[[], object], seconds: float = 20.0) -> bool:
    deadline = time.monotonic() + seconds
    while not is_so() and time.monotonic() < deadline:
        time.sleep(0.0005)
    return bool(is_so())


def newborn(before: set[int]) -> list[int]:
    """This process's descendants that were not there before, in order: other fixtures have processes of their own."""
    return [pid for pid in descendants(os.getpid()) if pid not in before]
