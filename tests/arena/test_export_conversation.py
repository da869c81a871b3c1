"""The canonical conversation: what the model was sent and wrote, and never a call it did not write."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from arena.export.row import Conversation, converse
from harness.chat import ChatMessage
from harness.trace import Completion, EvaluationBody, ToolCall
from tests.arena.trajectory_stand import (
    SEARCH,
    SYSTEM,
    TERMINATE,
    USER,
    Episode,
    says,
)


def place(talk: Conversation, index: int) -> ChatMessage:
    return (talk.messages + talk.other_messages)[index]


def test_a_call_read_off_the_prompt_is_marked_and_its_result_too() -> None:
    run = Episode([says(SEARCH), says(content="done")])
    prompt = {"role": "user", "content": 'Say {"name": "find_product", "arguments": {"q": "red lamp"}}'}
    sent = run.chat(prompt)
    run.chat(prompt, sent, *run.answer(sent))
    talk = converse(run.body())
    assert [call.emitter for call in talk.calls] == ["echoed"]
    turn, result = talk.messages[1:3]
    assert turn.tool_calls == ()
    assert [call.id for call in turn.echoed_tool_calls] == ["c0"]
    assert result.origin == "echoed"
    assert not talk.is_model_written


def test_of_rewritten_prompts_the_path_with_most_turns_is_shown() -> None:
    first, second, third = says(content="one"), says(content="two"), says(content="three")
    run = Episode([first, second, third])
    one = run.chat(SYSTEM, USER)
    two = run.chat(SYSTEM, USER, one, USER)
    run.chat(USER, two, {"role": "user", "content": "and?"})  # the first turn was pruned
    talk = converse(run.body())
    assert not talk.is_linear
    assert [m.content for m in talk.messages if m.role == "assistant"] == ["two", "three"]
    run = Episode([first, second, third])
    one = run.chat(SYSTEM, USER)
    run.chat(SYSTEM, USER, one, USER)
    run.chat(USER)
    talk = converse(run.body())
    assert [m.content for m in talk.messages if m.role == "assistant"] == ["one", "two"]
    assert place(talk, talk.completions[2].reply).content == "three"


@given(st.data())
def test_whatever_an_agent_does_nothing_is_lost_and_nobody_is_named_wrongly(data: st.DataObject) -> None:
    talk_body = _wild(data)
    talk = converse(talk_body)
    calls = [event for event in talk_body.events if isinstance(event, ToolCall)]
    turns = [event for event in talk_body.events if isinstance(event, Completion)]
    everything = talk.messages + talk.other_messages

    assert [(c.index, c.name, c.arguments, c.emitter) for c in talk.calls] == [
        (c.index, c.name, c.arguments, c.emitter) for c in calls
    ]
    for shown, call in zip(talk.calls, calls, strict=True):
        assert (everything[shown.message].content if shown.message is not None else shown.result) == call.result
    for shown, turn in zip(talk.completions, turns, strict=True):
        sent = [json.loads(talk_body.messages[index]) for index in turn.request]
        assert [everything[index].role for index in shown.request] == [message["role"] for message in sent]
        assert [everything[i].content for i in shown.request] == [message["content"] for message in sent]
        assert everything[shown.reply].content == turn.content
    written = {call.call_id for turn in turns for call in turn.calls}
    assert {call.id for message in everything for call in message.tool_calls} <= written
    if any(call.emitter != "llm" for call in calls):
        assert not talk.is_model_written
    if talk.is_linear:
        assert talk.other_messages == ()


def _wild(data: st.DataObject) -> EvaluationBody:
    """An agent that appends, prunes, forges, shortens and calls by itself, as it likes."""
    options = [SEARCH, ("find_product", {"q": "lamp"}), ("view_product_information", {"product_ids": "1000000002"})]
    replies = [
        says(*data.draw(st.lists(st.sampled_from(options), max_size=2)), content=f"turn {number}", tag=f"t{number}-")
        for number in range(4)
    ]
    run = Episode(replies)
    messages = [SYSTEM, USER]
    for _ in replies:
        sent = run.chat(*messages)
        match data.draw(st.sampled_from(["append", "prune", "forge", "shorten", "alone"])):
            case "append":
                messages += [sent, *run.answer(sent), USER]
            case "prune":
                messages = [USER, sent, *run.answer(sent), USER]
            case "forge":
                messages += [{"role": "assistant", "content": "mine"}, {"role": "user", "content": f"n{len(messages)}"}]
            case "shorten":
                messages += [sent, *({**one, "content": "short"} for one in run.answer(sent)), USER]
            case "alone":
                messages += [{"role": "user", "content": run.tool(*SEARCH)}]
    if data.draw(st.booleans()):
        run.tool(*TERMINATE)
    return run.body()
