"""Text becomes the terms Anserini's English analyzer makes."""

from __future__ import annotations

import json
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from harness.catalogue.analysis import default_analyzer
from harness.catalogue.tokenizer import tokens
from tests.harness.catalogue_queries import ALPHABET


def test_difficult_texts_have_the_terms_that_lucene_gave() -> None:
    """Every string a comparison with Lucene ever found to differ, runs at the length limit, and random ones."""
    golden = json.loads(Path(__file__).with_name("catalogue_lucene_terms.json").read_text("utf-8"))
    assert len(golden["rows"]) > 400
    own = default_analyzer().terms
    assert not [(text, terms, own(text)) for text, terms in golden["rows"] if own(text) != terms]


@settings(deadline=None)
@given(st.text(st.sampled_from(ALPHABET + "   "), max_size=40))
def test_a_text_is_cut_the_same_word_by_word(text: str) -> None:
    """No token holds a space, and the fast way over ASCII words is the automaton's way."""
    assert tokens(text) == [token for piece in text.split(" ") for token in tokens(f"{piece} é")[:-1]]
