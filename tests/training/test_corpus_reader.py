"""An export is read whole, once, in order, the same from log, view and object store, and not at all unless it verifies.
Whatever form an agent keeps its dialogue in, its episode becomes one conversation, or a code, by recorded events."""

from __future__ import annotations

import functools
import json
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import obstore
import pytest
from hypothesis import given
from hypothesis import strategies as st

from arena.chain.keys import verify
from arena.export.files import bring_export
from arena.export.row import row_of
from arena.store.objects import _open_place, folder_location
from foundation.errors import ArenaError
from foundation.executors import HERE, ProcessExecutor
from harness.agents.registry import reference_agent
from harness.chat import ChatMessage, message_of
from harness.inference.port import ModelReply
from harness.inference.reply import read_reply
from harness.inference.scripted.model import complete
from harness.trace import Completion, EvaluationBody, ToolCall
from neurons.cli.app import main
from problems.model import Bucket
from tests.arena.conftest import bucket, s3  # noqa: F401 - fixtures
from tests.arena.trajectory_stand import QUERY, RECOMMEND, SEARCH, SYSTEM, TERMINATE, narrating, says, trajectory, wild
from tests.arena.trajectory_stand import Episode as Run
from tests.prove.test_corpus_scale import folder_sha256
from tests.readme_blocks import ROOT, block_under
from tests.training.conftest import DAY
from tests.training.firehose import real_episodes
from training.corpus.exports import ViewShard, export_shards, open_export, trace_of_row
from training.corpus.gates import codes_of, gates
from training.corpus.model import Quarantined, Rebuilt, Rules, Trace
from training.models.render import Qwen3Codec


def test_the_block_of_the_page_reads_a_whole_export(day: Path) -> None:
    block = block_under("What comes in", ROOT / "training" / "corpus" / "README.md")
    seen: list[Trace] = []
    names: dict[str, object] = {
        "open_export": open_export,
        "export_shards": export_shards,
        "verify": verify,
        "Trace": Trace,
        "folder": day,
        "guard": lambda row: seen.append(row) or (),
    }
    exec(compile(block.text, block.page, "exec"), names)
    numbers = [int(trace.source.place.rpartition(":")[2]) for trace in seen]
    assert len(numbers) == DAY and numbers == sorted(set(numbers))
    assert all(trace.source.is_verified for trace in seen)


def test_a_message_of_no_known_role_is_refused_by_code() -> None:
    run = Run([says(content="Yes.")])
    run.chat({"role": "narrator", "content": "Once."})
    with pytest.raises(ArenaError, match="V2097"):
        as_trace(run.body())


def rows_of(shard: ViewShard) -> list[Trace | Quarantined]:
    return list(shard())


def test_it_comes_whole_once_and_what_is_there_now_is_what_is_here(day: Path, tmp_path: Path) -> None:
    location = folder_location(shutil.copytree(day, tmp_path / "there"))
    told: list[tuple[int, int]] = []
    folder = bring_export(location, tmp_path / "exports", lambda done, of: told.append((done, of)))
    assert folder_sha256(folder) == folder_sha256(day) and told[-1][0] == told[-1][1]
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*.zst")}
    (folder / "log" / "extra").write_text("left by nobody")
    next(iter(before)).write_bytes(b"damaged")
    assert bring_export(location, tmp_path / "exports") == folder and folder_sha256(folder) == folder_sha256(day)
    assert sum(path.stat().st_mtime_ns != before[path] for path in before) == 1
    (tmp_path / "there" / "log" / "more").write_bytes(b"one too many")
    bring_export(location, tmp_path / "exports")
    with pytest.raises(ArenaError, match=r"V2095.*log/more"):
        open_export(folder, verify)


def test_a_machine_without_the_folder_reads_the_same_rows_by_url(
    bucket: str,  # noqa: F811
    day: Path,
    tmp_path: Path,
) -> None:
    for path in (path for path in sorted(day.rglob("*")) if path.is_file()):
        obstore.put(_open_place(bucket), path.relative_to(day).as_posix(), path.read_bytes())
    folder = bring_export(bucket, tmp_path / "exports")
    plain = [rows_of(shard) for shard in export_shards(open_export(day, verify))]
    shards = export_shards(open_export(folder, verify, location=bucket))
    folder.rename(tmp_path / "gone")
    assert sum(map(len, plain)) == DAY
    for executor in (HERE, ProcessExecutor(2)):
        assert list(executor.map(rows_of, shards, died="V2052")) == plain


@pytest.mark.parametrize(("name", "code"), [("log/a\u202eb", "V2050"), ("a\x1b[2Jb", "V2029")])
def test_a_name_that_could_drive_a_terminal_is_refused_before_anything_is_fetched(
    tmp_path: Path, name: str, code: str, capsys: pytest.CaptureFixture[str]
) -> None:
    there, location = tmp_path / "there", folder_location(tmp_path / "there")
    (there / name).parent.mkdir(parents=True)
    (there / name).write_bytes(b"x")
    with pytest.raises(ArenaError) as caught:
        bring_export(location, tmp_path / "exports")
    assert caught.value.failure.code == code
    assert not (tmp_path / "exports").exists()
    with pytest.raises(SystemExit):
        main(["records", "verify", "--export", location, "--state-dir", str(tmp_path / "state")])
    said = capsys.readouterr().err
    assert code in said and said.replace("\n", "").isprintable()


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
    made = sorted((call.name, call.result, call.emitter == "llm") for call in body.events if isinstance(call, ToolCall))
    shown = []
    calls = {}
    for message in trace.messages:
        calls |= {call.id: (call, message.is_model) for call in message.calls}
        if message.role == "tool" and message.call_id in calls:
            call, is_model = calls[message.call_id]
            shown.append((call.name, message.content, is_model and call.emitter == "llm"))
    assert sorted(shown) == made


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
        [msgspec.json.decode(body.messages[at], type=ChatMessage) for at in turn.request]
        for turn in body.events
        if isinstance(turn, Completion)
    ]
    own = [sent for sent in requests if sent[0].content == opening]
    return [codec.prompt(tuple(map(message_of, sent)), trace.tools) for sent in own]


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


# -- nine ways to drive a model, each run in the recorder on synthetic problems, and what the corpus makes of each


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
    row = row_of(trajectory(made=made))  # type: ignore[arg-type]
    return trace_of_row(msgspec.structs.asdict(row.facts), row.conversation, row.tools, is_verified=True)


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
