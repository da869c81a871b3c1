"""`make bench` keeps every figure of a run in one file, and a benchmark that breaks is named."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from rich.console import Console

from tests.benchmarks import run
from tests.benchmarks.goals import lines_of
from tests.benchmarks.row import Row

ROW = Row(name="search p50", value=0.8, unit="ms", baseline=480.0, ratio=600.0)


def test_the_file_maps_each_name_to_its_figures(tmp_path: Path) -> None:
    run.write([ROW], tmp_path / "build" / "bench.json")
    kept = json.loads((tmp_path / "build" / "bench.json").read_text())
    assert kept == {
        "search p50": {"value": 0.8, "unit": "ms", "baseline": 480.0, "ratio": 600.0, "command": "make bench"}
    }


def test_the_table_shows_every_row() -> None:
    console = Console(record=True, width=120, file=open("/dev/null", "w"))  # noqa: SIM115, PTH123
    console.print(run.table_of([ROW]))
    shown = console.export_text()
    assert all(text in shown for text in ("search p50", "0.8", "480", "600x", "ms"))


def test_a_goal_takes_its_figure_by_name_and_says_which_side_of_it_is_right() -> None:
    rows = [
        Row(name="episodes, 2 workers", value=41.0, unit="episodes/s"),
        Row(name="episode median, sandbox on against off", value=70.0, unit="ms", baseline=50.0, ratio=1.4),
    ]
    found = {what: (now, met) for what, _, _, now, met in lines_of(rows)}
    assert found["episodes, two workers"] == ("41 1/s", "yes")
    assert found["episode in a jail to one without"] == ("1.4x", "no")
    assert found["`arena --help`"] == ("not measured", "")


def test_every_benchmark_file_offers_a_measure() -> None:
    import importlib

    for name in run.modules([]):
        assert callable(importlib.import_module(f"tests.benchmarks.{name}").measure), name


def test_a_broken_benchmark_is_named_and_the_rest_still_count(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import sys
    from types import SimpleNamespace

    def broken() -> list[Row]:
        raise RuntimeError("no index")

    monkeypatch.setitem(sys.modules, "tests.benchmarks.bench_broken", SimpleNamespace(measure=broken))
    monkeypatch.setitem(sys.modules, "tests.benchmarks.bench_whole", SimpleNamespace(measure=lambda: [ROW]))
    rows, failed = run.measure(["bench_broken", "bench_whole"], Console(quiet=True))
    assert (rows, failed) == ([ROW], ["bench_broken"])
    assert "no index" in capsys.readouterr().err
