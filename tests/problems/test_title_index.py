"""The word index counts what a full comparison would count."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from problems.axes import match
from problems.model import Product, RewardItem
from problems.title_index import TitleIndex
from problems.titles import matcher_named, title_words

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
