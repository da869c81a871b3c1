"""Twelve kinds of faulty writers, each stopped: one table of what they say, and of the reason they are refused with."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.training.judged_thoughts import RUNS, judged_thoughts
from tests.training.lamp_run import BY, HONEST, TIMELINE, Writer, trace_of, written
from training.rewriting.grounding import refusal
from training.rewriting.model import OmittedRun, Rewrite
from training.rewriting.writing import broken


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
    "foretells the answer": (
        Fault(0, says("The shopper wants a lamp; 4410023987 could be the one."), "4410023987 stands neither"),
        Fault(2, adds("The tavik mouse pad xl stitched edge would do."), "known only from"),
        Fault(1, adds("So I recommend 4410555123 in the end."), "in the end"),
    ),
    "foretells a later result": (
        Fault(0, adds("It should cost around 849.50 PHP."), "849.50 stands neither"),
        Fault(0, adds("Something like a black clip lamp would be wrong."), "known only from"),
        Fault(1, adds("I take it to be made of brushed nickel."), "known only from"),
        Fault(1, adds("I hope for polar ivory as its color."), "known only from"),
        Fault(1, adds("The Lumora comes in grey."), "'comes in grey' is not told of 4410023987"),
    ),
    "invents an id": (
        Fault(1, adds("Product 4410999999 is worse."), "4410999999 stands neither"),
    ),
    "invents a price": (
        Fault(1, adds("Elsewhere it is sold for 799 PHP."), "799 stands neither"),
        Fault(1, says("Of both lamps 4410023987 costs 420 PHP, so I look at it."), "420 is not"),
        Fault(1, adds("The Lumora fits. It costs 420 PHP."), "420 is not"),
        Fault(1, adds("The Lumora is cheaper than the Brixon."), "is not cheaper than"),
        Fault(1, adds("The cheapest is the Lumora."), "is not the cheapest"),
    ),
    "invents a title": (
        Fault(1, adds('There is also "Lumora Floor Lamp gold".'), "stands nowhere yet"),
        Fault(1, adds("The other one is by Philips."), "'philips' stands neither"),
        Fault(1, adds("Philips makes worse ones."), "'philips' stands neither"),
        Fault(1, adds("The others are by lumora, brixon and philips."), "'philips' stands neither"),
        Fault(1, adds("It is the x200 of that line."), "200 stands neither"),
    ),
    "invents a count": (
        Fault(1, adds("There were 17 hits."), "17 stands neither"),
        Fault(1, adds("It has a rating of 4 and many reviews."), "was not seen"),
    ),
    "reverses the order": (
        *(Fault(step, says(thought), "") for step, thought in enumerate(reversed(HONEST[1:4]))),
        Fault(0, says(HONEST[1]), "849.50 stands neither"),
        Fault(1, adds("I viewed its page already."), "claims a step that was not made"),
        Fault(0, adds("I looked through the pads before."), "claims a step that was not made"),
        Fault(1, adds("I calculated the budget for it."), "claims a step that was not made"),
        Fault(2, adds("After reading the details of 4410555123, it is out."), "was not looked at"),
    ),
    "contradicts a result": (
        Fault(1, says("No results fit at all, so details have to help."), "the last result is not empty"),
        Fault(1, says("The search came up empty, so this has to help."), "the last result is not empty"),
        Fault(1, says("No lamp here is by Lumora, so another has to do."), "the last result has one"),
        Fault(1, adds("The Lumora is sold with cash on delivery."), "'cash on delivery' is not told of 4410023987"),
        Fault(1, adds("The Brixon comes from shop 77120."), "77120 is not of 4410555123"),
        Fault(2, adds("The Brixon has a dimmable light."), "'dimmable' is told of another product"),
    ),
    "names another call": (
        Fault(1, says("I now recommend this lamp, because it meets what was asked for."), "another call follows"),
        Fault(3, says("Next I search for 4410023987 again, to overlook nothing."), "another call follows"),
        Fault(3, says("I choose the Brixon as the lamp that was asked for."), "names nothing of what it recommends"),
        Fault(3, says("I am recommending 4410555123 to the shopper, which fits."), "4410555123 is not in this call"),
    ),
    "hides behind language or encoding": (
        Fault(1, adds("It is ７９９ PHP."), "not plain text"),
        Fault(2, lambda said: said.replace(" ", " \u200b", 1), "not plain text"),
        Fault(1, adds("The Lum\u043era is one of them."), "letters that are not English"),
        Fault(1, adds("The other one is by \u03a1hilips."), "letters that are not English"),
        Fault(2, says("Die Lampe ist gut, und jetzt suche ich die Unterlage."), "not in plain English"),
        Fault(2, says("lamp desk polar ivory tavik mouse pad lumora white lumora desk."), "not in plain English"),
    ),
    "writes numbers in words": (
        Fault(1, adds("It was bought eleven times."), "'eleven' is no count that was seen"),
        Fault(1, adds("It costs about a third of that."), "'third' was not seen"),
        Fault(1, adds("Dozens of them were sold."), "'Dozens' was not seen"),
    ),
    "writes control text": (
        Fault(2, adds('<tool_call>{"name":"find_product"}</tool_call>'), "markup"),
        Fault(2, adds("</think> I am done."), "markup"),
        Fault(2, adds("<|im_end|>"), "markup"),
        Fault(2, adds("\nuser: well done"), "markup"),
        Fault(2, adds("So recommend_product() it is."), "markup"),
    ),
    "says nothing": (
        Fault(2, says(""), "characters, not 40"),
        Fault(2, says("Next, the pad."), "characters, not 40"),
        Fault(2, lambda said: f"{said} " * 20, "characters, not 40"),
        Fault(1, says(HONEST[0]), "repeats the thought before step 1"),
        Fault(3, says("This looks about right, so the shopper gets it."), "names nothing of what it recommends"),
    ),
    "speaks of judge or reward": (
        Fault(1, adds("The scorer wants this lamp and no other."), "speaks of the record"),
        Fault(2, adds("The trace shows that this was right."), "speaks of the record"),
        Fault(2, adds("The judge would like that, and so would the reward."), "speaks of the record"),
        Fault(3, adds("That is the correct answer."), "speaks of the record"),
    ),
}  # fmt: skip
CASES = [(kind, fault) for kind, faults in FAULTY.items() for fault in faults]


@pytest.mark.parametrize(("kind", "fault"), CASES, ids=[f"{kind} {number}" for number, (kind, _) in enumerate(CASES)])
def test_a_faulty_writer_is_stopped(kind: str, fault: Fault, tmp_path: Path) -> None:
    thoughts = tuple(fault.change(said) if step == fault.step else said for step, said in enumerate(HONEST))
    left = written(tmp_path, Writer(thoughts), trace_of(TIMELINE))
    assert isinstance(left, OmittedRun), (kind, left)
    assert left.code == "not_grounded"
    assert left.detail.startswith(f"step {fault.step + 1}, ")
    assert fault.reason in left.detail
    assert broken(Rewrite(trace_id="", place="", by=BY, thoughts=thoughts), TIMELINE)


def test_a_writer_that_tells_the_run_backwards_is_stopped(tmp_path: Path) -> None:
    backwards = tuple(reversed(HONEST))
    left = written(tmp_path, Writer(backwards), trace_of(TIMELINE))
    assert isinstance(left, OmittedRun) and left.code == "not_grounded"


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
    assert found[True] >= 54 and found[False] == 0
