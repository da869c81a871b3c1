"""The stock of a bank: one race, one batch, each used once."""

from __future__ import annotations

import os

import pytest

from arena.bank.stock import BatchStock
from foundation.errors import ArenaError
from problems.model import Problem
from problems.synthesis import synthesize
from tests.problems.stand import make_catalogue

CATALOGUE = make_catalogue(120)


def made(seed: int, count: int = 3) -> tuple[Problem, ...]:
    """Some problems in the order of their ids, as they are in a batch."""
    return tuple(sorted(synthesize(CATALOGUE, seed=seed, counts={"product": count}), key=lambda one: one.problem_id))


FIRST, SECOND = made(1), made(2)


@pytest.fixture
def stock(tmp_path) -> BatchStock:
    stock = BatchStock(tmp_path / "bank", os.urandom)
    stock.add("a", FIRST)
    stock.add("b", SECOND)
    return stock


def test_a_race_keeps_the_batch_it_was_given(stock):
    sealed = stock.seal_for("race-1", 3)
    assert sealed.problems == FIRST
    assert stock.seal_for("race-1", 3) == sealed == stock.batch("race-1")


def test_the_stock_counts_down_and_says_when_it_is_empty(stock):
    assert stock.waiting() == 2
    stock.seal_for("race-1", 3)
    assert stock.waiting() == 1
    stock.seal_for("race-2", 3)
    assert stock.waiting() == 0
    with pytest.raises(ArenaError, match="P4014"):
        stock.seal_for("race-3", 3)


def test_a_stock_file_that_came_back_under_another_name_is_not_used_again(stock):
    stock.seal_for("race-1", 3)
    stock.add("0-again", FIRST)
    assert stock.seal_for("race-2", 3).problems == SECOND


def test_a_batch_that_was_changed_while_its_race_runs_is_refused_though_it_was_read_before(stock, tmp_path):
    """Its size and its time of change are put back, as by somebody who hides it."""
    stock.seal_for("race-1", 3)
    assert stock.batch("race-1") is stock.batch("race-1")  # what did not change is not read again
    (path,) = (tmp_path / "bank").glob("*.batch.json")
    before, whole = path.stat(), path.read_bytes()
    changed = whole.replace(FIRST[0].problem_id.encode(), FIRST[0].problem_id[::-1].encode())
    assert len(changed) == len(whole) != 0 and changed != whole
    while path.stat().st_ctime_ns == before.st_ctime_ns:  # the file system's clock has steps
        path.write_bytes(changed)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    with pytest.raises(ArenaError, match="P4010"):
        stock.batch("race-1")
    path.unlink()
    with pytest.raises(ArenaError, match="P4001"):
        stock.batch("race-1")


def test_a_file_too_small_for_the_draw_is_passed_over_and_never_sealed(stock, tmp_path):
    stock.add("0-small", synthesize(CATALOGUE, seed=3, counts={"product": 2}))
    assert stock.seal_for("race-1", 3).problems == FIRST
    stock.seal_for("race-2", 3)
    with pytest.raises(ArenaError, match=r"P4015.*stock-0-small.jsonl holds 2 problems, a race draws 3"):
        stock.seal_for("race-3", 3)
    assert not (tmp_path / "bank" / "race-3.batch.json").exists()


def test_problems_made_for_a_race_must_be_enough_for_its_draw(tmp_path):
    stock = BatchStock(tmp_path / "bank", os.urandom, lambda _: FIRST)
    with pytest.raises(ArenaError, match="P4015"):
        stock.seal_for("race-1", 4)
    assert not (tmp_path / "bank").exists()
    assert stock.seal_for("race-1", 3).problems == FIRST


def test_the_problems_of_a_race_that_was_never_drawn_serve_another_under_a_new_salt(stock):
    first = stock.seal_for("race-1", 3)
    assert (stock.waiting(), stock.waiting(["race-1"])) == (1, 2)
    again = stock.seal_for("race-2", 3, ["race-1"])
    assert again.problems == first.problems
    assert again.salt != first.salt and again.batch_sha256 != first.batch_sha256
    assert stock.batch("race-1") == first
    assert stock.seal_for("race-3", 3, ["race-1"]).problems == SECOND  # race-2 was drawn


def test_a_folder_that_cannot_be_written_is_a_coded_failure(tmp_path):
    (tmp_path / "bank").write_text("a file where the folder should be")
    with pytest.raises(ArenaError, match="V2064"):
        BatchStock(tmp_path / "bank", os.urandom).add("a", FIRST)


def test_a_stock_file_that_cannot_be_read_is_a_coded_failure(stock, tmp_path):
    (tmp_path / "bank" / "stock-0.jsonl").mkdir()
    with pytest.raises(ArenaError, match=r"P4001.*stock-0.jsonl"):
        stock.seal_for("race-1", 3)
