"""A corpus from many rows: memory that does not follow them, and a kill that leaves nothing."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.prove.corpus_scale_run import folder_sha256, make_exports, run_build
from tests.prove.duplicate_scale_run import run_decide

pytestmark = pytest.mark.prove

ROWS = 4_000
LOOSE = ("--rule", "off=duplicate,near_duplicate,ranked_out", "--rule", "coefficient_e4_min=0")
BYTES_A_ROW = 1_500  # named in training/corpus/README.md, with room for the allocator


@pytest.fixture(scope="module")
def exports(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Four exports of 1,000 rows each."""
    return make_exports(tmp_path_factory.mktemp("days"), ROWS // 4, range(4))


def test_memory_does_not_follow_the_rows(exports: list[Path], tmp_path: Path) -> None:
    peaks_mb = [
        run_build(tmp_path / f"corpus{count}", tmp_path / f"state{count}", exports[:count], *LOOSE)["peak_mb"]
        for count in (1, 4)
    ]
    grown_mb = peaks_mb[1] - peaks_mb[0]
    assert grown_mb << 20 < BYTES_A_ROW * ROWS * 3 // 4 + (24 << 20), peaks_mb  # and one run of the sort, and its like


def test_a_build_killed_while_it_reads_ends_in_the_same_bytes(exports: list[Path], tmp_path: Path) -> None:
    whole = run_build(tmp_path / "whole", tmp_path / "state", exports, *LOOSE, workers=2)
    assert whole["exit_code"] == 0
    out, half_s = tmp_path / "killed", whole["seconds"] / 2
    killed = run_build(out, tmp_path / "state", exports, *LOOSE, kill_when=lambda seconds: seconds > half_s)
    assert killed["exit_code"] == -signal.SIGKILL and not out.exists()
    again = run_build(out, tmp_path / "state", exports, *LOOSE)
    assert again["exit_code"] == 0
    assert folder_sha256(out) == folder_sha256(tmp_path / "whole")


def test_the_memory_of_the_comparison_does_not_follow_the_rows() -> None:
    """At 20,000 rows the sorts have gone to disk; from there on a comparison in memory would take 1,150 bytes a row."""
    found = []
    for rows in (20_000, 40_000):
        found.append(run_decide(rows))
    assert found[1]["near_duplicate"] > 3 * found[0]["near_duplicate"] // 2
    assert (found[1]["grown_mb"] - found[0]["grown_mb"]) * (1 << 20) < 20_000 * 400, found
