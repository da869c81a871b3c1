"""Every benchmark can be run by `make bench`."""

from __future__ import annotations

import importlib

from tests.benchmarks import run


def test_every_benchmark_file_offers_a_measure() -> None:
    for name in run.modules([]):
        assert callable(importlib.import_module(f"tests.benchmarks.{name}").measure), name
