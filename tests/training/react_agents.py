"""Agents that keep their dialogue in forms of their own, each driven by hand through the recorder."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

from harness.trace import EvaluationBody, ToolCall
from tests.arena.trajectory_stand import (
    QUERY,
    RECOMMEND,
    SEARCH,
    SYSTEM,
    TERMINATE,
    says,
)
from tests.arena.trajectory_stand import Episode as Run
from training.corpus.gates import codes_of, gates
from training.corpus.model import Rules, Trace

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


def codes(trace: Trace) -> tuple[str, ...]:
    """What the filter holds against a trace, coefficient and surfaced ids aside: the stand has neither."""
    return codes_of(trace, Rules(off=("coefficient", "recommend_arguments", "subtask")), gates())


PLANNER = {"role": "system", "content": "You plan what a worker does. Write the plan in three sentences, no calls."}


def calls_in(body: EvaluationBody) -> list[ToolCall]:
    return [event for event in body.events if isinstance(event, ToolCall)]
