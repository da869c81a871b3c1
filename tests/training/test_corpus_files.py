"""A corpus on disk: the same bytes, the same rows back, and nothing half-written."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import datasets
import msgspec
import pytest

from foundation.errors import ArenaError
from tests.training.labelled import make_labelled, select, stand_guard
from training.corpus.appraisal import Task
from training.corpus.building import Filtered
from training.corpus.corpus_files import (
    DATA,
    FUNNEL,
    LINEAGE,
    REJECTED,
    read_lineage,
    read_rows,
    write_corpus,
)
from training.corpus.funnel import CODES
from training.corpus.model import MEANING, CorpusRow, Lineage, Rejection, Rules
from training.corpus.report import render_card
from training.corpus.selection import kept_rows, rejections

LINEAGE_VALUE = Lineage(
    rules=Rules(),
    sources=("ab" * 32,),
    is_trusted_unsigned=False,
    tokenizer_sha256="stand-in/1",
    partition_sha256="cd" * 32,
    code_commit="f6",
    rows_sha256="",
)


@pytest.fixture(scope="module")
def filtered() -> tuple[list[CorpusRow], list[Rejection], Filtered]:
    traces = [one.trace for one in make_labelled(400, seed=7)]
    found = select([lambda: traces], Task(arms=(Rules(),)), stand_guard)
    rows = list(kept_rows([lambda: traces], found.appraised, found.decisions[0]))
    return rows, list(rejections(found.appraised, found.decisions[0])), found


def write(
    folder: Path, filtered: tuple[list[CorpusRow], list[Rejection], Filtered], *, is_reversed: bool = False
) -> Lineage:
    rows, left, found = filtered
    step = -1 if is_reversed else 1
    return write_corpus(
        folder, rows[::step], lineage=LINEAGE_VALUE, funnel=found.funnels[0], rejected=left[::step], guard=stand_guard
    )


def digests(folder: Path) -> dict[str, str]:
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_the_same_rows_in_any_order_are_the_same_bytes(tmp_path: Path, filtered: tuple) -> None:
    one, other = write(tmp_path / "a", filtered), write(tmp_path / "b", filtered, is_reversed=True)
    assert one == other
    assert digests(tmp_path / "a") == digests(tmp_path / "b")
    assert sorted(digests(tmp_path / "a")) == sorted([DATA, "README.md", LINEAGE, FUNNEL, REJECTED, "report.html"])


def test_rows_come_back_as_they_were(tmp_path: Path, filtered: tuple) -> None:
    write(tmp_path / "a", filtered)
    wanted = sorted(filtered[0], key=lambda row: (row.trace.trace_id, row.trace.source.place))
    assert list(read_rows(tmp_path / "a")) == wanted
    assert read_lineage(tmp_path / "a").rows_sha256


def test_the_folder_loads_as_a_dataset_with_messages_as_text(tmp_path: Path, filtered: tuple) -> None:
    write(tmp_path / "a", filtered)
    loaded = datasets.load_dataset(str(tmp_path / "a"), split="train", cache_dir=str(tmp_path / "cache"))
    assert loaded.num_rows == len(filtered[0])
    calls = [call for message in json.loads(loaded[0]["messages"]) for call in message.get("tool_calls", ())]
    assert all(isinstance(call["function"]["arguments"], str) and call["type"] == "function" for call in calls)
    assert loaded.features["coefficient_e4"].dtype == "int64"


def test_rows_that_are_not_the_lineages_are_noticed(tmp_path: Path, filtered: tuple) -> None:
    write(tmp_path / "a", filtered)
    write(tmp_path / "b", (filtered[0][1:], *filtered[1:]))
    (tmp_path / "b" / DATA).replace(tmp_path / "a" / DATA)
    with pytest.raises(ArenaError, match="lineage"):
        list(read_rows(tmp_path / "a"))


def test_the_card_names_every_code_and_says_when_sources_were_only_trusted(filtered: tuple) -> None:
    assert set(MEANING) == set(CODES)
    trusted = msgspec.structs.replace(LINEAGE_VALUE, is_trusted_unsigned=True)
    card = render_card(trusted, filtered[2].funnels[0], len(filtered[0]), ())
    assert "unsigned" in card
    assert "unsigned" not in render_card(LINEAGE_VALUE, filtered[2].funnels[0], 1, ())
    assert all(f"| {one.code} | {one.count:,} |" in card for one in filtered[2].funnels[0].codes)
