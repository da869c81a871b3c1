"""A foreign file in pieces: the same rows under the same places, whoever reads them and however often it was killed."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest
import zstandard

from foundation.executors.processes import executor_of
from tests.prove.corpus_scale_run import folder_sha256
from tests.training.labelled import make_labelled, stand_guard
from tests.training.written_rows import write_row
from training.corpus import foreign as pieces
from training.corpus.appraisal import Task
from training.corpus.building import Origin, Sources, arms_of, filter_sources, open_journal, write_filtered
from training.corpus.foreign import ARCHIVE_SHARDS_MAX, ForeignShard, foreign_shards, read_foreign
from training.corpus.model import Rules

RULES = Rules(off=("recommend_arguments",))  # what the made searches returned is in no foreign row
ORIGIN = Origin(partition_sha256="cd" * 32, code_commit="f6")


def rows() -> list[bytes]:
    """Rows of a file: made traces, lines that are none, and rows of no known format."""
    lines = [msgspec.json.encode(write_row(one.trace)) for one in make_labelled(90, seed=4)]
    return random.Random(1).sample([*lines, b"not json", b"{", b'{"a": 1}'], len(lines) + 3)


def put(folder: Path, name: str, lines: Sequence[bytes]) -> Path:
    path, content = folder / name, b"\n\n".join([b"", *lines, b""])  # blank lines are no rows
    path.write_bytes(zstandard.compress(content) if name.endswith(".zst") else content)
    return path


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pieces of a few rows."""
    monkeypatch.setattr(pieces, "SHARD_ROWS", 4)


@pytest.mark.parametrize("name", ["rows.jsonl", "rows.jsonl.zst", "rows"])
@pytest.mark.parametrize(
    ("most_rows", "most_bytes"), [(1, 1 << 20), (7, 1 << 20), (1_000, 1), (1_000, 9_000), (4, 9_000)]
)
def test_the_pieces_are_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, most_rows: int, most_bytes: int
) -> None:
    monkeypatch.setattr(pieces, "SHARD_ROWS", most_rows)
    monkeypatch.setattr(pieces, "SHARD_BYTES", most_bytes)
    path = put(tmp_path, name, rows())
    shards = foreign_shards(path)
    assert [row for shard in shards for row in shard()] == list(read_foreign(path))
    assert len(shards) > 3
    if name.endswith(".zst"):
        assert len(shards) <= ARCHIVE_SHARDS_MAX
        return
    for shard in shards:
        read = list(shard())
        assert 1 <= len(read) <= most_rows
        assert len(read) == 1 or sum(map(len, rows()[shard.first - 1 : shard.first - 1 + len(read)])) <= most_bytes


def build(out: Path, shards: Sequence[ForeignShard], *, workers: int = 0, ends_after: int | None = None) -> str:
    """A corpus of these shards; one that ends after so many of them, as if killed, says "" and leaves its journal."""

    def progress(phase: str, done: int, total: int) -> None:
        if phase == "filter" and done == ends_after:
            raise KeyboardInterrupt

    sources = Sources(shards=tuple(shards), hashes=("ab" * 32,), is_trusted_unsigned=True)
    task, arms = Task(arms=(RULES,)), arms_of(RULES, ())
    journal = open_journal(out, sources, task, arms, "guard")
    try:
        filtered = filter_sources(
            sources, task, arms, stand_guard, executor=executor_of(workers), progress=progress, journal=journal
        )
    except KeyboardInterrupt:
        return ""
    write_filtered(filtered, out, stand_guard, ORIGIN, executor=executor_of(workers))
    journal.discard()
    return folder_sha256(out)


def test_pieces_processes_and_an_end_on_the_way_give_the_same_corpus(tmp_path: Path, small: None) -> None:
    path = put(tmp_path, "rows.jsonl", rows())
    shards = foreign_shards(path)
    whole = build(tmp_path / "one", [ForeignShard(path=str(path), first=1, start=0, rows=None)])
    assert build(tmp_path / "many", shards) == whole
    assert build(tmp_path / "two", shards, workers=2) == whole
    assert build(tmp_path / "cut", shards, ends_after=5) == ""
    assert build(tmp_path / "cut", shards) == whole
