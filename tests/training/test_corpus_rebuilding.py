"""Whatever form an agent keeps its dialogue in, its episode becomes one conversation, or a code, by recorded events."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.chat import Message
from harness.trace import Completion, EvaluationBody
from tests.arena.trajectory_stand import (
    QUERY,
    SEARCH,
    narrating,
    says,
    wild,
)
from tests.arena.trajectory_stand import Episode as Run
from tests.training.agent_styles import (
    TURNS,
    StyleRow,
    as_one_message,
    calls_in,
    codes,
    run_styles,
    spoken,
    table,
)
from tests.training.test_corpus_reader import as_trace
from training.corpus.gates import codes_of, gates
from training.corpus.model import Rebuilt, Rules, Trace
from training.models.render import Qwen3Codec


@pytest.mark.parametrize(
    ("shown", "lacks"),
    [
        (lambda parts: "\n".join(parts[:1] + parts[-1:]), ("calls", "results")),  # the last observation alone
        (lambda parts: "\n".join(part for part in parts if "<obs>" not in part), ("results",)),
        (lambda parts: "\n".join(part[:40] if "<obs>" in part else part for part in parts), ("results",)),  # cut
        (lambda parts: f"{QUERY}: so far {len(parts)} steps" if parts[1:] else parts[0], ("calls", "results")),
        (lambda parts: "\n".join(parts[1:]) or parts[0], ("query",)),
    ],
)  # fmt: skip
def test_a_dialogue_that_was_cut_or_summarised_says_what_its_model_was_not_shown(
    shown: Callable[[list[str]], str], lacks: tuple[str, ...]
) -> None:
    trace = as_trace(as_one_message(shown=shown))
    assert trace.rebuilt == Rebuilt(how=("events", "query", "text_calls"), lacks=lacks)
    assert codes(trace) == ("view_incomplete",)
    off = Rules(off=("coefficient", "recommend_arguments", "subtask", "view_incomplete"))
    assert codes_of(trace, off, gates()) == ()


def test_calls_of_the_agents_python_are_marked_and_not_learnt() -> None:
    trace = as_trace(narrating())
    calling = [message for message in trace.messages if message.calls]
    assert [message.is_model for message in calling] in ([], [False, False])
    run, texts = Run([says(content=spoken(turn)) for turn in TURNS[1:]]), [QUERY]
    texts.append(run.tool(*SEARCH))  # Python searches before the model is asked
    for turn in TURNS[1:]:
        run.chat({"role": "user", "content": "\n".join(texts)})
        texts += [spoken(turn), *(run.tool(*call) for call in turn[1])]
    trace = as_trace(run.body())
    assert trace.rebuilt == Rebuilt(how=("agent_calls", "events", "query", "text_calls"))
    assert [(m.is_model, [c.emitter for c in m.calls]) for m in trace.messages if m.calls] == [
        (False, ["code"]), (True, ["llm"]), (True, ["llm", "llm"])
    ]  # fmt: skip


@given(st.data())
def test_whatever_an_agent_does_only_what_was_recorded_stands_there(data: st.DataObject) -> None:
    body = wild(data.draw, ["", spoken(TURNS[0]), spoken(TURNS[1]), "<tool_call>[{</tool_call>"])
    trace = as_trace(body)
    if trace.provenance == "verbatim" or trace.rebuilt == Rebuilt(how=("text_calls",)):
        return
    turns = [event for event in body.events if isinstance(event, Completion)]
    own = [message for message in trace.messages if message.role == "assistant" and message.is_model]
    assert len(own) <= len(turns)
    position = 0
    for message in own:  # in order, each once
        while message.content.strip() not in turns[position].content:
            position += 1
        position += 1
    made = sorted((call.name, call.result, call.emitter == "llm") for call in calls_in(body))
    shown = []
    calls = {}
    for message in trace.messages:
        calls |= {call.id: (call, message.is_model) for call in message.calls}
        if message.role == "tool" and message.call_id in calls:
            call, is_model = calls[message.call_id]
            shown.append((call.name, message.content, is_model and call.emitter == "llm"))
    assert sorted(shown) == made


def _sent(message: dict[str, object]) -> Message:
    from training.rollouts.rollout import _message  # how a request becomes a sampler's prompt

    return _message(message)


README = Path(__file__).parents[2] / "training" / "corpus" / "README.md"
SAMPLED = ["several calls a turn, run together", "planner beside a worker"]


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> dict[str, StyleRow]:
    return run_styles(tmp_path_factory.mktemp("styles"))


@pytest.fixture(scope="module")
def codec() -> Qwen3Codec:
    from tests.training.stock import TOKENIZER  # torch: not for the tests of the corpus

    return Qwen3Codec(TOKENIZER)


def test_the_readme_has_the_table(rows: dict[str, StyleRow]) -> None:
    assert table(rows) in README.read_text("utf-8")


def prompts(trace: Trace, body: EvaluationBody, codec: Qwen3Codec) -> list[tuple[int, ...]]:
    """What was sent for each turn of the row, as a sampler would have tokenised it."""
    opening = trace.messages[0].content
    requests = [
        [msgspec.json.decode(body.messages[at]) for at in turn.request]
        for turn in body.events
        if isinstance(turn, Completion)
    ]
    own = [sent for sent in requests if sent[0]["content"] == opening]
    return [codec.prompt(tuple(map(_sent, sent)), trace.tools) for sent in own]


@pytest.mark.parametrize("name", SAMPLED)
def test_the_prompt_that_was_sent_is_the_training_prefix_token_for_token(
    name: str, rows: dict[str, StyleRow], codec: Qwen3Codec
) -> None:
    trace, body = rows[name].traces[0]
    row = codec.row(trace.trace_id, trace.messages, trace.tools, 100_000)
    sent = prompts(trace, body, codec)
    assert len(sent) == sum(one.role == "assistant" for one in trace.messages) > 2
    for prompt in sent:
        assert row.token_ids[: len(prompt)] == prompt
        assert (row.mask[len(prompt) - 1], row.mask[len(prompt)]) == (0, 1)
