"""Problem files from elsewhere: what the catalogue lacks is said before a run, web rows are left out by a switch."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from foundation.errors import ArenaError
from harness.catalogue.port import Catalogue
from neurons.practice.problems import read_problem_file, refuse_missing
from tests.harness.catalogue_stand import catalogue_of
from tests.problems.stand import synthetic_shelf

PRODUCTS = synthetic_shelf(3_000, 5).products[:20]


@pytest.fixture(scope="module")
def catalogue(tmp_path_factory: pytest.TempPathFactory) -> Catalogue:
    return catalogue_of(PRODUCTS, tmp_path_factory.mktemp("few"))


def file_of(folder: Path, *ids: str, web: int = 0) -> Path:
    rows = [{"query": f"a lamp {name}", "reward": {"product_id": name, "title": ["lamp"]}} for name in ids]
    rows += [{"query": "q", "category": "web", "reward": {"product_id": "1", "title": "t"}}] * web
    path = folder / "problems.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    return path


def test_web_rows_are_refused_or_left_out_with_their_number(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = file_of(tmp_path, "123456789", web=2)
    with pytest.raises(ArenaError, match=r"P4008.*2 of 3 rows"):
        read_problem_file(path, is_web_skipped=False)
    assert capsys.readouterr().err == ""
    assert [one.query for one in read_problem_file(path, is_web_skipped=True)] == ["a lamp 123456789"]
    assert capsys.readouterr().err == "2 web problems skipped, 1 left\n"
    with pytest.raises(ArenaError, match="P4001"):
        read_problem_file(tmp_path / "none", is_web_skipped=True)


def test_answers_that_the_catalogue_lacks_are_refused_unless_told_otherwise(
    tmp_path: Path, catalogue: Catalogue, capsys: pytest.CaptureFixture[str]
) -> None:
    known, lacking = PRODUCTS[0].product_id, "999999999"
    refuse_missing(read_problem_file(file_of(tmp_path, known), is_web_skipped=False), catalogue, is_allowed=False)
    assert capsys.readouterr().err == ""
    problems = read_problem_file(file_of(tmp_path, known, lacking), is_web_skipped=False)
    with pytest.raises(ArenaError, match=r"P4006.*1 of 2 problems, such as .* with product 999999999"):
        refuse_missing(problems, catalogue, is_allowed=False)
    refuse_missing(problems, catalogue, is_allowed=True)
    assert "1 of 2 problems" in capsys.readouterr().err
