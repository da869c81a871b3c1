"""A thousand runs that code drove, lifted by the scripted writer: no call, result or answer changes.

`python -m tests.prove.test_rewriting_scale 1000 [SEED]` prints one JSON object: what was compared, and seconds.
The small version is `tests/training/test_rewriting_cli.py`.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from neurons.cli.app import main
from tests.training.firehose import Firehose, real_episodes
from tests.training.firehose_export import write_records
from tests.training.lifted_rows import LiftedRows, compare
from training.corpus.corpus_files import read_rows

pytestmark = pytest.mark.prove

RUNS = 1_000
_SUCCESS = 0.68  # at least so many of the subtask agent's runs succeed
_ALL_ROWS = ("--rule", "coefficient_e4_min=0", "--rule", "off=duplicate,near_duplicate")


def measure(folder: Path, runs: int, seed: int = 3) -> tuple[LiftedRows, dict[str, float]]:
    """At least `runs` successful runs of the shipped program-driven agent, rewritten, their corpus compared with the
    records; seconds of each part."""
    seconds: dict[str, float] = {}

    def timed(part: str, work: Callable[[], Any]) -> Any:
        begun = time.perf_counter()
        found = work()
        seconds[part] = round(time.perf_counter() - begun, 1)
        return found

    asked = round(runs / _SUCCESS)
    counts = {"product": asked * 6 // 10, "shop": asked * 2 // 10, "voucher": asked * 2 // 10}
    stand, export = folder / "stand", folder / "export"
    stand.mkdir()
    episodes = timed(
        "episodes",
        lambda: real_episodes(
            stand, counts=counts, agents=("subtask",), seed=seed, documents=6_000, is_in_process=True
        ),
    )
    timed("export", lambda: write_records(Firehose(episodes).as_recorded(), export))
    state = ("--state-dir", folder / "state", *_ALL_ROWS[:2])
    timed("rewrite", lambda: _arena("rewrite", export, "--out", folder / "thoughts", "--base-url", "scripted", *state))
    lifting = ("--rewritten", folder / "thoughts", *state, *_ALL_ROWS[2:])
    timed("build", lambda: _arena("build", export, "--out", folder / "corpus", *lifting))
    return timed("compare", lambda: compare(export, read_rows(folder / "corpus"))), seconds


def _arena(*words: object) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["corpus", *map(str, words)])
    assert not ended.value.code


def test_a_thousand_runs_are_lifted_unchanged(tmp_path: Path) -> None:
    found, _ = measure(tmp_path, RUNS)
    assert found.rows >= RUNS
    assert (found.changed_calls, found.changed_rows) == (0, 0)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="arena-") as scratch:
        figures, parts = measure(Path(scratch), *map(int, sys.argv[1:]))
        fates = json.loads((Path(scratch) / "thoughts" / "rewriting.json").read_bytes())["fates"]
    print(json.dumps({**msgspec.to_builtins(figures), "fates": fates, "seconds": parts}))
