"""The example agents pass what a miner runs: `arena check`, then `arena run` with the scripted model."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.catalogue.build import build_index, write_documents
from harness.catalogue.synthetic import generate
from neurons.cli.app import main

EXAMPLES = Path(__file__).parents[2] / "examples"
NAMES = ("first_search", "model_loop", "compare_and_budget")
Arena = Callable[..., tuple[int, str]]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("examples")
    with (folder / "documents.jsonl").open("wb") as stream:
        write_documents(generate(3_000, 5), stream)
    build_index(folder / "documents.jsonl", folder / "catalogue")
    return folder


@pytest.fixture
def arena(place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Arena:
    for variable in list(os.environ):
        if variable.startswith(("ARENA_", "OPENAI_")):
            monkeypatch.delenv(variable)

    def call(command: str, name: str, *options: str) -> tuple[int, str]:
        places = ["--state-dir", str(place / "state"), "--catalogue", str(place / "catalogue")]
        with pytest.raises(SystemExit) as ended:
            main([command, str(EXAMPLES / f"{name}.py"), *places, *options])
        return int(str(ended.value.code or 0)), capsys.readouterr().out

    return call


def test_every_example_is_tested() -> None:
    assert sorted(path.stem for path in EXAMPLES.glob("*.py")) == sorted(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_the_gate_accepts_it_without_a_finding(arena: Arena, name: str) -> None:
    code, shown = arena("check", name, "--json")
    report = json.loads(shown)
    assert (code, report["outcome"], report["findings"]) == (0, "accept", [])


@pytest.mark.parametrize("name", NAMES)
def test_it_ends_by_itself_without_a_fault_in_every_bucket(arena: Arena, name: str) -> None:
    code, shown = arena("run", name, "--count", "3", "--json")
    rows = json.loads(shown)
    assert code == 0
    assert [row["outcome"]["bucket"] for row in rows] == ["product", "shop", "voucher"]
    assert [(row["stop"], row["failure"]) for row in rows] == [("terminated", None)] * 3


def test_the_model_writes_the_calls_of_the_later_ones_and_they_solve_more(arena: Arena) -> None:
    rows = {name: json.loads(arena("run", name, "--count", "6", "--json")[1]) for name in NAMES}
    assert {name: any(row["is_agentic"] for row in found) for name, found in rows.items()} == {
        "first_search": False,
        "model_loop": True,
        "compare_and_budget": True,
    }
    assert all(row["is_agentic"] for name in NAMES[1:] for row in rows[name])
    solved = {name: sum(row["outcome"]["is_success"] for row in found) for name, found in rows.items()}
    assert solved["first_search"] < solved["model_loop"] <= solved["compare_and_budget"]
