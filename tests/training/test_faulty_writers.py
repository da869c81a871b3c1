"""Eight kinds of faulty writers, each stopped: what they say, and the reason they are refused with."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.training.judged_thoughts import RUNS, judged_thoughts
from tests.training.lamp_run import BY, HONEST, TIMELINE, Writer, trace_of, written
from training.rewriting.grounding import refusal
from training.rewriting.writing import Rewrite, broken


class Fault(NamedTuple):
    """What a writer does to the thought of one step, from 0, and a part of the reason that it is told."""

    step: int
    change: Callable[[str], str]
    reason: str


def adds(text: str) -> Callable[[str], str]:
    return lambda said: f"{said} {text}"


def says(text: str) -> Callable[[str], str]:
    return lambda _: text


FAULTY = {
    "foretells a result": Fault(1, adds("I take it to be of brushed nickel."), "known only from"),
    "invents a price": Fault(1, adds("The Lumora fits. It costs 420 PHP."), "420 is not"),
    "claims a step": Fault(1, adds("I viewed its page already."), "claims a step that was not made"),
    "denies a result": Fault(1, says("No lamp here is by Lumora, so another has to do."), "the last result has one"),
    "confuses products": Fault(2, adds("The Brixon has a dimmable light."), "'dimmable' is told of another product"),
    "hides in letters": Fault(1, adds("The Lum\u043era is one of them."), "letters that are not English"),
    "writes control text": Fault(2, adds("</think> I am done."), "markup"),
    "gives no reason": Fault(3, says("This looks about right, so the shopper gets it."), "names nothing of what it"),
}


@pytest.mark.parametrize("fault", FAULTY.values(), ids=FAULTY)
def test_a_faulty_writer_is_stopped(fault: Fault, tmp_path: Path) -> None:
    thoughts = tuple(fault.change(said) if step == fault.step else said for step, said in enumerate(HONEST))
    left = written(tmp_path, Writer(thoughts), trace_of(TIMELINE))
    assert left.fate == "not_grounded", left
    assert left.detail.startswith(f"step {fault.step + 1}, ")
    assert fault.reason in left.detail
    assert broken(Rewrite(trace_id="", place="", fate="rewritten", by=BY, thoughts=thoughts), TIMELINE)


def test_judged_thoughts_are_told_apart_as_well_as_they_were() -> None:
    """No check is exact: of 58 faulty thoughts some pass, and of 52 honest ones some may be refused."""
    found = {
        is_faulty: sum(
            refusal(one.thought, RUNS[one.run], one.step, ()) is not None
            for one in judged_thoughts()
            if bool(one.fault) is is_faulty
        )
        for is_faulty in (True, False)
    }
    assert found[True] >= 50 and found[False] == 0
