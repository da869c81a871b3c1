"""Whatever form an agent keeps its dialogue in, its episode becomes one conversation, or a code, by recorded events.

Every agent here runs through the recorder. What it tells its model about calls and results is its own affair.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.chat import Message
from harness.trace import Completion, EvaluationBody, ToolCall
from tests.arena.trajectory_stand import (
    QUERY,
    RECOMMEND,
    SEARCH,
    SYSTEM,
    TERMINATE,
    USER,
    appending,
    narrating,
    says,
    tool_message,
)
from tests.arena.trajectory_stand import Episode as Run
from tests.training.test_corpus_reader import as_trace
from training.corpus.filter.gates import codes_of, gates
from training.corpus.model import Rebuilt, Rules, Trace
from training.models.mask import mask_defect
from training.models.render import Qwen3Codec

Asked = tuple[str, dict[str, object]]
Turn = tuple[str, tuple[Asked, ...]]  # what the model thinks, and what it calls

VIEW: Asked = ("view_product_information", {"product_ids": "1000000001"})
WIDER: Asked = ("find_product", {"q": "café lamp", "page": 2})
TURNS: tuple[Turn, ...] = (
    ("Something red to read by. I search.", (SEARCH, WIDER)),
    ("The first looks right; its details decide.", (VIEW,)),
    ("It is red.", (RECOMMEND, TERMINATE)),
)


def spoken(turn: Turn) -> str:
    """A turn as a ReAct model writes it."""
    thought, calls = turn
    rows = [{"name": name, "parameters": given} for name, given in calls]
    return f"<think>{thought}</think><tool_call>{json.dumps(rows)}</tool_call>"


def as_one_message(turns: Sequence[Turn] = TURNS, shown: Callable[[list[str]], str] | None = None) -> EvaluationBody:
    """ReAct: the whole dialogue is one message that grows. `shown`: what the agent makes of it for its model."""
    run, told = Run([says(content=spoken(turn)) for turn in turns]), [f"<user>{QUERY}</user>"]
    for thought, calls in turns:
        text = "\n\n".join(told) if shown is None else shown(told)
        run.chat(SYSTEM, {"role": "user", "content": f"# Dialogue so far\n{text}"})
        results = [json.loads(run.tool(*call)) for call in calls]
        written = [{"name": name, "parameters": given} for name, given in calls]
        told += [f"<think>{thought}</think>", f"<tool_call>{json.dumps(written)}</tool_call>"]
        told.append(f"<obs>{json.dumps([{'tool_call_id': 'x', 'results': one} for one in results])}</obs>")
    return run.body()


def as_messages(form: str, turns: Sequence[Turn] = TURNS, answer: str = "") -> EvaluationBody:
    """ReAct as a list of messages, results in user messages of some form; `answer` is a last turn without a call."""
    run = Run([*(says(content=spoken(turn)) for turn in turns), says(content=answer)])
    messages: list[dict[str, object]] = [SYSTEM, USER]
    for _, calls in turns:
        messages.append(run.chat(*messages))
        results = "\n".join(form.format(run.tool(*call)) for call in calls)
        messages.append({"role": "user", "content": results})
    if answer:
        run.chat(*messages)
    return run.body()


def codes(trace: Trace) -> tuple[str, ...]:
    """What the filter holds against a trace, coefficient and surfaced ids aside: the stand has neither."""
    return codes_of(trace, Rules(off=("coefficient", "recommend_arguments", "subtask")), gates())


def told(messages: Sequence[Message]) -> list[tuple[str, tuple[str, ...]]]:
    return [(message.role, tuple(call.name for call in message.calls)) for message in messages]


WHOLE = [
    ("system", ()),
    ("user", ()),
    ("assistant", ("find_product", "find_product")),
    ("tool", ()),
    ("tool", ()),
    ("assistant", ("view_product_information",)),
    ("tool", ()),
    ("assistant", ("recommend_product", "terminate")),
    ("tool", ()),
    ("tool", ()),
]


def test_an_agent_of_the_tool_calling_api_is_verbatim() -> None:
    trace = as_trace(appending())
    assert (trace.provenance, codes(trace)) == ("verbatim", ())


def test_a_dialogue_in_one_growing_message_is_the_whole_conversation() -> None:
    body = as_one_message()
    trace = as_trace(body)
    assert trace.rebuilt == Rebuilt(how=("events", "query", "text_calls"))
    assert told(trace.messages) == WHOLE
    assert trace.messages[1].content == QUERY
    assert [one.reasoning for one in trace.messages if one.role == "assistant"] == [thought for thought, _ in TURNS]
    assert [one.content for one in trace.messages if one.role == "tool"] == [call.result for call in _calls(body)]
    assert {call.emitter for one in trace.messages for call in one.calls} == {"llm"}
    assert codes(trace) == ()


def test_arguments_are_in_the_words_that_the_model_wrote() -> None:
    text = '<tool_call>[{"name": "find_product", "parameters": {"q":"café  lamp" ,"page":1}}]</tool_call>'
    run = Run([says(content=text), says(content=spoken(TURNS[-1]))])
    for turn in ((("find_product", {"q": "café  lamp", "page": 1}),), TURNS[-1][1]):
        run.chat({"role": "user", "content": f"{QUERY} {len(run.recorder.events())}"})
        for call in turn:
            run.tool(*call)
    (first, *_) = [call for message in as_trace(run.body()).messages for call in message.calls]
    assert first.arguments == '{"q":"café  lamp" ,"page":1}'


def test_a_list_of_messages_with_tagged_results_is_read_as_it_was_sent() -> None:
    turns = (*TURNS[:2], ("It is red.", (RECOMMEND,)))
    trace = as_trace(as_messages("<tool_response>\n{}\n</tool_response>", turns, answer="The first."))
    assert trace.rebuilt == Rebuilt(how=("text_calls",))
    assert told(trace.messages)[:7] == WHOLE[:7]
    assert codes(trace) == ()


@pytest.mark.parametrize(
    "form", ["<tool_response>\n{}\n</tool_response>", "Observation: {}", "```json\n{}\n```", "You got {} back."]
)
def test_a_list_of_messages_with_results_in_any_words_is_rebuilt(form: str) -> None:
    trace = as_trace(as_messages(form))
    assert trace.rebuilt == Rebuilt(how=("events", "text_calls"))
    assert told(trace.messages) == WHOLE
    assert codes(trace) == ()


LAYOUTS: dict[str, Callable[[object], str]] = {
    "compact": lambda value: json.dumps(value, ensure_ascii=False, separators=(",", ":")),
    "indented": lambda value: json.dumps(value, indent=4, sort_keys=True),
    "in a string": lambda value: json.dumps({"output": json.dumps(json.dumps(value))}),
    "as Python": repr,
    "in lines": lambda value: "\n".join(f"* {name}: {one}" for row in value for name, one in row.items()),  # type: ignore[attr-defined]
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_result_in_another_layout_was_shown(layout: str) -> None:
    def laid_out(parts: list[str]) -> str:
        rows = [json.loads(part[5:-6]) if part.startswith("<obs>") else part for part in parts]
        return "\n".join(
            row if isinstance(row, str) else "\n".join(LAYOUTS[layout](one["results"]) for one in row) for row in rows
        )

    assert as_trace(as_one_message(shown=laid_out)).rebuilt == Rebuilt(how=("events", "query", "text_calls"))


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
    assert told(trace.messages) == WHOLE
    assert codes(trace) == ("view_incomplete",)
    off = Rules(off=("coefficient", "recommend_arguments", "subtask", "view_incomplete"))
    assert codes_of(trace, off, gates()) == ()


def test_a_pruned_list_of_native_calls_is_rebuilt_and_says_so() -> None:
    run = Run([says(*calls, content=thought, tag=thought[0]) for thought, calls in TURNS])
    sent: list[dict[str, object]] = []
    for _ in TURNS:
        turn = run.chat(SYSTEM, USER, *sent)
        sent = [turn, *run.answer(turn)]  # the turns before are forgotten
    trace = as_trace(run.body())
    assert trace.rebuilt == Rebuilt(how=("events",), lacks=("calls", "results", "words"))
    assert told(trace.messages) == WHOLE
    assert codes(trace) == ("view_incomplete",)


PLANNER = {"role": "system", "content": "You plan what a worker does. Write the plan in three sentences, no calls."}
WORKER = {"role": "system", "content": "Do what the plan says with the tools you have; think before each call."}


def planned() -> EvaluationBody:
    """A planner that is asked before every turn of its worker; the worker does not see what the planner was told."""
    plans = says(content="Search for lamps, look at the first, recommend it.")
    work = [says(*calls, content=thought, tag=thought[0]) for thought, calls in TURNS]
    run = Run([reply for turn in work for reply in (plans, turn)])
    messages = [WORKER, USER]
    for number in range(len(TURNS)):
        plan = run.chat(PLANNER, {"role": "user", "content": f"{QUERY}, step {number}"})
        messages += [{"role": "user", "content": str(plan["content"])}] if not number else []
        turn = run.chat(*messages)
        messages += [turn, *run.answer(turn)]
    return run.body()


def test_of_a_planner_and_a_worker_the_dialogue_that_calls_is_the_conversation() -> None:
    trace = as_trace(planned())
    assert trace.rebuilt == Rebuilt(how=("events", "sub_dialogue"))
    assert told(trace.messages) == [*WHOLE[:2], ("user", ()), *WHOLE[2:]]
    assert codes(trace) == ()


def test_calls_in_several_dialogues_are_no_single_conversation() -> None:
    run = Run([says(SEARCH, tag="a"), says(RECOMMEND, TERMINATE, tag="b")])
    run.answer(run.chat(PLANNER, USER))
    run.answer(run.chat(WORKER, USER))
    trace = as_trace(run.body())
    assert trace.provenance == "verbatim"
    assert "not_one_path" in codes(trace)


def test_a_turn_whose_call_nobody_can_read_and_its_retry_become_the_retry_alone() -> None:
    broken = '<think>A lamp.</think><tool_call>[{"name": "find_product", "parameters": {"q": </tool_call>'
    run = Run([says(content=broken), *(says(content=spoken(turn)) for turn in TURNS)])
    told_so_far = [QUERY]
    run.chat(SYSTEM, {"role": "user", "content": "\n".join(told_so_far)})
    told_so_far.append("That was no JSON. Again.")
    for turn in TURNS:
        run.chat(SYSTEM, {"role": "user", "content": "\n".join(told_so_far)})
        told_so_far += [spoken(turn), *(run.tool(*call) for call in turn[1])]
    trace = as_trace(run.body())
    assert trace.rebuilt == Rebuilt(how=("events", "query", "retries", "text_calls"))
    assert told(trace.messages) == WHOLE
    assert codes(trace) == ()


def test_a_malformed_native_call_that_the_host_refused_stays_with_its_answer() -> None:
    run = Run([says(("find_shoes", {}), tag="a"), *(says(*calls, tag=f"b{n}") for n, (_, calls) in enumerate(TURNS))])
    texts = [QUERY]
    for _ in range(len(TURNS) + 1):
        turn = run.chat({"role": "user", "content": "\n".join(texts)})
        texts += [json.dumps(turn["tool_calls"]), *(str(one["content"]) for one in run.answer(turn))]
    trace = as_trace(run.body())
    assert next(message.content for message in trace.messages if message.role == "tool").startswith('{"error"')
    assert codes(trace) == ()


def test_a_final_answer_without_a_call_ends_the_conversation() -> None:
    turns = (*TURNS[:2], ("It is red.", (RECOMMEND,)))
    run = Run([*(says(content=spoken(turn)) for turn in turns), says(content="I chose the first lamp.")])
    texts = [QUERY]
    for turn in turns:
        run.chat({"role": "user", "content": "\n".join(texts)})
        texts += [spoken(turn), *(run.tool(*call) for call in turn[1])]
    run.chat({"role": "user", "content": "\n".join(texts)})
    trace = as_trace(run.body())
    assert told(trace.messages)[-3:] == [("assistant", ("recommend_product",)), ("tool", ()), ("assistant", ())]
    assert trace.messages[-1].content == "I chose the first lamp."
    assert codes(trace) == ()


def test_a_call_that_the_host_never_ran_has_no_result_whatever_the_agent_says() -> None:
    run = Run([says(content=spoken(turn)) for turn in TURNS])
    texts = [QUERY]
    for number, turn in enumerate(TURNS):
        run.chat({"role": "user", "content": "\n".join(texts)})
        results = [run.tool(*call) if number else '[{"product_id": "77"}]' for call in turn[1]]
        texts += [spoken(turn), *(f"<obs>{one}</obs>" for one in results)]
    trace = as_trace(run.body())
    assert not any("77" in message.content for message in trace.messages)
    assert codes(trace) == ("pairing",)


def test_a_result_that_the_agent_made_up_is_not_in_the_conversation_and_the_true_one_was_not_shown() -> None:
    forged = json.dumps([{"tool_call_id": "x", "results": [{"product_id": "77", "title": "A better lamp"}]}])
    shown = as_one_message(shown=lambda parts: "\n".join(f"<obs>{forged}</obs>" if "<obs>" in p else p for p in parts))
    trace = as_trace(shown)
    assert not any("better lamp" in message.content for message in trace.messages)
    assert trace.rebuilt != Rebuilt(how=("events", "query", "text_calls"))
    assert codes(trace) == ("view_incomplete",)


def test_a_turn_that_the_agent_forged_is_not_in_the_conversation() -> None:
    claim = "<think>I saw it.</think><tool_call>[]</tool_call><obs>[]</obs>"
    trace = as_trace(as_one_message(shown=lambda parts: "\n".join([*parts, claim])))
    assert told(trace.messages) == WHOLE
    assert not any("I saw it" in message.reasoning + message.content for message in trace.messages)


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


def _calls(body: EvaluationBody) -> list[ToolCall]:
    return [event for event in body.events if isinstance(event, ToolCall)]


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
    made = sorted((call.name, call.result, call.emitter == "llm") for call in _calls(body))
    shown = []
    calls = {}
    for message in trace.messages[len(turns[0].request) :]:
        calls |= {call.id: (call, message.is_model) for call in message.calls}
        if message.role == "tool" and message.call_id in calls:
            call, is_model = calls[message.call_id]
            shown.append((call.name, message.content, is_model and call.emitter == "llm"))
    assert sorted(shown) == made


@pytest.fixture(scope="module")
def codec() -> Qwen3Codec:
    from tests.training.stock import TOKENIZER  # torch: not for the tests of the corpus

    return Qwen3Codec(TOKENIZER)


def test_what_is_learnt_of_a_rebuilt_conversation_is_what_the_model_wrote(codec: Qwen3Codec) -> None:
    for body in (as_one_message(), as_messages("Observation: {}"), planned()):
        trace = as_trace(body)
        row = codec.row(trace.trace_id, trace.messages, trace.tools, 100_000)
        assert mask_defect(row, trace.messages, codec) is None
        learnt = codec.decode(tuple(token for token, bit in zip(row.token_ids, row.mask, strict=True) if bit))
        assert learnt.count("<|im_end|>") == sum(message.role == "assistant" for message in trace.messages)
        for result in (call.result for call in _calls(body) if call.name.startswith(("find", "view"))):
            assert result not in learnt


def test_the_prompt_that_was_sent_is_what_comes_before_each_turn_of_a_verbatim_row(codec: Qwen3Codec) -> None:
    run = Run([says(*calls, content=thought, tag=thought[0]) for thought, calls in TURNS])
    messages, prompts = [SYSTEM, USER], []
    for _ in TURNS:
        prompts.append(list(messages))
        turn = run.chat(*messages)
        messages += [turn, *run.answer(turn)]
    trace = as_trace(run.body())
    assert trace.provenance == "verbatim"
    row = codec.row(trace.trace_id, trace.messages, trace.tools, 100_000)
    for sent in prompts:
        prompt = codec.prompt(tuple(_sent(message) for message in sent), trace.tools)
        assert row.token_ids[: len(prompt)] == prompt
        assert row.mask[len(prompt)] == 1


def _sent(message: dict[str, object]) -> Message:
    from training.rollouts.token_upstream import _message  # how a request becomes a sampler's prompt

    return _message(message)


def test_the_reference_agent_of_sn15_is_kept(tmp_path: Path) -> None:
    from tests.training.firehose import real_episodes

    solved = real_episodes(tmp_path, counts={"product": 4, "shop": 4, "voucher": 4}, agents=("sn15",))
    assert all(one.evaluation.outcome.is_success and one.evaluation.body.is_agentic for one in solved)
    for one in solved:
        trace = as_trace(one.evaluation.body)
        assert trace.rebuilt == Rebuilt(how=("events", "query", "text_calls"))
        assert codes(trace) == ()
