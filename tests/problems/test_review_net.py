"""The review net: an order-free list of pairs to read, the same on every machine."""

from __future__ import annotations

import random

from problems.clusters import SIMILARITY_MIN_E4, content_words, similar_pairs
from problems.model import Problem, RewardItem


def ask(problem_id: str, query: str) -> Problem:
    return Problem(
        problem_id=problem_id,
        bucket="product",
        query=query,
        rewards=(RewardItem(product_id=problem_id, title=(problem_id,)),),
    )


KETTLE = "I'm looking for a Vermo steel kettle with bamboo handle, 500ml, priced above 300 PHP."
TURNED = "Show me: bamboo handle, kettle of steel by Vermo, 0.5 L, costing more than 300 pesos"
BANK = [
    ask("a", KETTLE),
    ask("b", TURNED),
    ask("c", "A red cotton shirt with long sleeves for beach weddings"),
    ask("d", "Vermo steel kettle with bamboo handle and dimmer lamp beside cotton rug"),
    ask("e", "kettle"),
    ask("f", "kettle"),
]


def test_words_in_another_order_and_other_phrases_of_asking_are_the_same_content():
    assert (
        content_words(KETTLE)
        == content_words(TURNED)
        == {"vermo", "steel", "kettle", "bamboo", "handle", "500ml", "300"}
    )


def test_pairs_alike_are_listed_in_one_order_and_short_queries_never():
    pairs = similar_pairs(BANK)
    assert [(pair.left, pair.right, pair.similarity_e4) for pair in pairs] == [("a", "b", 10_000)]
    assert similar_pairs(random.Random(1).sample(BANK, len(BANK))) == pairs


def test_the_net_finds_what_comparing_every_pair_finds():
    rng = random.Random(4)
    vocabulary = [f"word{chr(97 + a)}{chr(97 + b)}" for a in range(20) for b in range(10)]
    bank = []
    for number in range(120):
        words = rng.sample(vocabulary, 12)
        bank.append(ask(f"x{number}", " ".join(words)))
        bank.append(ask(f"y{number}", " ".join([*words[: rng.randint(9, 12)], *rng.sample(vocabulary, 1)])))
    words_of = {problem.problem_id: content_words(problem.query) for problem in bank}
    ids = sorted(words_of)
    exact = {
        (left, right)
        for place, left in enumerate(ids)
        for right in ids[place + 1 :]
        if 10_000 * len(words_of[left] & words_of[right]) >= SIMILARITY_MIN_E4 * len(words_of[left] | words_of[right])
    }
    found = {(pair.left, pair.right) for pair in similar_pairs(bank)}
    assert found <= exact and len(exact) >= 100
    assert len(found) >= 0.97 * len(exact)
