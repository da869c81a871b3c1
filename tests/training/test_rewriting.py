"""Runs that code drove, lifted: honest thoughts stand, faulty and hostile writers are stopped, calls never change."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from arena.chain.keys import verify
from harness.chat import Message
from harness.inference.port import ModelReply
from neurons.cli.app import main
from tests.training.firehose import Firehose, real_episodes, write_records
from training.agents import distilled_prompt
from training.corpus.building import read_rows
from training.corpus.exports import export_shards, open_export
from training.corpus.model import CorpusRow, ExecutedTrace, Rewritten, TraceFacts, TraceSource, assemble_trace
from training.rewriting.grounding import CallStep, CallTimeline, refusal
from training.rewriting.writing import Rewrite, broken, rewrite, with_calls
from training.trac.asking import Asker
from training.trac.scripted import ScriptedModels

# -- one run that code drove, honest thoughts for it, and writers that answer what they are given
QUERY = "I'm looking for a Lumora desk lamp with USB charging, in white, below 900 PHP, and a Tavik mouse pad."
LAMPS = (
    '[{"product_id":"4410023987","shop_id":"77120","title":"Lumora Desk Lamp USB white dimmable","price":849.5,'
    '"service":["freeShipping"],"sold_count":31},{"product_id":"4410555123","shop_id":"90021","title":"Brixon Clip '
    'Lamp black","price":420.0,"service":["COD"],"sold_count":4}]'
)
DETAILS = (
    '[{"product_id":"4410023987","description":"A lamp for the desk.","sku_options":{"color":"Polar Ivory",'
    '"arm":["brushed nickel"],"plug":'
    '"Type G2"}}]'
)
PADS = '[{"product_id":"5599001122","shop_id":"77120","title":"Tavik Mouse Pad XL stitched edge","price":129.0}]'
STEPS = (
    CallStep(name="find_product", arguments='{"q":"lumora desk lamp usb white","page":1,"price":"-900"}', result=LAMPS),
    CallStep(name="view_product_information", arguments='{"product_ids":"4410023987"}', result=DETAILS),
    CallStep(name="find_product", arguments='{"q":"tavik mouse pad","page":1}', result=PADS),
    CallStep(
        name="recommend_product",
        arguments='{"product_ids":"4410023987,5599001122"}',
        result='"Recommended to the user: 4410023987,5599001122"',
    ),
    CallStep(
        name="terminate", arguments='{"status":"success"}', result='"The dialogue has ended with status: success"'
    ),
)
WRITER = "scripted-writer"
BY = Rewritten(writer=WRITER, prompt_sha256="0" * 64)
TIMELINE = CallTimeline(query=QUERY, steps=STEPS)
HONEST = (
    "The shopper wants a Lumora desk lamp in white with USB charging for less than 900 PHP. I begin with those words"
    " and cap the price in the search, so that nothing too dear comes back.",
    'Two candidates came back. "Lumora Desk Lamp USB white dimmable" costs 849.50 PHP and is the only one of the brand;'
    " the Brixon is a black clip lamp. Its options are worth a look before I trust the title.",
    "The lamp comes in Polar Ivory, which is as white as it gets. That settles the first wish, and the mouse pad by"
    " Tavik is still open, so I look for that now.",
    "For the lamp I take 4410023987 at 849.5 PHP, and 5599001122 is a pad of the brand that was asked for, sold by shop"
    " 77120 as well. Both wishes are met, so I can answer.",
    "Everything that was asked for has its product. There is nothing left to do but to close the dialogue.",
)


def trace_of(timeline: CallTimeline, **facts: object) -> ExecutedTrace:
    """A trace in which code made the calls of a timeline."""
    source = TraceSource(kind="arena", place="v:1", sha256="0" * 64, is_verified=True)
    known = TraceFacts(**{"is_success": True, "is_agentic": False, **facts})
    trace = assemble_trace(source, [Message(role="user", content=timeline.query)], query=timeline.query, facts=known)
    fields = {name: getattr(trace, name) for name in trace.__struct_fields__}
    executed = tuple((step.name, step.arguments, step.result) for step in timeline.steps)
    return ExecutedTrace(executed=executed, **fields)


class Writer(ScriptedModels):
    """Answers each step with what it is given; from its second reply to a step on, with the same again."""

    def __init__(self, thoughts: Sequence[str]) -> None:
        self._thoughts, self.calls = thoughts, 0

    def complete(self, request: str) -> ModelReply:
        self.calls += 1
        messages = msgspec.json.decode(request)["messages"]
        step = len(msgspec.json.decode(messages[1]["content"])["done"])
        text = msgspec.json.encode({"thought": self._thoughts[step]}).decode()
        return msgspec.structs.replace(super().complete(request), content=text)


def written(folder: Path, writer: ScriptedModels, trace: ExecutedTrace) -> Rewrite:
    return rewrite(trace, BY, Asker(writer, folder, {}, sleep=lambda _: None), lambda _: ())


# -- what is lifted
HERE = Path(__file__).parent
FAULTY = {  # the step, from 0; what is said after its honest thought, or in its place; a part of the reason
    "foretells a result": (1, HONEST[1] + " I take it to be of brushed nickel.", "known only from"),
    "invents a price": (1, HONEST[1] + " The Lumora fits. It costs 420 PHP.", "420 is not"),
    "claims a step": (1, HONEST[1] + " I viewed its page already.", "claims a step that was not made"),
    "denies a result": (1, "No lamp here is by Lumora, so another has to do.", "the last result has one"),
    "confuses products": (2, HONEST[2] + " The Brixon has a dimmable light.", "'dimmable' is told of another product"),
    "hides in letters": (1, HONEST[1] + " The Lum\u043era is one of them.", "letters that are not English"),
    "writes control text": (2, HONEST[2] + " </think> I am done.", "markup"),
    "gives no reason": (3, "This looks about right, so the shopper gets it.", "names nothing of what it"),
}


@pytest.mark.parametrize(("step", "said", "reason"), FAULTY.values(), ids=FAULTY)
def test_a_faulty_writer_is_stopped(step: int, said: str, reason: str, tmp_path: Path) -> None:
    thoughts = (*HONEST[:step], said, *HONEST[step + 1 :])
    left = written(tmp_path, Writer(thoughts), trace_of(TIMELINE))
    assert left.fate == "not_grounded" and left.detail.startswith(f"step {step + 1}, ") and reason in left.detail
    assert broken(Rewrite(trace_id="", place="", fate="rewritten", by=BY, thoughts=thoughts), TIMELINE)


class JudgedThought(msgspec.Struct, frozen=True):
    """A thought before a step of a run, from 0; `fault` says what is wrong with it, "" for nothing."""

    run: str
    step: int
    fault: str
    thought: str


def test_judged_thoughts_are_told_apart_as_well_as_they_were() -> None:
    """58 faulty thoughts and 52 honest ones over three runs, written before the checks were measured on them; those of
    `train` after the checks were mended by the others."""
    runs = msgspec.json.decode((HERE / "judged_runs.json").read_bytes(), type=dict[str, CallTimeline])
    judged = msgspec.json.Decoder(JudgedThought).decode_lines((HERE / "judged_thoughts.jsonl").read_bytes())
    found = [(bool(one.fault), refusal(one.thought, runs[one.run], one.step, ()) is not None) for one in judged]
    assert found.count((True, True)) >= 50 and found.count((False, True)) == 0


def test_a_writer_that_learns_from_the_reason_goes_on(tmp_path: Path) -> None:
    class Learner(Writer):
        def complete(self, request: str) -> ModelReply:
            reply = super().complete(request)
            told = msgspec.json.decode(request)["messages"]
            if len(told) > 2:
                assert "4410999999" in told[-1]["content"]
                return msgspec.structs.replace(reply, content=msgspec.json.encode({"thought": HONEST[1]}).decode())
            return reply

    faulty = (*HONEST[:1], f"{HONEST[1]} Product 4410999999 is worse.", *HONEST[2:])
    made = written(tmp_path, Learner(faulty), trace_of(TIMELINE))
    assert (made.thoughts, made.refused) == (HONEST, 1)


def test_nothing_is_asked_about_a_run_that_the_corpus_would_not_take(tmp_path: Path) -> None:
    writer = Writer(HONEST)
    left = rewrite(trace_of(TIMELINE), BY, Asker(writer, tmp_path, {}), lambda _: ("leak", "tokens"))
    assert (left.fate, left.detail, writer.calls) == ("kept_out", "leak, tokens", 0)


# -- `arena corpus rewrite` and `build --rewritten`
LOOSE = ("--rule", "coefficient_e4_min=0")


@pytest.fixture(scope="module")
def export(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("driven")
    episodes = real_episodes(folder, counts={"product": 6}, agents=("subtask", "baseline:scripted-expert"))
    write_records(Firehose(episodes).as_recorded(), folder / "export")
    return folder / "export"


@pytest.fixture(scope="module")
def thoughts(export: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("thoughts") / "out"
    scripted = ("--base-url", "scripted")
    assert arena("rewrite", export, "--out", out, *scripted, *LOOSE) == 0
    return out


def arena(*words: object) -> int:
    with pytest.raises(SystemExit) as ended:
        main(["corpus", *map(str, words)])
    return int(str(ended.value.code or 0))


def built(export: Path, folder: Path, *more: object) -> list[CorpusRow]:
    assert arena("build", export, "--out", folder / "corpus", "--state-dir", folder / "state", *LOOSE, *more) == 0
    return list(read_rows(folder / "corpus"))


def test_driven_runs_are_lifted_with_their_calls_unchanged(export: Path, thoughts: Path, tmp_path: Path) -> None:
    report = json.loads((thoughts / "rewriting.json").read_bytes())
    without = list(built(export, tmp_path / "without"))
    assert {row.trace.provenance for row in without} == {"verbatim"}
    rows = built(export, tmp_path / "with", "--rewritten", thoughts, "--rule", "per_problem_max=9")
    driven = {
        row.source.place: row
        for shard in export_shards(open_export(export, verify))
        for row in with_calls(shard)()
        if isinstance(row, ExecutedTrace) and row.facts.is_agentic is False and row.facts.is_success
    }
    assert len(driven) == report["fates"]["rewritten"] >= 2
    lifted = [row.trace for row in rows if row.trace.provenance == "rewritten"]
    for trace in lifted:
        record = driven[trace.source.place]
        results = {message.call_id: message.content for message in trace.messages if message.role == "tool"}
        turns = [message for message in trace.messages if message.role == "assistant"]
        calls = [call for turn in turns for call in turn.calls]
        made = [(call.name, json.loads(call.arguments), results[call.id]) for call in calls]
        assert made == [(name, json.loads(given), result) for name, given, result in record.executed]
        assert trace.facts.recommended == record.facts.recommended
        assert [message.content for message in trace.messages[:2]] == [distilled_prompt(), record.query]
        assert all(turn.reasoning and not turn.content for turn in turns)
    assert {row.trace.provenance for row in rows} == {"verbatim", "rewritten"}


def test_thoughts_that_were_changed_lift_nothing(export: Path, thoughts: Path, tmp_path: Path) -> None:
    forged = tmp_path / "forged"
    forged.mkdir()
    lines = [json.loads(line) for line in (thoughts / "thoughts.jsonl").read_text().splitlines()]
    for line in lines:
        line["thoughts"][0] = "I know already that product 4862371881 is the answer to all of this."
    (forged / "thoughts.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    rows = built(export, tmp_path, "--rewritten", forged)
    assert {row.trace.provenance for row in rows} == {"verbatim"}
    funnel = json.loads((tmp_path / "corpus" / "funnel.json").read_bytes())
    assert sum(one["count"] for one in funnel["unread"]) == len(lines)
