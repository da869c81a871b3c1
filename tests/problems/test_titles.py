"""Title matchers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foundation.errors import ArenaError
from problems.axes import match
from problems.model import Product, RewardItem
from problems.title_index import TitleIndex
from problems.titles import (
    AcceptedTitles,
    cut_titles,
    decode_accepted,
    join_titles,
    matcher_named,
    reward_titles,
    title_words,
)
from tests.problems.stand import LAMP, PROBLEMS, TWIN


def test_a_release_is_read_back_and_decides_by_membership():
    release = decode_accepted('{"name": "qwen3-0.6b/1", "accepted": {"Lamp": ["101"]}}')
    assert release.name == "qwen3-0.6b/1"
    assert release.matches(LAMP, "Lamp") and not release.matches(TWIN, "Lamp")
    with pytest.raises(ArenaError, match="V2040"):
        release.matches(LAMP, "Kettle")


@pytest.mark.parametrize(
    "text", ["", '{"name": ""}', '{"name": "", "accepted": {}}', '{"name": "lexical/1", "accepted": {}}', b"\xff"]
)
def test_a_malformed_release_is_refused(text):
    with pytest.raises(ArenaError, match="P4001"):
        decode_accepted(text)
    with pytest.raises(ArenaError, match="V2040"):
        matcher_named("lexical/9")


def test_a_release_is_cut_to_the_titles_of_some_problems_and_says_nothing_of_others():
    wanted = reward_titles(PROBLEMS)
    release = AcceptedTitles(name="qwen/1", accepted={title: frozenset({"101"}) for title in (*wanted, "Kettle")})
    cut = cut_titles(release, PROBLEMS)
    assert cut.name == "qwen/1" and cut.accepted.keys() == wanted and "Kettle" not in cut.accepted
    with pytest.raises(ArenaError, match=r"P4001.*qwen/1 does not list"):
        cut_titles(AcceptedTitles(name="qwen/1", accepted={"Kettle": frozenset()}), PROBLEMS)


def test_joined_releases_decide_each_title_by_the_first_that_lists_it_and_are_named_once():
    first = AcceptedTitles(name="suite/1", accepted={"Lamp": frozenset({"101"})})
    second = AcceptedTitles(name="bank/1", accepted={"Lamp": frozenset(), "Kettle": frozenset({"101"})})
    joined = join_titles((first, second, second))
    assert joined.name == "suite/1 + bank/1"
    assert joined.matches(LAMP, "Lamp") and joined.matches(LAMP, "Kettle") and not joined.matches(TWIN, "Kettle")
    with pytest.raises(ArenaError, match=r"V2040.*suite/1 \+ bank/1"):
        joined.matches(LAMP, "Pan")


titles = st.lists(
    st.lists(st.sampled_from("abcdefghijkl"), min_size=1, max_size=8).map(" ".join), min_size=1, max_size=12
)


def on_shelf(names) -> list[Product]:
    return [Product(product_id=f"{n:03}", shop_id="s", title=name, price=5.0) for n, name in enumerate(names)]


@given(titles, st.integers(0, 4))
def test_rivals_are_those_of_a_full_comparison(names, at_most):
    products = on_shelf(names)
    shelf = TitleIndex(products)
    for product in products:
        item = RewardItem(product_id=product.product_id, title=(product.title,))
        axes = [match(item, other, matcher_named("lexical/1")) for other in products if other is not product]
        rivals = sum(one.hits == one.total for one in axes)
        assert min(shelf.count_rivals(item, at_most), at_most + 1) == min(rivals, at_most + 1)


@given(titles, st.sets(st.sampled_from("abcdefghijkl"), max_size=3))
def test_holders_are_the_titles_with_all_the_words(names, words):
    assert TitleIndex(on_shelf(names)).count_holding(words) == sum(words <= title_words(name) for name in names)
