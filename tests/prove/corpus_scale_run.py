"""`arena corpus build` over a large export, in processes of its own: time, peak memory, and what a kill leaves."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tests.training.firehose import Firehose, real_episodes, write_day

SIZES = (16_000, 24_000)  # bytes of a record's body
ROOT = Path(__file__).parents[2]
_LOOK_EVERY_S = 0.02


def make_exports(folder: Path, rows: int, seeds: Sequence[int]) -> list[Path]:
    """Signed exports of `rows` records each, one a seed, with the Parquet view. 8 ms a record."""
    with tempfile.TemporaryDirectory() as name:
        episodes = real_episodes(Path(name))
    exports = []
    for seed in seeds:
        exports.append(folder / f"day{seed}")
        write_day(Firehose(episodes, seed=seed, sizes=SIZES), exports[-1], rows, formats=("jsonl", "parquet"))
    return exports


def run_build(
    out: Path,
    state: Path,
    exports: Sequence[Path],
    *flags: str,
    workers: int = 1,
    kill_when: Callable[[float], bool] | None = None,
) -> dict[str, Any]:
    """A build in a fresh process: seconds, and peak memory of it without its workers.

    `kill_when` is asked with the seconds gone by; the process is killed (SIGKILL) when it says yes.
    """
    words = [*map(str, exports), "--out", str(out), "--state-dir", str(state), "--workers", str(workers), *flags]
    command = [sys.executable, "-m", "neurons.cli.app", "corpus", "build", *words]
    started, peak_kb = time.monotonic(), 0
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=ROOT)
    while process.poll() is None:
        peak_kb = max(peak_kb, _peak_kb(process.pid))
        if kill_when is not None and kill_when(time.monotonic() - started):
            process.kill()
        time.sleep(_LOOK_EVERY_S)
    return {
        "exit_code": process.returncode,
        "seconds": time.monotonic() - started,
        "peak_mb": peak_kb >> 10,
    }


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
