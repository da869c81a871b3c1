"""Ours equals the reference on every golden row."""

from __future__ import annotations

import json

import pytest

from problems.cases import Documents, score_cases
from problems.titles import matcher_named
from tests.problems.stand import DATA

CASES, DOCUMENTS = DATA / "scoring_cases.jsonl", DATA / "scoring_documents.jsonl"
pytestmark = pytest.mark.skipif(not CASES.is_file(), reason=f"golden vectors are not at {CASES}")


def test_every_golden_row_has_the_reference_keys_and_values():
    expected = {row["case_id"]: row["expected"] for row in map(json.loads, CASES.open())}
    with DOCUMENTS.open("rb") as documents, CASES.open("rb") as cases:
        results = list(score_cases(cases, Documents(documents), matcher_named("lexical/1")))
    assert len(results) == len(expected) == 800
    for result in results:
        case_id = str(result["case_id"])
        assert list(result.items()) == [("case_id", case_id), *expected[case_id].items()]
