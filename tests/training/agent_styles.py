"""Eight ways to drive a model, and what the corpus makes of each: `python -m tests.training.agent_styles` prints it.

Every agent runs in the recorder on synthetic problems with the scripted model; none knows of the corpus.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path

import msgspec

from arena.evaluate import EvaluatePorts, evaluate
from arena.policies import DEMO
from foundation.canonical import text_hash
from harness.agents.registry import reference_agent, reference_sha256s
from harness.catalogue.build import build_index, write_documents
from harness.catalogue.native import open_catalogue
from harness.catalogue.synthetic import generate
from harness.sandbox.probe import open_sandbox
from harness.trace import EvaluationBody
from judge.scripted import ScriptedJudge
from problems.model import Bucket
from problems.synthesis import synthesize
from problems.titles import LexicalTitles
from tests.training.firehose import SN15_AGENT, sn15_source
from tests.training.react_agents import codes
from tests.training.test_corpus_reader import as_trace
from tests.training.untidy_model import HABITS, Habit, UntidyUpstream
from training.corpus.model import Trace

ONE_OF_EACH: Mapping[Bucket, int] = {"product": 1, "shop": 1, "voucher": 1}

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
_LIST = """

def agent_main(problem):
    texts = [problem["query"]]
    for _ in range(20):
        text = ask(*texts)
        calls = read(text)
        observed = [f"<obs>{result}</obs>" for result in results(calls)]
        texts += [text, "\\n".join(observed) or "Write your calls as a JSON array inside <tool_call></tool_call>."]
        if is_over(calls):
            return
"""
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
_SUMMARY = """


def shortened(result):
    value = json.loads(result)
    rows = [{k: v for k, v in row.items() if k != "sold_count"} for row in value] if isinstance(value, list) else value
    return json.dumps(rows)
"""
_ONE_BY_ONE = 'done = [(call["id"], tools.execute(call["name"], call["arguments"])) for call in reply.tool_calls]'
_TOGETHER = f"{_ONE_BY_ONE.replace('in reply.tool_calls]', 'in reply.tool_calls[::-1]][::-1]')}"
_LOOP = "        reply = ask(messages, tools.schemas())\n"
_PLAN = """        plan = ask([{"role": "system", "content": "You plan what a worker does. No calls."}, messages[1]])
        if len(messages) == 2:
            messages.append({"role": "user", "content": "The plan: " + plan.message["content"]})
"""
_SECOND_WORKER = """        if len(messages) > 2:
            messages[0] = {"role": "system", "content": "A colleague began to shop. Bring it to its end, by the tools."}
"""


class Style(msgspec.Struct, frozen=True, kw_only=True):
    """An agent, and how its model writes, where that is not tidy."""

    source: str
    habit: Habit | None = None


def _native(loop: str = _LOOP, *, answered: str = _ONE_BY_ONE) -> str:
    return _NATIVE.replace(_LOOP, loop).replace(_ONE_BY_ONE, answered)


STYLES: Mapping[str, Style] = {
    "tool-calling API (baseline)": Style(source=reference_agent("baseline:scripted-expert").source),
    "ReAct, one growing message (SN15)": Style(source=sn15_source()),
    "the same with tools of its own": Style(source=SN15_AGENT.read_text("utf-8")),
    "ReAct, list of messages": Style(source=_TEXT + _LIST),
    "results shortened, one message": Style(
        source=_TEXT + _GROWING.replace("json.loads(one)", "json.loads(shortened(one))") + _SUMMARY
    ),
    "dialogue cut on the way": Style(source=_native(_LOOP.replace("messages,", "[*messages[:2], *messages[-6:]],"))),
    "several calls a turn, run together": Style(source=_native(answered=_TOGETHER)),
    "planner beside a worker": Style(source=_native(_PLAN + _LOOP)),
    "two workers that both call": Style(source=_native(_SECOND_WORKER + _LOOP)),
    "retry of a malformed call": Style(source=_TEXT + _GROWING, habit=HABITS["single quotes"]),
    "a block a call, the first read": Style(source=_TEXT + _GROWING, habit=HABITS["an object a block"]),
    "Python calls, model narrates (subtask)": Style(source=reference_agent("subtask").source),
}


class StyleRow(msgspec.Struct, frozen=True, kw_only=True):
    """What came of one agent: episodes by number; `codes` of those solved and agentic that are not kept."""

    solved: int = 0
    agentic: int = 0
    kept: int = 0
    codes: tuple[str, ...] = ()
    how: tuple[str, ...] = ()
    traces: tuple[tuple[Trace, EvaluationBody], ...] = ()


def run_styles(folder: Path, counts: Mapping[Bucket, int] = ONE_OF_EACH) -> dict[str, StyleRow]:
    """Every style on each of `counts` problems. `folder` takes catalogue and guest."""
    products = list(generate(1_500, 7))
    with (folder / "documents.jsonl").open("wb") as stream:
        write_documents(products, stream)
    build_index(folder / "documents.jsonl", folder / "index")
    catalogue = open_catalogue(folder / "index")
    admitted = reference_sha256s() | {text_hash(style.source) for style in STYLES.values()}
    sandbox = open_sandbox(folder, reference_sha256s=admitted, slots=1, wanted="reference-agents-only")
    problems = synthesize(products, seed=3, counts=counts)
    found = {}
    for name, style in STYLES.items():
        solved, agentic, kept, why, how, traces = 0, 0, 0, set[str](), set[str](), []
        for problem in problems:
            ports = EvaluatePorts(
                policy=DEMO,
                catalogue=catalogue,
                titles=LexicalTitles(),
                sandbox=sandbox,
                upstreams=[UntidyUpstream(style.habit or str, every=3 if style.habit else 1)],
                judges=[ScriptedJudge()],
            )
            made = evaluate(style.source, problem, ports)
            is_solved = bool(getattr(made.outcome, "is_success", False))
            solved, agentic = solved + is_solved, agentic + (is_solved and made.body.is_agentic)
            trace = as_trace(made.body)
            traces.append((trace, made.body))
            how |= {trace.provenance} if not trace.rebuilt else set(trace.rebuilt.how)
            broken = {*codes(trace), *(() if made.body.is_agentic else ("subtask",))}
            kept += is_solved and not broken
            why |= broken if is_solved else set()
        found[name] = StyleRow(
            solved=solved,
            agentic=agentic,
            kept=kept,
            codes=tuple(sorted(why)),
            how=tuple(sorted(how)),
            traces=tuple(traces),
        )
    return found


def table(rows: Mapping[str, StyleRow]) -> str:
    """The rows as Markdown."""
    lines = ["| agent | solved | agentic | kept | rebuilt by | code |", "|---|---|---|---|---|---|"]
    lines += [
        f"| {name} | {row.solved} | {row.agentic} | {row.kept} | {', '.join(row.how)} "
        f"| {', '.join(f'`{code}`' for code in row.codes)} |"
        for name, row in rows.items()
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        print(table(run_styles(Path(name), {"product": 2, "shop": 2, "voucher": 2})))
