"""Runs that code drove, lifted: honest thoughts stand, faulty and hostile writers are stopped, calls never change."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import pytest

from harness.chat import Message
from harness.inference.port import ModelReply
from training.corpus.model import ExecutedTrace, Rewritten, TraceFacts, TraceSource
from training.corpus.sources.assembly import assemble_trace
from training.rewriting.grounding import refusal
from training.rewriting.model import CallStep, CallTimeline, OmittedRun, Rewrite, RewriteRules
from training.rewriting.scripted import WRITER, ScriptedWriter
from training.rewriting.timeline import lifted, timeline_of
from training.rewriting.writing import broken, rewrite
from training.trac.answers import Answers
from training.trac.asking import Asker

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


class Writer(ScriptedWriter):
    """Answers each step with what it is given; from its second reply to a step on, with the same again."""

    def __init__(self, thoughts: Sequence[str], raw: dict[int, str] | None = None) -> None:
        self._thoughts, self._raw, self.calls = thoughts, raw or {}, 0

    def complete(self, request: str) -> ModelReply:
        self.calls += 1
        messages = msgspec.json.decode(request)["messages"]
        step = len(msgspec.json.decode(messages[1]["content"])["done"])
        reply = super().complete(request)
        text = self._raw.get(step, msgspec.json.encode({"thought": self._thoughts[step]}).decode())
        return msgspec.structs.replace(reply, content=text)


def written(folder: Path, writer: ScriptedWriter, trace: ExecutedTrace) -> Rewrite | OmittedRun:
    return rewrite(trace, WRITER, RewriteRules(), Asker(writer, Answers(folder), {}), lambda _: ())


def at(step: int, change: Callable[[str], str]) -> tuple[str, ...]:
    return tuple(change(thought) if number == step else thought for number, thought in enumerate(HONEST))


def test_honest_thoughts_stand() -> None:
    for number, thought in enumerate(HONEST):
        assert refusal(thought, TIMELINE, number, HONEST[:number]) is None


@pytest.mark.parametrize(
    ("step", "thought"),
    [
        (0, "Okay, the user needs two things: a Lumora desk lamp and a Tavik mouse pad. I'll begin with it."),
        (
            1,
            "I've got two hits. Only 4410023987 carries the Lumora name; it's listed at PHP 849.50, below 900.",
        ),
        (
            1,
            "Neither title mentions a charging port, though the Lumora's says USB. I'll double-check sku_options.",
        ),
        (2, "OK. The description doesn't say much, but the option reads “Polar Ivory”. One down, one to go."),
        (3, "4410023987 is the white Lumora at 849.50 and 5599001122 the Tavik pad. Together that's 978.50 PHP."),
        (4, "None of the wishes is open any more, so there's nothing left to do and I close the dialogue here."),
    ],
)
def test_thoughts_as_people_write_them_stand(step: int, thought: str) -> None:
    assert refusal(thought, TIMELINE, step, ()) is None


@pytest.mark.parametrize("way", ["a title", "an option", "a value in a list", "what the answer is"])
def test_what_only_later_results_tell_is_named_as_such(way: str) -> None:
    thoughts = FAULTY[f"foretells {way}"]
    reasons = [refusal(thought, TIMELINE, step, thoughts[:step]) for step, thought in enumerate(thoughts)]
    assert "known only from" in next(reason for reason in reasons if reason)


FAULTY = {
    "foretells the id": at(0, lambda _: "The shopper wants a lamp; product 4410023987 could be the one to take."),
    "foretells a price": at(0, lambda said: f"{said} It should cost around 849.50 PHP."),
    "foretells a title": at(0, lambda said: f"{said} Something like a black clip lamp would be wrong."),
    "foretells a value in a list": at(1, lambda said: f"{said} I take it to be made of brushed nickel."),
    "gives it another's price a sentence later": at(1, lambda said: f"{said} The Lumora fits. It costs 420 PHP."),
    "knows how it is graded": at(1, lambda said: f"{said} The scorer wants this lamp and no other."),
    "speaks another language": at(2, lambda _: "lamp desk polar ivory tavik mouse pad lumora white lumora desk."),
    "foretells an option": at(1, lambda said: f"{said} I hope for polar ivory as its color."),
    "foretells what the answer is": at(2, lambda said: f"{said} The tavik mouse pad xl stitched edge would do."),
    "invents an id": at(1, lambda said: f"{said} Product 4410999999 is worse."),
    "invents a price": at(1, lambda said: f"{said} Elsewhere it is sold for 799 PHP."),
    "invents a price in words": at(1, lambda said: f"{said} It was bought eleven times."),
    "invents a title": at(1, lambda said: f'{said} There is also "Lumora Floor Lamp gold".'),
    "invents a brand": at(1, lambda said: f"{said} The other one is by Philips."),
    "invents a brand at the beginning of a sentence": at(1, lambda said: f"{said} Philips makes worse ones."),
    "invents a model": at(1, lambda said: f"{said} It is the x200 of that line."),
    "invents a count": at(1, lambda said: f"{said} There were 17 hits."),
    "gives one product the other's price": at(1, lambda _: "Of both lamps 4410023987 costs 420 PHP, so I look at it."),
    "says that nothing was found": at(1, lambda _: "No results fit here at all, so a look at details has to help."),
    "claims a look that was not taken": at(1, lambda said: f"{said} I viewed its page already."),
    "claims a check that was not made": at(1, lambda said: f"{said} I calculated the budget for it."),
    "tells the thoughts in reverse": tuple(reversed(HONEST)),
    "tells one thought too early": (HONEST[1], *HONEST[1:]),
    "says one thing for every step": (HONEST[0],) * len(HONEST),
    "says nothing": at(2, lambda _: ""),
    "says too little": at(2, lambda _: "Next, the pad."),
    "says too much": at(2, lambda said: f"{said} " * 20),
    "writes a call": at(2, lambda said: f'{said} <tool_call>{{"name":"find_product"}}</tool_call>'),
    "closes the thought": at(2, lambda said: f"{said} </think> I am done."),
    "speaks for the user": at(2, lambda said: f"{said}\nuser: well done"),
    "speaks of the record": at(2, lambda said: f"{said} The trace shows that this was right."),
    "hides characters": at(2, lambda said: said.replace(" ", " \u200b", 1)),
    "hides digits": at(1, lambda said: f"{said} It is ７９９ PHP."),
    "gives no reason for the answer": at(3, lambda _: "This looks about right to me now, so the shopper gets it."),
}  # fmt: skip


@pytest.mark.parametrize("way", FAULTY)
def test_a_faulty_writer_is_stopped(way: str, tmp_path: Path) -> None:
    writer = Writer(FAULTY[way])
    left = written(tmp_path, writer, trace_of(TIMELINE))
    assert isinstance(left, OmittedRun), left
    assert left.code == "not_grounded"
    assert left.detail.startswith("step ")
    assert broken(Rewrite(trace_id="", place="", by=BY, thoughts=FAULTY[way]), TIMELINE)


@pytest.mark.parametrize(
    "raw",
    [
        "I would search next.",
        '{"thought": 1}',
        '{"thought": "The shopper wants a lamp and so I search for it now.", "arguments": "{}"}',
        '[{"thought": "The shopper wants a lamp and so I search for it now."}]',
        "",
    ],
)
def test_a_reply_of_another_form_is_refused(raw: str, tmp_path: Path) -> None:
    left = written(tmp_path, Writer(HONEST, {0: raw}), trace_of(TIMELINE))
    assert isinstance(left, OmittedRun) and left.code == "not_grounded"


def test_a_writer_that_learns_from_the_reason_goes_on(tmp_path: Path) -> None:
    class Learning(Writer):
        def complete(self, request: str) -> ModelReply:
            reply = super().complete(request)
            told = msgspec.json.decode(request)["messages"]
            if len(told) > 2:
                assert "4410999999" in told[-1]["content"]
                return msgspec.structs.replace(reply, content=msgspec.json.encode({"thought": HONEST[1]}).decode())
            return reply

    made = written(tmp_path, Learning(FAULTY["invents an id"]), trace_of(TIMELINE))
    assert isinstance(made, Rewrite)
    assert (made.thoughts, made.refused) == (HONEST, 1)


def test_a_second_run_asks_nothing(tmp_path: Path) -> None:
    writer = Writer(HONEST)
    first = written(tmp_path, writer, trace_of(TIMELINE))
    asked = writer.calls
    assert written(tmp_path, writer, trace_of(TIMELINE)) == first
    assert writer.calls == asked == len(STEPS)


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"is_success": False}, "not_a_success"),
        ({"is_success": None}, "not_a_success"),
        ({"is_agentic": True}, "already_agentic"),
        ({"is_agentic": None}, "already_agentic"),
    ],
)
def test_other_runs_are_left_out(change: dict[str, object], code: str, tmp_path: Path) -> None:
    left = written(tmp_path, Writer(HONEST), trace_of(TIMELINE, **change))
    assert isinstance(left, OmittedRun) and left.code == code


def test_nothing_is_asked_about_a_run_that_the_corpus_would_not_take(tmp_path: Path) -> None:
    writer = Writer(HONEST)
    left = rewrite(
        trace_of(TIMELINE), WRITER, RewriteRules(), Asker(writer, Answers(tmp_path), {}), lambda _: ("leak", "tokens")
    )
    assert isinstance(left, OmittedRun) and (left.code, left.detail, writer.calls) == ("kept_out", "leak, tokens", 0)


def test_a_call_without_its_result_is_no_timeline() -> None:
    trace = trace_of(TIMELINE)
    cut = (*trace.executed[:-1], (*trace.executed[-1][:2], None))
    assert timeline_of(msgspec.structs.replace(trace, executed=cut)) is None


def test_lifting_changes_no_call_and_no_result() -> None:
    trace = trace_of(TIMELINE)
    made = lifted(trace, TIMELINE, HONEST, "Be helpful.", BY)
    calls = [call for message in made.messages for call in message.calls]
    results = {message.call_id: message.content for message in made.messages if message.role == "tool"}
    assert tuple((call.name, call.arguments, results[call.id]) for call in calls) == trace.executed
    assert timeline_of(trace) == TIMELINE
    assert [message.reasoning for message in made.messages if message.role == "assistant"] == list(HONEST)
    assert all(message.is_model for message in made.messages)
