"""Readers of an agent's text take a bounded number of steps a character, whatever the text; steps are counted."""

from __future__ import annotations

import functools
import sys
import unicodedata
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.catalogue.analysis import stem
from harness.catalogue.tokenizer import TOKEN_UNITS_MAX, Scanner, _scanner, tokens
from harness.emission.wording import compose
from tests.harness.catalogue_queries import ALPHABET
from tests.harness.hostile_inputs import hostile_texts

STEPS_A_CHARACTER = 8


class CountingRow(dict[str, int]):
    """A row of the automaton that counts how often it is asked."""

    asked = 0

    def get(self, key: str, default: object = None) -> object:  # type: ignore[override]
        CountingRow.asked += 1
        return super().get(key, default)


@functools.cache
def counting_scanner() -> Scanner:
    scanner = Scanner(_scanner()._table)
    scanner._rows = [CountingRow(row) for row in scanner._rows]
    return scanner


def steps(text: str) -> int:
    CountingRow.asked = 0
    counting_scanner().tokens(text)
    return CountingRow.asked


@pytest.mark.parametrize("why", hostile_texts())
def test_a_hostile_text_is_cut_in_few_steps_a_character(why: str) -> None:
    text = hostile_texts()[why][:20_000]
    assert steps(text) <= STEPS_A_CHARACTER * len(text)


def plain_tokens(text: str) -> list[str]:
    """The definition: at every place the longest token of at most TOKEN_UNITS_MAX units, read from its beginning."""
    scanner = _scanner()
    classes, out, place = text.translate(scanner._table), [], 0
    while place < len(text):
        state, end, units = 0, place, 0
        for here in range(place, len(text)):
            following = scanner._rows[state].get(classes[here])
            units += 1 + (text[here] > "\uffff")
            if following is None or units > TOKEN_UNITS_MAX:
                break
            state = following
            end = here + 1 if scanner._is_final[state] else end
        if end > place:
            out.append(text[place:end])
        place = max(end, place + 1)
    return out


@settings(deadline=None, max_examples=300)
@given(
    st.lists(
        st.tuples(
            st.text(st.sampled_from(ALPHABET + "_\u200d🇦#.' "), max_size=4), st.sampled_from([1, 1, 2, 128, 255, 257])
        ),
        max_size=5,
    )
)
def test_tokens_are_those_of_the_definition(parts: list[tuple[str, int]]) -> None:
    text = "".join(part * times for part, times in parts)
    assert tokens(text) == plain_tokens(text)
    assert _scanner().tokens(text) == plain_tokens(text)


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
