"""Terms and products are found in the mapped files as they would be in a table."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given, settings
from hypothesis import strategies as st

from harness.catalogue import layout
from harness.catalogue.layout import Vocabulary

TERMS = st.text(st.characters(min_codepoint=33, exclude_categories=("Cs",)), min_size=1, max_size=6)


@settings(deadline=None)
@given(st.sets(TERMS, max_size=300), st.lists(TERMS, max_size=20))
def test_every_term_has_its_number_and_other_words_have_none(terms: set[str], others: list[str]) -> None:
    names = sorted(terms)
    with TemporaryDirectory() as folder:
        (Path(folder) / layout.VOCABULARY).write_bytes("\n".join(names).encode())
        vocabulary = Vocabulary(Path(folder))
        assert [vocabulary.number(name) for name in names] == list(range(len(names)))
        for other in {*others, "", "\ud800", *(name + "x" for name in names[:40]), *(name[:-1] for name in names[:40])}:
            assert vocabulary.number(other) == (names.index(other) if other in terms else None)
