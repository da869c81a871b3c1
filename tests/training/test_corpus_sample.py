"""The blind sheet: what people may see, and what they must not."""

from __future__ import annotations

import csv
import io

import msgspec
import pytest

from tests.training.labelled import make_labelled, select, stand_guard
from training.corpus.appraisal import Task
from training.corpus.model import CorpusRow, Rules
from training.corpus.sampling import (
    SHEET_COLUMNS,
    draw_sample,
    sheet_csv,
    sheet_html,
)
from training.corpus.selection import kept_rows


@pytest.fixture(scope="module")
def rows() -> list[CorpusRow]:
    traces = [one.trace for one in make_labelled(300, seed=13)]
    found = select([lambda: traces], Task(arms=(Rules(),)), stand_guard)
    kept = kept_rows([lambda: traces], found.appraised, found.decisions[0])
    secret = {"agent": "agent-secret", "team": "team-secret", "reward_e4": 7_531, "race_id": "race-secret"}
    return [
        msgspec.structs.replace(
            row, trace=msgspec.structs.replace(row.trace, facts=msgspec.structs.replace(row.trace.facts, **secret))
        )
        for row in kept
    ]


def test_neither_sheet_tells_who_wrote_a_trace_or_how_it_was_judged(rows: list[CorpusRow]) -> None:
    items, keys = draw_sample(rows, 20, seed=1)
    for sheet in (sheet_csv(items), sheet_html(items)):
        assert "secret" not in sheet and "7531" not in sheet and "emitter" not in sheet
        assert all(key["trace_id"] not in sheet and key["place"] not in sheet for key in keys)


def test_the_csv_has_empty_answers_and_runs_no_formula(rows: list[CorpusRow]) -> None:
    one = msgspec.structs.replace(rows[0].trace, query='=HYPERLINK("x")')
    items, _ = draw_sample([msgspec.structs.replace(rows[0], trace=one)], 1, seed=1)
    header, row = csv.reader(io.StringIO(sheet_csv(items)))
    assert tuple(header) == SHEET_COLUMNS
    assert row[1].startswith("'=") and row[3:] == ["", ""]
