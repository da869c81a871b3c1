"""Readers of an agent's text take a bounded number of steps a character, whatever the text; steps are counted."""

from __future__ import annotations

import sys
import unicodedata
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.catalogue.analysis import stem
from harness.emission.wording import compose


def lines_run(action: Callable[[], object], module: str) -> int:
    """Lines of `module` that `action` executes."""
    count = 0

    def trace(frame: object, event: str, argument: object) -> object:
        nonlocal count
        if frame.f_globals.get("__name__") != module:  # type: ignore[attr-defined]
            return None
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)  # type: ignore[arg-type]
    try:
        action()
    finally:
        sys.settrace(before)
    return count


@pytest.mark.parametrize("word", ["y" * 240, "y" * 239 + "ness", "ay" * 120, "b" * 236 + "ness", "yb" * 118 + "ing"])
def test_a_word_is_stemmed_in_few_steps_a_letter(word: str) -> None:
    half = word[len(word) // 2 :]
    long, short = (lines_run(lambda: stem(text), stem.__module__) for text in (word, half))  # noqa: B023
    assert long <= 2.5 * short + 50


def longest_run_of_marks(text: str) -> int:
    longest = run = 0
    for character in unicodedata.normalize("NFKD", text):
        run = run + 1 if unicodedata.combining(character) else 0
        longest = max(longest, run)
    return longest


@settings(deadline=None)
@given(st.text(max_size=80))
def test_real_text_is_composed_as_the_standard_says(text: str) -> None:
    if longest_run_of_marks(text) <= 20:
        assert compose("NFC", text) == unicodedata.normalize("NFC", text)
