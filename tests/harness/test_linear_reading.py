"""Readers of an agent's text take a bounded number of steps a character, whatever the text; steps are counted."""

from __future__ import annotations

import functools
import itertools
import sys
import unicodedata
from collections.abc import Callable

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from harness.catalogue import analysis as stemmer
from harness.catalogue.analysis import stem
from harness.catalogue.tokenizer import TOKEN_UNITS_MAX, Scanner, _scanner, tokens
from harness.emission.wording import compose
from tests.harness.catalogue_queries import ALPHABET
from tests.harness.hostile_inputs import hostile_texts

STEPS_A_CHARACTER = 8
# Characters that may open a token and open none, that stick to others, that glue, and the ends they wait for.
OPENERS = [
    "_",
    "\u200d",
    "a.\u200d",
    "#\u200d\ufe0f",
    "🇦\u0301\u200d",
    "_\u200d\u0301",
    "1,\u0301",
    "😀\u200d",
    'א"\u0301',
]


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


@settings(deadline=None, max_examples=150)
@given(
    st.lists(st.tuples(st.sampled_from(OPENERS), st.sampled_from([1, 2, 60, 254, 256, 700])), min_size=1, max_size=8)
)
@example([("_", 1), ("\u200d", 60), ("_", 1)])
def test_runs_that_open_no_token_are_read_in_few_steps_a_character(runs: list[tuple[str, int]]) -> None:
    text = "".join(opener * times for opener, times in runs)
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


def is_consonant(word: str, index: int) -> bool:
    """Porter's definition."""
    if word[index] == "y":
        return index == 0 or not is_consonant(word, index - 1)
    return word[index] not in "aeiou"


@settings(deadline=None, max_examples=300)
@given(st.text(st.sampled_from("yyyaebt"), max_size=12))
def test_a_run_of_y_takes_turns_from_its_start(word: str) -> None:
    kinds = [is_consonant(word, index) for index in range(len(word))]
    assert [stemmer._is_consonant(word, index) for index in range(len(word))] == kinds
    assert stemmer._measure(word) == sum(not before and after for before, after in itertools.pairwise(kinds))
    assert stemmer._has_vowel(word) == (not all(kinds))


def longest_run_of_marks(text: str) -> int:
    longest = run = 0
    for character in unicodedata.normalize("NFKD", text):
        run = run + 1 if unicodedata.combining(character) else 0
        longest = max(longest, run)
    return longest


@settings(deadline=None)
@given(st.lists(st.tuples(st.sampled_from("aé\u0301\u0316\u0344\u0f73\u0f75\u0f81\uff9e\u1fee"), st.integers(1, 90))))
def test_no_run_of_marks_that_is_sorted_is_long(parts: list[tuple[str, int]]) -> None:
    text = "".join(character * times for character, times in parts)
    for form in ("NFC", "NFKC"):
        assert longest_run_of_marks(compose(form, text)) <= 64  # type: ignore[arg-type]


def test_every_character_that_decomposes_to_marks_alone_counts_as_one() -> None:
    hidden = [
        character
        for character in map(chr, range(sys.maxunicode + 1))
        if not unicodedata.combining(character) and unicodedata.combining(unicodedata.normalize("NFKD", character)[0])
    ]
    assert hidden and all(len(compose("NFC", character * 100)) < 70 for character in hidden)


@settings(deadline=None)
@given(st.text(max_size=80))
def test_real_text_is_composed_as_the_standard_says(text: str) -> None:
    if longest_run_of_marks(text) <= 20:
        assert compose("NFC", text) == unicodedata.normalize("NFC", text)
