"""Runs that code drove, lifted: honest thoughts stand, faulty and hostile writers are stopped, calls never change."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from harness.inference.port import ModelReply
from tests.training.lamp_run import BY, HONEST, TIMELINE, Writer, trace_of, written
from training.rewriting.grounding import refusal
from training.rewriting.known_facts import CallTimeline
from training.rewriting.writing import Rewrite, broken, rewrite
from training.trac.asking import Asker

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
    class Learning(Writer):
        def complete(self, request: str) -> ModelReply:
            reply = super().complete(request)
            told = msgspec.json.decode(request)["messages"]
            if len(told) > 2:
                assert "4410999999" in told[-1]["content"]
                return msgspec.structs.replace(reply, content=msgspec.json.encode({"thought": HONEST[1]}).decode())
            return reply

    faulty = (*HONEST[:1], f"{HONEST[1]} Product 4410999999 is worse.", *HONEST[2:])
    made = written(tmp_path, Learning(faulty), trace_of(TIMELINE))
    assert (made.thoughts, made.refused) == (HONEST, 1)


def test_nothing_is_asked_about_a_run_that_the_corpus_would_not_take(tmp_path: Path) -> None:
    writer = Writer(HONEST)
    left = rewrite(trace_of(TIMELINE), BY, Asker(writer, tmp_path, {}), lambda _: ("leak", "tokens"))
    assert (left.fate, left.detail, writer.calls) == ("kept_out", "leak, tokens", 0)
