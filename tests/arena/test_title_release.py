"""Title releases: what passes, how firm that is, and going on after an interruption."""

from __future__ import annotations

import functools
import hashlib
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from arena.bank.titles import Vectors, build_release
from foundation.errors import ArenaError
from problems.model import BUCKETS, Problem, Product
from problems.synthesis import synthesize
from problems.titles import decode_accepted, encode_accepted
from tests.problems.stand import synthetic_shelf

# -- an embedder that needs no model
_DIMENSIONS = 256
_WORD = re.compile(r"[a-z0-9]+")


class HashedWords:
    """The scripted embedder: a text is the sum of its words' directions, each drawn from the word's hash. Counts the
    texts that are embedded, and fails after so many calls."""

    name = "hashed-words/1"

    def __init__(self, calls_max: int = 1_000) -> None:
        self.texts, self.calls_left = 0, calls_max

    def embed(self, texts: Sequence[str]) -> Vectors:
        """A row of length 1 per text; a text without words points the way of an empty word."""
        if self.calls_left == 0:
            raise ArenaError("U3002", "away")
        self.calls_left -= 1
        self.texts += len(texts)
        rows = np.zeros((len(texts), _DIMENSIONS))
        for row, text in zip(rows, texts, strict=True):
            for word in set(_WORD.findall(text.lower())) or {""}:
                bits = np.frombuffer(hashlib.shake_256(word.encode()).digest(_DIMENSIONS // 8), dtype=np.uint8)
                row += np.unpackbits(bits).astype(np.float64) * 2 - 1  # two words are nearly at right angles
        return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


# -- releases
NAME = "hashed-words/1@test"


def _products() -> tuple[Product, ...]:
    return synthetic_shelf(3_000, 5).products


@functools.cache
def _problems() -> tuple[Problem, ...]:
    return synthesize(synthetic_shelf(3_000, 5), seed=9, counts=dict.fromkeys(BUCKETS, 6))


def _reward_titles() -> list[str]:
    return sorted({title for problem in _problems() for item in problem.rewards for title in item.title})


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory):
    folder = tmp_path_factory.mktemp("vectors")
    return build_release(_problems(), _products(), HashedWords(), folder, name=NAME)


def test_a_product_passes_exactly_when_its_cosine_reaches_the_threshold(release):
    rewards, titles = map(HashedWords().embed, (_reward_titles(), [product.title for product in _products()]))
    cosines = rewards @ titles.T
    assert set(release[0].accepted) == set(_reward_titles())
    for row, title in enumerate(_reward_titles()):
        expected = {_products()[at].product_id for at in np.flatnonzero(cosines[row] >= np.float32(0.7))}
        assert release[0].accepted[title] == expected


def test_an_interrupted_build_goes_on_where_it_stopped(tmp_path: Path, release):
    folder, embedder = tmp_path, HashedWords()
    with pytest.raises(ArenaError, match="U3002"):
        build_release(_problems(), _products(), HashedWords(calls_max=2), folder, name=NAME)
    assert build_release(_problems(), _products(), embedder, folder, name=NAME) == release
    assert decode_accepted(encode_accepted(release[0])) == release[0]
    titles = len({product.title for product in _products()})
    assert embedder.texts == titles - 2_048  # the reward titles and the first piece were kept
