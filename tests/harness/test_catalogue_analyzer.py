"""Text becomes the terms Anserini's English analyzer makes."""

from __future__ import annotations

import json
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from harness.catalogue.analysis import default_analyzer, scan, tokens
from tests.harness.catalogue_queries import ALPHABET


def test_difficult_texts_have_the_terms_that_lucene_gave() -> None:
    """Every string a comparison with Lucene ever found to differ, runs at the length limit, and random ones."""
    golden = json.loads(Path(__file__).with_name("catalogue_lucene_terms.json").read_text("utf-8"))
    assert len(golden["rows"]) > 400
    own = default_analyzer().terms
    assert not [(text, terms, own(text)) for text, terms in golden["rows"] if own(text) != terms]


@settings(deadline=None, max_examples=300)
@given(
    st.lists(
        st.tuples(
            st.text(st.sampled_from(ALPHABET + "_\u200d🇦#.' "), max_size=4), st.sampled_from([1, 1, 2, 128, 255, 257])
        ),
        max_size=5,
    )
)
def test_the_fast_way_over_ascii_words_is_the_way_of_the_classes(parts: list[tuple[str, int]]) -> None:
    text = "".join(part * times for part, times in parts)
    assert tokens(text) == scan(text)
