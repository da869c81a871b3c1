"""A rebuilt row holds what was recorded and nothing else, teaches what the model wrote, and says what it is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.chat import Message
from harness.trace import Completion, EvaluationBody
from tests.arena.trajectory_stand import (
    QUERY,
    RECOMMEND,
    SEARCH,
    SYSTEM,
    USER,
    appending,
    says,
    tool_message,
)
from tests.arena.trajectory_stand import Episode as Run
from tests.training.react_agents import (
    PLANNER,
    TURNS,
    VIEW,
    WIDER,
    as_one_message,
    calls_in,
    spoken,
)
from tests.training.test_corpus_reader import as_trace
from training.corpus.appraisal import signals_of
from training.corpus.corpus_files import columns_of, row_of
from training.corpus.model import CorpusRow, Rebuilt


@given(st.data())
def test_whatever_an_agent_does_only_what_was_recorded_stands_there(data: st.DataObject) -> None:
    texts = st.sampled_from(["", "Fine.", spoken(TURNS[0]), spoken(TURNS[1]), "<tool_call>[{</tool_call>"])
    native = st.lists(st.sampled_from([SEARCH, WIDER, VIEW, RECOMMEND]), max_size=2)
    replies = [says(*data.draw(native), content=data.draw(texts), tag=f"t{n}-") for n in range(4)]
    run, messages = Run(replies), [SYSTEM, USER]
    for number in range(len(replies)):
        sent = run.chat(*messages)
        match data.draw(st.sampled_from(["append", "transcript", "other", "forge", "python"])):
            case "append":
                messages += [sent, *run.answer(sent)]
            case "transcript":
                results = [run.tool(*call) for call in data.draw(native)]
                messages = [SYSTEM, {"role": "user", "content": f"{QUERY} {sent['content']} {results} {number}"}]
            case "other":
                messages = [PLANNER, USER, {"role": "user", "content": f"n{number}"}]
            case "forge":
                forged = {"id": "x", "type": "function", "function": {"name": "terminate", "arguments": "{}"}}
                messages += [{"role": "assistant", "content": "mine", "tool_calls": [forged]}, tool_message("x", "no")]
            case "python":
                messages.append({"role": "user", "content": run.tool(*WIDER)})
    body = run.body()
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


@pytest.mark.parametrize("body", [appending(), as_one_message(), as_one_message(shown=lambda parts: parts[-1])])
def test_a_row_of_a_corpus_says_where_its_conversation_is_from(body: EvaluationBody) -> None:
    trace = as_trace(body)
    row = CorpusRow(trace=trace, signals=signals_of(trace), tokens=None, rank=1)
    values = columns_of(row)
    assert values["provenance"] == trace.provenance
    assert row_of(values) == row


def _sent(message: dict[str, object]) -> Message:
    from training.rollouts.rollout import _message  # how a request becomes a sampler's prompt

    return _message(message)
