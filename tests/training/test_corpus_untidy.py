"""A real model's writing costs an episode nothing that its agent threw away, and hides nothing that it handed on."""

from __future__ import annotations

import json
import re

import pytest

from harness.trace import EvaluationBody
from tests.arena.trajectory_stand import QUERY, SYSTEM, TERMINATE, USER, says
from tests.arena.trajectory_stand import Episode as Run
from tests.training.react_agents import TURNS, VIEW, WHOLE, Asked, calls_by_role, codes, spoken
from tests.training.test_corpus_reader import as_trace
from tests.training.untidy_model import HABITS
from training.corpus.model import Rebuilt, Trace

KNOWN = {
    "find_product": "q page",
    "view_product_information": "product_ids",
    "recommend_product": "product_ids",
    "terminate": "status",
}
REMARKS = {"words before", "words after", "words between"}
UNREAD = {"fence", "fence without tags", "text in the tag", "single quotes", "no end of the tag", "cut", "nothing"}
REFUSED = {"arguments", "unknown parameter"}  # by the function that stands for the tool


def read(text: str) -> list[Asked]:
    """The calls as SN15's reference agent reads them: of the first block alone, where that is JSON."""
    found = re.search("<tool_call>(.+?)</tool_call>", text, re.DOTALL)
    try:
        rows = json.loads(found[1]) if found else []
    except ValueError:
        return []
    rows = [rows] if isinstance(rows, dict) else rows
    return [(row["name"], row.get("parameters", {})) for row in rows]


def is_runnable(call: Asked) -> bool:
    given = set(call[1])
    return bool(given) and given <= set(KNOWN.get(call[0], "").split())


def shopping(habit: str) -> EvaluationBody:
    """An agent that shows its model what it read and what came back, and asks again for what it could not read."""
    texts: list[str] = []
    for thought, calls in TURNS:
        texts.append(HABITS[habit](spoken((thought, calls))))
        done = sum(map(is_runnable, read(texts[-1])))
        if done < len(calls):
            texts.append(spoken((thought, calls[done:])))
    run, told = Run([says(content=text) for text in texts]), [f"<user>{QUERY}</user>"]
    for text in texts:
        run.chat(SYSTEM, {"role": "user", "content": "\n".join(told)})
        calls = read(text)
        told += [found[0] for found in re.finditer(r"<(think|response)>.+?</\1>", text)]
        told.append(json.dumps([{"name": name, "parameters": given} for name, given in calls]))
        told += [run.tool(*call) if is_runnable(call) else f"Error: {call[0]} failed" for call in calls]
    return run.body()


def names(trace: Trace) -> list[str]:
    return [call.name for message in trace.messages for call in message.calls]


@pytest.mark.parametrize("habit", [habit for habit in HABITS if habit != "unknown tool"])
def test_an_untidy_model_costs_no_row(habit: str) -> None:
    trace = as_trace(shopping(habit))
    assert isinstance(trace.rebuilt, Rebuilt)
    assert codes(trace) == ()
    assert names(trace) == [call[0] for _, calls in TURNS for call in calls]
    assert trace.rebuilt.lacks == (("remarks",) if habit in REMARKS else ())
    assert ("retries" in trace.rebuilt.how) == (habit in UNREAD | REFUSED)
    assert ("unrun_calls" in trace.rebuilt.how) == (habit == "an object a block")
    own = [message for message in trace.messages if message.role == "assistant"]
    assert all(message.calls or message.content for message in own)
    assert not any(re.search("</?(think|tool_call|response)>", message.content + message.reasoning) for message in own)


def test_a_call_that_was_handed_on_and_never_ran_breaks_pairing() -> None:
    run, told = Run([says(content=spoken(turn)) for turn in TURNS]), [QUERY]
    for thought, calls in TURNS:
        run.chat({"role": "user", "content": "\n".join(told)})
        results = [run.tool(*call) if call is not calls[0] or call is not VIEW else "[]" for call in calls]
        told += [spoken((thought, calls)), *results]
    trace = as_trace(run.body())
    assert codes(trace) == ("pairing",)
    assert "view_product_information" in names(trace)


def test_a_last_call_that_the_agent_had_no_need_to_run_is_left_out() -> None:
    run, told = Run([says(content=spoken(turn)) for turn in TURNS]), [QUERY]
    for thought, calls in TURNS:
        run.chat({"role": "user", "content": "\n".join(told)})
        told += [spoken((thought, calls)), *(run.tool(*call) for call in calls if call is not TERMINATE)]
    trace = as_trace(run.body())
    assert calls_by_role(trace.messages)[:-1] == [*WHOLE[1:-3], ("assistant", ("recommend_product",))]
    assert trace.rebuilt == Rebuilt(how=("events", "query", "text_calls", "unrun_calls"))
    assert codes(trace) == ()


def test_of_parallel_calls_the_ones_that_the_agent_cut_off_are_left_out() -> None:
    run = Run([says(*calls, content=thought, tag=thought[0]) for thought, calls in TURNS])
    messages: list[dict[str, object]] = [SYSTEM, USER]
    for _ in TURNS:
        sent = run.chat(*messages)
        cut = sent | {"tool_calls": sent["tool_calls"][:1]}  # type: ignore[index]
        messages += [cut, *run.answer(cut)]
    trace = as_trace(run.body())
    assert names(trace) == ["find_product", "view_product_information", "recommend_product"]
    assert trace.rebuilt == Rebuilt(how=("events", "unrun_calls"))
    assert codes(trace) == ()
