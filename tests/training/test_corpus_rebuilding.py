"""Whatever form an agent keeps its dialogue in, its episode becomes one conversation, or a code, by recorded events.

Every agent here runs through the recorder. What it tells its model about calls and results is its own affair.
"""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from foundation.canonical import foreign_text
from harness.tools.port import ToolOutcome
from harness.work import WorkMeter
from tests.arena import trajectory_stand
from tests.arena.trajectory_stand import (
    QUERY,
    SEARCH,
    narrating,
    says,
)
from tests.arena.trajectory_stand import Episode as Run
from tests.harness.episode_stand import StandToolbox
from tests.harness.honest_dialogues import DIALOGUES, STEPS, Step, written
from tests.harness.honest_dialogues import QUERY as HONEST_QUERY
from tests.training.react_agents import (
    TURNS,
    WHOLE,
    Asked,
    as_one_message,
    calls_by_role,
    calls_in,
    codes,
    spoken,
)
from tests.training.test_corpus_reader import as_trace
from training.corpus.gates import codes_of, gates
from training.corpus.model import Rebuilt, Rules


def test_a_dialogue_in_one_growing_message_is_the_whole_conversation() -> None:
    body = as_one_message()
    trace = as_trace(body)
    assert trace.rebuilt == Rebuilt(how=("events", "query", "text_calls"))
    assert calls_by_role(trace.messages) == WHOLE
    assert trace.messages[1].content == QUERY
    assert [one.reasoning for one in trace.messages if one.role == "assistant"] == [thought for thought, _ in TURNS]
    assert [one.content for one in trace.messages if one.role == "tool"] == [call.result for call in calls_in(body)]
    assert {call.emitter for one in trace.messages for call in one.calls} == {"llm"}
    assert codes(trace) == ()


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
    assert calls_by_role(trace.messages) == WHOLE
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


class Goods(StandToolbox):
    """Answers the calls of an honest dialogue with its results."""

    def dispatch(self, name: str, arguments: str, work: WorkMeter | None = None) -> ToolOutcome:
        told = {
            call: result for step in STEPS for call, result in zip(map(_key, step.calls), step.results, strict=True)
        }
        result = told[_key((name, json.loads(arguments)))]
        return ToolOutcome(result=foreign_text(result), is_final=name == "terminate")


def _key(call: Asked) -> str:
    return foreign_text([call[0], call[1]])


HELD_BACK = {  # what these do not show their model; all others show everything
    "native calls, trimmed": ("calls", "remarks", "results"),
    "turns, results cut": ("results",),
    "told by the program": ("results",),
    "scratchpad": ("calls", "results"),
    "plan, step by step": ("calls", "remarks", "results"),
}


@pytest.mark.parametrize("name", DIALOGUES)
def test_every_way_of_showing_a_dialogue_is_whole_or_says_what_was_held_back(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trajectory_stand, "StandToolbox", Goods)
    monkeypatch.setattr(trajectory_stand, "QUERY", HONEST_QUERY)
    is_native = name.startswith("native") or name in ("own words quoted", "plan, step by step")
    run = Run(
        [
            says(*step.calls, content=step.thought, tag=f"call_{number}_") if is_native else says(content=written(step))
            for number, step in enumerate(STEPS)
        ]
    )
    done: list[Step] = []
    for step in STEPS:
        run.chat(*DIALOGUES[name](done))
        results = tuple(json.loads(run.tool(*call)) for call in step.calls)
        done.append(Step(step.thought, step.calls, results))
    trace = as_trace(run.body(query=HONEST_QUERY))
    lacks = trace.rebuilt.lacks if isinstance(trace.rebuilt, Rebuilt) else ()
    assert lacks == HELD_BACK.get(name, ())
    assert codes(trace) == (("view_incomplete",) if lacks else ())
    made = [call.name for message in trace.messages for call in message.calls]
    assert made == [call[0] for step in STEPS for call in step.calls]
