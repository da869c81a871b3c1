"""Small version of the proof at 2.7 million documents: memory grows by a bounded amount a document."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.prove.scale_run import run_phase, synthesise

pytestmark = pytest.mark.slow

SMALL, LARGE = 2_000, 30_000
MOST_BYTES = 2_500  # a document, a share in the run being made included: holding documents themselves takes more


def test_memory_of_building_and_searching_is_bounded_by_documents(tmp_path: Path) -> None:
    phases: dict[int, tuple[dict[str, Any], dict[str, Any]]] = {}
    for count in (SMALL, LARGE):
        documents, index = tmp_path / f"{count}.jsonl", tmp_path / f"{count}"
        synthesise(count, documents)
        phases[count] = run_phase("build", documents, index), run_phase("search", index, "numpy", 60)
    for small, large in zip(phases[SMALL], phases[LARGE], strict=True):
        growth = (large["peak_mb"] - small["peak_mb"]) << 20
        assert growth <= MOST_BYTES * (LARGE - SMALL), (small, large)
    assert phases[LARGE][0]["documents"] == LARGE and phases[LARGE][1]["pages_found"] > 20
