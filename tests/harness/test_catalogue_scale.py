"""Small version of the proof at 2.7 million documents: memory grows by a bounded amount a document."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.prove.scale_run import run_phase, synthesise

pytestmark = pytest.mark.slow

SMALL, LARGE = 2_000, 30_000
BLOCK = 2_000  # documents held at a time while building: the same for both sizes, so that what else grows is seen
BUILD_BYTES_MAX = 4 * 10**9 // 2_700_000  # a document: 4 GB for 2.7 million, the bound at full size
SEARCH_BYTES_MAX = 10**9 // 2_700_000


def test_memory_of_building_and_searching_is_bounded_by_documents(tmp_path: Path) -> None:
    built: dict[int, dict[str, Any]] = {}
    searched: dict[int, dict[str, Any]] = {}
    for count in (SMALL, LARGE):
        documents, index = tmp_path / f"{count}.jsonl", tmp_path / f"{count}"
        synthesise(count, documents)
        built[count] = run_phase("build", documents, index, BLOCK)
        searched[count] = run_phase("search", index, "numpy", 60)
    more = LARGE - SMALL
    assert (built[LARGE]["peak_mb"] - built[SMALL]["peak_mb"]) << 20 <= BUILD_BYTES_MAX * more, built
    # pages of the mapped index are the system's to drop: what is its own is what a search holds
    assert (searched[LARGE]["own_mb"] - searched[SMALL]["own_mb"]) << 20 <= SEARCH_BYTES_MAX * more, searched
    assert built[LARGE]["documents"] == LARGE and searched[LARGE]["pages_found"] > 20
