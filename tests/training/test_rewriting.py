"""Runs that code drove, lifted: honest thoughts stand, faulty and hostile writers are stopped, calls never change."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from harness.inference.port import ModelReply
from tests.training.lamp_run import BY, HONEST, TIMELINE, Writer, trace_of, written
from training.rewriting.grounding import refusal
from training.rewriting.writing import lifted, rewrite, timeline_of
from training.trac.asking import Asker


@pytest.mark.parametrize(
    ("step", "thought"),
    [
        (
            1,
            "I've got two hits. Only 4410023987 carries the Lumora name; it's listed at PHP 849.50, below 900.",
        ),
        (
            1,
            "Neither title mentions a charging port, though the Lumora's says USB. I'll double-check sku_options.",
        ),
        (3, "4410023987 is the white Lumora at 849.50 and 5599001122 the Tavik pad. Together that's 978.50 PHP."),
        (4, "None of the wishes is open any more, so there's nothing left to do and I close the dialogue here."),
    ],
)
def test_thoughts_as_people_write_them_stand(step: int, thought: str) -> None:
    assert refusal(thought, TIMELINE, step, ()) is None


def test_a_writer_that_learns_from_the_reason_goes_on(tmp_path: Path) -> None:
    class Learning(Writer):
        def complete(self, request: str) -> ModelReply:
            reply = super().complete(request)
            told = msgspec.json.decode(request)["messages"]
            if len(told) > 2:
                assert "4410999999" in told[-1]["content"]
                return msgspec.structs.replace(reply, content=msgspec.json.encode({"thought": HONEST[1]}).decode())
            return reply

    made = written(
        tmp_path, Learning((*HONEST[:1], f"{HONEST[1]} Product 4410999999 is worse.", *HONEST[2:])), trace_of(TIMELINE)
    )
    assert (made.thoughts, made.refused) == (HONEST, 1)


def test_nothing_is_asked_about_a_run_that_the_corpus_would_not_take(tmp_path: Path) -> None:
    writer = Writer(HONEST)
    left = rewrite(trace_of(TIMELINE), BY, Asker(writer, tmp_path, {}), lambda _: ("leak", "tokens"))
    assert (left.fate, left.detail, writer.calls) == ("kept_out", "leak, tokens", 0)


def test_lifting_changes_no_call_and_no_result() -> None:
    trace = trace_of(TIMELINE)
    made = lifted(trace, TIMELINE, HONEST, "Be helpful.", BY)
    calls = [call for message in made.messages for call in message.calls]
    results = {message.call_id: message.content for message in made.messages if message.role == "tool"}
    assert tuple((call.name, call.arguments, results[call.id]) for call in calls) == trace.executed
    assert timeline_of(trace) == TIMELINE
    assert [message.reasoning for message in made.messages if message.role == "assistant"] == list(HONEST)
    assert all(message.is_model for message in made.messages)
