"""The index of a bank's folder: every file is read once, and nothing is believed that no file says."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from arena.bank.stock import INDEX_FILE, BatchStock, FileIndex, Held
from foundation.errors import ArenaError
from problems.synthesis import ProblemMaker
from problems.title_index import TitleIndex
from tests.problems.stand import make_catalogue


class Desk:
    """A folder of files of one word each, and how often each was read."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.reads = folder, list[str]()

    def describe(self, path: Path) -> Held:
        self.reads.append(path.name)
        return Held(problem_ids=(path.read_text(),), product_ids=())

    def index(self) -> FileIndex:
        """As a process that has just started has it."""
        return FileIndex(self.folder, self.describe)


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    for name in "abc":
        (tmp_path / f"{name}.batch.json").write_text(name)
    return Desk(tmp_path)


def ids(index: FileIndex) -> list[str]:
    return [held for file in index.files("*.batch.json") for held in file.held.problem_ids]


def test_a_changed_file_is_read_again_and_one_that_is_gone_is_forgotten(desk):
    index = desk.index()
    ids(index)
    (desk.folder / "a.batch.json").write_text("changed")
    (desk.folder / "b.batch.json").unlink()
    assert ids(index) == ids(desk.index()) == ["changed", "c"]


@pytest.mark.parametrize("spoil", [b"{}", b"\xff\xfe", b'{"name": "a.batch.json"', b"\n\n"])
def test_a_spoilt_index_costs_reading_and_nothing_else(desk, spoil):
    ids(desk.index())
    path = desk.folder / INDEX_FILE
    path.write_bytes(path.read_bytes()[:-9] + spoil)
    assert ids(desk.index()) == ["a", "b", "c"]
    desk.reads.clear()
    assert ids(desk.index()) == ["a", "b", "c"]
    assert desk.reads == []


def test_a_file_that_cannot_be_read_is_raised_and_never_entered(desk):
    (desk.folder / "d.batch.json").mkdir()
    for _ in range(2):
        with pytest.raises(OSError, match="directory"):
            ids(desk.index())
    (desk.folder / "d.batch.json").rmdir()
    (desk.folder / "d.batch.json").symlink_to("nowhere")
    with pytest.raises(ArenaError, match=r"P4001.*d\.batch\.json"):
        ids(desk.index())


def test_a_stock_that_starts_again_reads_no_earlier_batch_and_repeats_no_answer(tmp_path):
    maker = ProblemMaker(TitleIndex(make_catalogue(300)))
    seen: list[frozenset[str]] = []

    def replenish(earlier: frozenset[str]):
        seen.append(earlier)
        return maker.make(seed=len(seen), counts={"product": 3})

    for number in range(5):  # each by a process of its own
        BatchStock(tmp_path, os.urandom, replenish).seal_for(f"race-{number}", 3)
    for path in tmp_path.glob("race-[0-3].batch.json"):
        before = path.stat()
        path.write_bytes(b"x" * before.st_size)  # nobody looks inside any more ...
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    stock = BatchStock(tmp_path, os.urandom, replenish)
    assert stock.seal_for("race-5", 3).problem_ids
    assert [len(earlier) for earlier in seen] == [0, 3, 6, 9, 12, 15]
    with pytest.raises(ArenaError, match="P4001"):
        stock.batch("race-0")  # ... unless for the batch itself
