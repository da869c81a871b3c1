"""`make bench` keeps every figure of a run in one file, a benchmark that breaks is named."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from rich.console import Console

from tests.benchmarks import run
from tests.benchmarks.row import Row

ROW = Row(name="search p50", value=0.8, unit="ms", baseline=480.0, ratio=600.0)


def test_the_file_maps_each_name_to_its_figures(tmp_path: Path) -> None:
    run.write([ROW], tmp_path / "build" / "bench.json")
    kept = json.loads((tmp_path / "build" / "bench.json").read_text())
    assert kept == {
        "search p50": {"value": 0.8, "unit": "ms", "baseline": 480.0, "ratio": 600.0, "command": "make bench"}
    }


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
