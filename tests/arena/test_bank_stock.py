"""The stock of a bank: one race, one batch, each used once."""

from __future__ import annotations

import os
import stat

import pytest

from arena.bank.stock import BatchStock
from problems.errors import ArenaError
from problems.synthesis import synthesize
from tests.problems.stand import make_catalogue

CATALOGUE = make_catalogue(120)
FIRST = synthesize(CATALOGUE, seed=1, counts={"product": 3})
SECOND = synthesize(CATALOGUE, seed=2, counts={"product": 3})


@pytest.fixture
def stock(tmp_path) -> BatchStock:
    stock = BatchStock(tmp_path / "bank", os.urandom)
    stock.add("a", FIRST)
    stock.add("b", SECOND)
    return stock


def test_a_race_keeps_the_batch_it_was_given(stock):
    sealed = stock.seal_for("race-1")
    assert sealed.problems == FIRST
    assert stock.seal_for("race-1") == sealed == stock.batch("race-1")


def test_another_race_gets_other_problems_and_another_salt(stock):
    first, second = stock.seal_for("race-1"), stock.seal_for("race-2")
    assert not set(first.problem_ids) & set(second.problem_ids)
    assert first.salt != second.salt


def test_the_stock_counts_down_and_says_when_it_is_empty(stock):
    assert stock.waiting() == 2
    stock.seal_for("race-1")
    assert stock.waiting() == 1
    stock.seal_for("race-2")
    assert stock.waiting() == 0
    with pytest.raises(ArenaError, match="P4014"):
        stock.seal_for("race-3")


def test_a_stock_file_that_came_back_under_another_name_is_not_used_again(stock):
    stock.seal_for("race-1")
    stock.add("0-again", FIRST)
    assert stock.seal_for("race-2").problems == SECOND


def test_an_unknown_race_has_no_batch(stock):
    with pytest.raises(ArenaError, match="P4001"):
        stock.batch("race-9")


def test_answers_on_disk_are_readable_by_their_owner_only(stock, tmp_path):
    stock.seal_for("race-1")
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "bank").iterdir()}
    assert modes and set(modes.values()) == {0o600}
