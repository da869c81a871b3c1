"""The guess at who wrote the calls, held against what was recorded and against what was constructed."""

from __future__ import annotations

import pytest

from tests.training.firehose import TRUTH, Firehose, dialogue_of
from tests.training.foreign_agents import STYLES, make_dialogue
from tests.training.labelled import Maker
from training.corpus.foreign import convert_row
from training.corpus.gates import looks_subtask
from training.corpus.model import EMITTERS

EACH = 40
MISTAKEN = {"form filler", "searches first", "prose on demand"}  # what no reader of the text could tell, by design
PRECISION_E4_MIN, RECALL_E4_MIN = 9_500, 6_000  # no agentic style is taken for subtask, three of eight pass


def test_on_recorded_episodes_told_as_sn15_does_the_guess_is_what_was_recorded(firehose: Firehose) -> None:
    """The record knows who wrote each call; the dialogue its agent would have told SN15 of has lost it."""
    made = list(firehose.as_recorded())
    told = [convert_row(dialogue_of(one), "told:1", "00") for one in made]
    assert {one.agent for one in made} == set(TRUTH)
    assert all(trace.facts.is_agentic is None and EMITTERS in trace.missing for trace in told)
    wrong = [
        one.agent for one, trace in zip(made, told, strict=True) if looks_subtask(trace) is one.evaluation.is_agentic
    ]
    assert not wrong


def test_precision_and_recall_on_constructed_styles_stay_above_the_bound(capsys: pytest.CaptureFixture[str]) -> None:
    maker = Maker(11)
    guesses = {style: sum(looks_subtask(make_dialogue(maker, style)) for _ in range(EACH)) for style in STYLES}
    caught = sum(count for style, count in guesses.items() if STYLES[style] == "subtask")
    accused = sum(guesses.values())
    subtasks = EACH * sum(truth == "subtask" for truth in STYLES.values())
    precision_e4, recall_e4 = 10_000 * caught // accused, 10_000 * caught // subtasks
    with capsys.disabled():
        print(f"\nheuristic split: precision {precision_e4 / 100} %, recall {recall_e4 / 100} %, {guesses}")
    assert precision_e4 >= PRECISION_E4_MIN
    assert recall_e4 >= RECALL_E4_MIN
    right = {style: EACH if truth == "subtask" else 0 for style, truth in STYLES.items()}
    assert {style for style in STYLES if abs(guesses[style] - right[style]) > EACH // 20} <= MISTAKEN
