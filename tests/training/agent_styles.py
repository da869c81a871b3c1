"""Nine ways to drive a model, and what the corpus makes of each.

Every agent runs in the recorder on synthetic problems with the scripted model; none knows of the corpus.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from arena.export.row import row_of
from harness.agents.registry import reference_agent
from harness.inference.port import ModelReply
from harness.inference.reply import read_reply
from harness.inference.scripted.model import complete
from harness.trace import EvaluationBody, ToolCall
from problems.model import Bucket
from tests.arena.trajectory_stand import QUERY, RECOMMEND, SEARCH, SYSTEM, TERMINATE, says, trajectory
from tests.arena.trajectory_stand import Episode as Run
from tests.training.firehose import real_episodes
from training.corpus.exports import trace_of_row
from training.corpus.gates import codes_of, gates
from training.corpus.model import Rules, Trace

SN15_AGENT = Path(__file__).parents[1] / "harness" / "sn15_react_agent.py"
SN15_TOOLS = ("find_product", "view_product_information", "recommend_product", "terminate")
_NATIVE = '''
from arena_sdk import llm, tools

PROMPT = """You are a shopping assistant on a marketplace with prices in PHP. Find what the user asks for with the
tools, one id for each product asked for. Recommend once, in the order of the request; then terminate."""


def ask(messages, tools=()):
    return llm.chat(messages, tools=list(tools), temperature=0)


def answers(reply):
    done = [(call["id"], tools.execute(call["name"], call["arguments"])) for call in reply.tool_calls]
    return [{"role": "tool", "tool_call_id": name, "content": result} for name, result in done]


def agent_main(problem):
    messages = [{"role": "system", "content": PROMPT}, {"role": "user", "content": problem["query"]}]
    for _ in range(20):
        reply = ask(messages, tools.schemas())
        messages.append(reply.message)
        messages += answers(reply)
'''
_TEXT = '''
import functools
import json
import re
from arena_sdk import llm, tools

TOOLS = "\\n".join(f"- {one['function']['name']}: {one['function']['description']}" for one in tools.schemas())
PROMPT = f"""You are a shopping assistant that works with tools.

{TOOLS}

Think inside <think></think>, then write your calls inside <tool_call></tool_call> as a JSON array whose items have a
"name" and "parameters". What comes back stands inside <obs></obs>. Recommend before you terminate."""


def ask(*texts):
    roles = ["system", *(["user", "assistant"] * len(texts))]
    messages = [{"role": role, "content": text} for role, text in zip(roles, [PROMPT, *texts])]
    return llm.chat(messages, temperature=0).message["content"]


def read(text):
    found = re.search("<tool_call>(.+?)</tool_call>", text, re.DOTALL)
    try:
        calls = json.loads(found[1]) if found else []
    except ValueError:
        return []
    return [calls] if isinstance(calls, dict) else calls


def results(calls):
    return [tools.execute(call["name"], json.dumps(call["parameters"])) for call in calls]


def is_over(calls):
    return any(call["name"] == "terminate" for call in calls)
'''
_GROWING = """

def agent_main(problem):
    told = [f"<user>{problem['query']}</user>"]
    for _ in range(20):
        text = ask("\\n\\n".join(told))
        calls = read(text)
        if not calls:
            told.append("That was no JSON array of calls. Write it again.")
            continue
        told += [f"<tool_call>{json.dumps(calls)}</tool_call>"]
        observed = [{"tool_call_id": str(n), "results": json.loads(one)} for n, one in enumerate(results(calls))]
        told.append(f"<obs>{json.dumps(observed)}</obs>")
        if is_over(calls):
            return
"""
_ONE_BY_ONE = 'done = [(call["id"], tools.execute(call["name"], call["arguments"])) for call in reply.tool_calls]'
_TOGETHER = f"{_ONE_BY_ONE.replace('in reply.tool_calls]', 'in reply.tool_calls[::-1]][::-1]')}"
_LOOP = "        reply = ask(messages, tools.schemas())\n"
_PLAN = """        plan = ask([{"role": "system", "content": "You plan what a worker does. No calls."}, messages[1]])
        if len(messages) == 2:
            messages.append({"role": "user", "content": "The plan: " + plan.message["content"]})
"""


def _native(loop: str = _LOOP, *, answered: str = _ONE_BY_ONE) -> str:
    return _NATIVE.replace(_LOOP, loop).replace(_ONE_BY_ONE, answered)


STYLES: Mapping[str, str] = {
    "tool-calling API (baseline)": reference_agent("baseline:scripted-expert").source,
    "ReAct, one growing message (SN15)": SN15_AGENT.read_text("utf-8").replace(
        "for name in list_tools()", f"for name in {SN15_TOOLS}"
    ),
    "the same with tools of its own": SN15_AGENT.read_text("utf-8"),
    "dialogue cut on the way": _native(_LOOP.replace("messages,", "[*messages[:2], *messages[-6:]],")),
    "several calls a turn, run together": _native(answered=_TOGETHER),
    "planner beside a worker": _native(_PLAN + _LOOP),
    "retry of a malformed call": _TEXT + _GROWING,
    "a block a call, the first read": _TEXT + _GROWING + "\n",
    "Python calls, model narrates (subtask)": reference_agent("subtask").source,
}
HABITS: Mapping[str, Callable[[list[Any]], str]] = {  # how every third completion writes its calls instead
    "retry of a malformed call": lambda calls: f"<tool_call>{calls!r}</tool_call>",
    "a block a call, the first read": lambda calls: "".join(
        f"<tool_call>{json.dumps(call)}</tool_call>\n" for call in calls
    ),
}


class UntidyUpstream:
    """The scripted model with a habit of real ones: what it decides stays, how it is written down changes."""

    name = "scripted"

    def __init__(self, write: Callable[[list[Any]], str]) -> None:
        self._write, self._asked = write, 0

    def complete(self, request: str) -> ModelReply:
        reply: dict[str, Any] = complete(msgspec.json.decode(request))
        message = reply["choices"][0]["message"]
        if self._asked % 3 == 0:
            message["content"] = re.sub(
                "<tool_call>(.*)</tool_call>",
                lambda found: self._write(json.loads(found[1])),
                message["content"],
                flags=re.DOTALL,
            )
        self._asked += 1
        return read_reply(msgspec.json.encode(reply))

    def probe(self, request: str) -> None:
        return None


class StyleRow(msgspec.Struct):
    """What came of one agent: episodes by number; `codes` of those solved and agentic that are not kept."""

    solved: int = 0
    agentic: int = 0
    kept: int = 0
    codes: set[str] = msgspec.field(default_factory=set)
    how: set[str] = msgspec.field(default_factory=set)
    traces: list[tuple[Trace, EvaluationBody]] = msgspec.field(default_factory=list)


def run_styles(folder: Path) -> dict[str, StyleRow]:
    """Every style on a problem of each kind. `folder` takes catalogue and guest."""
    models = {name: functools.partial(UntidyUpstream, write) for name, write in HABITS.items()}
    counts: Mapping[Bucket, int] = {"product": 1, "shop": 1, "voucher": 1}
    rows = {name: StyleRow() for name in STYLES}
    for made in real_episodes(folder, counts=counts, sources=STYLES, models=models, documents=1_500):
        row, body, trace = rows[made.agent], made.evaluation.body, as_trace(made.evaluation.body)
        row.traces.append((trace, body))
        row.how |= set(trace.rebuilt.how) if trace.rebuilt else {trace.provenance}
        if getattr(made.evaluation.outcome, "is_success", False):
            broken = {*codes(trace), *(() if body.is_agentic else ("subtask",))}
            row.solved += 1
            row.agentic += body.is_agentic
            row.kept += not broken
            row.codes |= broken
    return rows


def table(rows: Mapping[str, StyleRow]) -> str:
    """The rows as Markdown."""
    lines = ["| agent | solved | agentic | kept | rebuilt by | code |", "|---|---|---|---|---|---|"]
    lines += [
        f"| {name} | {row.solved} | {row.agentic} | {row.kept} | {', '.join(sorted(row.how))} "
        f"| {', '.join(f'`{code}`' for code in sorted(row.codes))} |"
        for name, row in rows.items()
    ]
    return "\n".join(lines)


Asked = tuple[str, dict[str, object]]
Turn = tuple[str, tuple[Asked, ...]]  # what the model thinks, and what it calls

VIEW: Asked = ("view_product_information", {"product_ids": "1000000001"})
WIDER: Asked = ("find_product", {"q": "café lamp", "page": 2})
TURNS: tuple[Turn, ...] = (
    ("Something red to read by. I search.", (SEARCH, WIDER)),
    ("The first looks right; its details decide.", (VIEW,)),
    ("It is red.", (RECOMMEND, TERMINATE)),
)


def as_trace(made: object) -> Trace:
    """The trace of a body, by way of its row."""
    return trace_of_row(row_of(trajectory(made=made)), is_verified=True)  # type: ignore[arg-type]


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


def calls_in(body: EvaluationBody) -> list[ToolCall]:
    return [event for event in body.events if isinstance(event, ToolCall)]
