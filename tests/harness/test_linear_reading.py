"""Text is composed as the standard says, though no character is read more often than a bounded number of times."""

from __future__ import annotations

import unicodedata

from hypothesis import given, settings
from hypothesis import strategies as st

from harness.emission.wording import compose


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
