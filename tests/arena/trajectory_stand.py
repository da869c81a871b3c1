"""Trajectories for the view tests: agents driven by hand through the real recorder, and records around their bodies."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from hypothesis import strategies as st

from arena.export.model import Trajectory
from arena.records.body import encode_body
from arena.records.model import EvaluationRecord, RecordContent, VerdictRecord
from foundation.canonical import foreign_text, text_hash
from harness.inference.port import ModelReply
from harness.limits import EpisodeLimits
from harness.session import Recorder
from harness.tools.registry import profile_schemas
from harness.trace import EmittedCall, EvaluationBody
from tests.arena.log_stand import HOST, START_MS, body, episode
from tests.harness.episode_stand import StandGateway, StandToolbox

replace = msgspec.structs.replace
SYSTEM = {"role": "system", "content": "You buy lamps."}
PLANNER = {"role": "system", "content": "You plan what a worker does. Write the plan in three sentences, no calls."}
QUERY = "a red lamp"
USER = {"role": "user", "content": QUERY}
SEARCH = ("find_product", {"q": "red lamp"})
RECOMMEND = ("recommend_product", {"product_ids": "1000000001"})
TERMINATE = ("terminate", {"status": "success"})


def says(*calls: tuple[str, dict[str, object]], content: str = "", reasoning: str = "", tag: str = "c") -> ModelReply:
    """What the model answers, with calls whose ids start with `tag`."""
    emitted = tuple(
        EmittedCall(call_id=f"{tag}{index}", name=name, arguments=json.dumps(arguments))
        for index, (name, arguments) in enumerate(calls)
    )
    message = {"role": "assistant", "content": content, "tool_calls": [_native(call) for call in emitted]}
    return ModelReply(
        model="stand-1",
        content=content,
        reasoning=reasoning,
        calls=emitted,
        finish_reason="tool_calls" if calls else "stop",
        prompt_tokens=10,
        completion_tokens=5,
        message=foreign_text(message if calls else {"role": "assistant", "content": content}),
    )


class Episode:
    """One episode: `chat` and `tool` are what an agent does, `body` is what the host made of it."""

    def __init__(self, replies: Sequence[ModelReply]) -> None:
        self.recorder = Recorder(StandToolbox(), StandGateway(replies), EpisodeLimits(), lambda _: 0, QUERY)

    def chat(self, *messages: dict[str, object]) -> dict[str, object]:
        """Ask the model; the assistant message to append."""
        answer = self.recorder.call("llm.chat", {"messages": list(messages)})
        sent = dict(answer["message"])
        if not sent.get("tool_calls"):
            sent.pop("tool_calls", None)
        return sent

    def tool(self, name: str, arguments: dict[str, object]) -> str:
        """Execute a call; its result."""
        return str(self.recorder.call("tool.call", {"name": name, "arguments": arguments})["result"])

    def answer(self, sent: dict[str, object]) -> list[dict[str, object]]:
        """Execute the calls of an assistant message; the tool messages to append."""
        return [
            tool_message(call["id"], self.tool(call["function"]["name"], json.loads(call["function"]["arguments"])))
            for call in sent.get("tool_calls", [])
        ]

    def body(self, **changes: object) -> EvaluationBody:
        """The body as the session would make it."""
        totals = self.recorder.totals
        made = replace(
            body(0),
            query=QUERY,
            messages=tuple(self.recorder.messages),
            events=tuple(self.recorder.events),
            recommended=self.recorder.recommended,
            is_agentic=totals.code_calls + totals.echoed_calls == 0,
            totals=totals,
            tools_sha256=text_hash(profile_schemas("sn15")),
        )
        return replace(made, **changes)


def tool_message(call_id: str, content: str) -> dict[str, object]:
    return {"role": "tool", "tool_call_id": call_id, "content": content}


def appending() -> EvaluationBody:
    """An agent that only appends: two turns, all calls the model's."""
    run = Episode(
        [
            says(SEARCH, content="I search.", reasoning="A lamp, red."),
            says(RECOMMEND, TERMINATE, content="The first fits.", reasoning="It is red.", tag="d"),
        ]
    )
    messages = [SYSTEM, USER]
    for _ in range(2):
        sent = run.chat(*messages)
        messages += [sent, *run.answer(sent)]
    return run.body()


def narrating() -> EvaluationBody:
    """An agent whose Python calls the tools and whose model only talks."""
    run = Episode([says(content="It is red."), says(content="It is cheap.")])
    run.tool(*SEARCH)
    run.chat({"role": "user", "content": "Why is the first red?"})
    run.tool(*RECOMMEND)
    run.chat({"role": "user", "content": "Why is it cheap?"})
    return run.body()


def trajectory(
    number: int = 1, made: EvaluationBody | None = None, *, day: int = 0, agent: str = "a1", **changes: object
) -> Trajectory:
    """A trajectory of a body, `day` days after the start."""
    made = appending() if made is None else made
    payloads, _ = episode(number, agent=agent)
    evaluation, verdict = payloads[1], payloads[2]
    assert isinstance(evaluation, EvaluationRecord)
    assert isinstance(verdict, VerdictRecord)
    evaluation = replace(
        evaluation,
        body_sha256=encode_body(made).body_sha256,
        totals=made.totals,
        is_agentic=made.is_agentic,
        stop=made.stop,
        outcome=changes.pop("outcome", evaluation.outcome),
        subject=replace(evaluation.subject, miner_hotkey=changes.pop("hotkey", "5miner")),
    )
    content = RecordContent(recorded_ms=START_MS + number + day * 86_400_000, host=HOST, payload=evaluation)
    made_of = Trajectory(
        validator="5validator",
        seq=number,
        content_sha256="ab" * 32,
        signature="cd" * 64,
        content=content,
        evaluation=evaluation,
        body=made,
        verdict=verdict.verdict,
        verdict_seq=number + 1,
        pool="train",
        cluster_id="c1",
    )
    return replace(made_of, **changes)


def _native(call: EmittedCall) -> dict[str, object]:
    return {"id": call.call_id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}


def wild(draw: Callable[[st.SearchStrategy], Any], texts: Sequence[str] = ()) -> EvaluationBody:
    """An agent that appends, prunes, forges, shortens, writes its dialogue anew and calls by itself, as it likes.
    `texts`: what its model may say beside `turn N`."""
    options = [SEARCH, RECOMMEND, ("find_product", {"q": "lamp"}), ("view_product_information", {"product_ids": "2"})]
    some = st.lists(st.sampled_from(options), max_size=2)
    replies = [
        says(*draw(some), content=draw(st.sampled_from([f"turn {number}", *texts])), tag=f"t{number}-")
        for number in range(4)
    ]
    run, messages = Episode(replies), [SYSTEM, USER]
    for number in range(len(replies)):
        sent = run.chat(*messages)
        match draw(st.sampled_from(["append", "prune", "forge", "shorten", "transcript", "other", "alone"])):
            case "append":
                messages += [sent, *run.answer(sent), USER]
            case "prune":
                messages = [USER, sent, *run.answer(sent), USER]
            case "forge":
                forged = {"id": "x", "type": "function", "function": {"name": "terminate", "arguments": "{}"}}
                messages += [{"role": "assistant", "content": "mine", "tool_calls": [forged]}, tool_message("x", "no")]
            case "shorten":
                messages += [sent, *({**one, "content": "short"} for one in run.answer(sent)), USER]
            case "transcript":
                results = [run.tool(*call) for call in draw(some)]
                messages = [SYSTEM, {"role": "user", "content": f"{QUERY} {sent['content']} {results} {number}"}]
            case "other":
                messages = [PLANNER, USER, {"role": "user", "content": f"n{number}"}]
            case "alone":
                messages.append({"role": "user", "content": run.tool(*SEARCH)})
    if draw(st.booleans()):
        run.tool(*TERMINATE)
    return run.body()
