"""A corpus from many rows: memory that does not follow them."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.training.firehose import Firehose, real_episodes, write_day

pytestmark = pytest.mark.prove

ROWS = 4_000
LOOSE = ("--rule", "off=duplicate,near_duplicate,ranked_out", "--rule", "coefficient_e4_min=0")
SIZES = (16_000, 24_000)  # bytes of a record's body
ROOT = Path(__file__).parents[2]
_LOOK_EVERY_S = 0.02
BYTES_A_ROW = 1_500  # named in training/corpus/README.md, with room for the allocator


@pytest.fixture(scope="module")
def exports(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Four signed exports of 1,000 rows each, with the Parquet view: 8 ms a record."""
    with tempfile.TemporaryDirectory() as name:
        episodes = real_episodes(Path(name))
    exports = [tmp_path_factory.mktemp("days") / f"day{seed}" for seed in range(4)]
    for seed, export in enumerate(exports):
        write_day(Firehose(episodes, seed=seed, sizes=SIZES), export, ROWS // 4, formats=("jsonl", "parquet"))
    return exports


def test_memory_does_not_follow_the_rows(exports: list[Path], tmp_path: Path) -> None:
    peaks_mb = [
        run_build(tmp_path / f"corpus{count}", tmp_path / f"state{count}", exports[:count], *LOOSE) for count in (1, 4)
    ]
    grown_mb = peaks_mb[1] - peaks_mb[0]
    assert grown_mb << 20 < BYTES_A_ROW * ROWS * 3 // 4 + (24 << 20), peaks_mb  # and one run of the sort, and its like


def run_build(out: Path, state: Path, exports: Sequence[Path], *flags: str) -> int:
    """A build in a fresh process: its peak memory in MB, without its workers."""
    words = [*map(str, exports), "--out", str(out), "--state-dir", str(state), "--workers", "1", *flags]
    command = [sys.executable, "-m", "neurons.cli.app", "corpus", "build", *words]
    peak_kb = 0
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=ROOT)
    while process.poll() is None:
        peak_kb = max(peak_kb, _peak_kb(process.pid))
        time.sleep(_LOOK_EVERY_S)
    return peak_kb >> 10


def folder_sha256(folder: Path) -> str:
    """One hash over the names and bytes of every file in a folder."""
    digest = hashlib.sha256()
    for path in sorted(one for one in folder.rglob("*") if one.is_file()):
        digest.update(f"{path.relative_to(folder)}\0{path.stat().st_size}\0".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _peak_kb(pid: int) -> int:
    """The most memory a process had, of Linux; 0 for one that has ended."""
    try:
        text = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in text.splitlines() if line.startswith("VmHWM:")), 0)
