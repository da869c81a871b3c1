"""A foreign file in pieces: the same rows under the same places, whoever reads them."""

from __future__ import annotations

import random
from pathlib import Path

import msgspec
import pytest
import zstandard

from foundation.executors.processes import executor_of
from tests.training.labelled import make_labelled, select, stand_guard
from tests.training.written_rows import write_row
from training.corpus import foreign as pieces
from training.corpus.appraisal import Task
from training.corpus.foreign import ForeignShard, foreign_shards, read_foreign
from training.corpus.model import Rules

TASK = Task(arms=(Rules(off=("recommend_arguments",)),))  # what the made searches returned is in no foreign row


def put(folder: Path, name: str) -> Path:
    """A file of made traces, lines that are none, and rows of no known format."""
    lines = [msgspec.json.encode(write_row(one.trace)) for one in make_labelled(90, seed=4)]
    lines = random.Random(1).sample([*lines, b"not json", b"{", b'{"a": 1}'], len(lines) + 3)
    path, content = folder / name, b"\n\n".join([b"", *lines, b""])  # blank lines are no rows
    path.write_bytes(zstandard.compress(content) if name.endswith(".zst") else content)
    return path


@pytest.mark.parametrize(("name", "rows"), [("rows.jsonl", 7), ("rows.jsonl.zst", 1), ("rows", 40)])
def test_the_pieces_are_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, rows: int) -> None:
    monkeypatch.setattr(pieces, "SHARD_ROWS", rows)
    path = put(tmp_path, name)
    shards = foreign_shards(path)
    assert [row for shard in shards for row in shard()] == list(read_foreign(path))
    assert 2 < len(shards) <= pieces.SHARDS_MAX


def test_pieces_and_processes_give_the_same_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pieces, "SHARD_ROWS", 4)
    path = put(tmp_path, "rows.jsonl")
    whole = select([ForeignShard(path=str(path), first=1, rows=1_000)], TASK, stand_guard)
    assert whole.decisions[0].kept
    for workers in (0, 2):
        found = select(foreign_shards(path), TASK, stand_guard, executor=executor_of(workers))
        assert found.decisions == whole.decisions and found.funnels == whole.funnels
