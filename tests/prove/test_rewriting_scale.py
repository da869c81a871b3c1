"""A thousand runs that code drove, lifted by the scripted writer: no call, result or answer changes.

The small version is `tests/training/test_rewriting_cli.py`.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from neurons.cli.app import main
from tests.training.firehose import Firehose, real_episodes
from tests.training.firehose_export import write_records
from tests.training.lifted_rows import compare
from training.corpus.corpus_files import read_rows

pytestmark = pytest.mark.prove

RUNS = 1_000
ASKED = round(RUNS / 0.68)  # at least so many of the subtask agent's runs succeed
COUNTS = {"product": ASKED * 6 // 10, "shop": ASKED * 2 // 10, "voucher": ASKED * 2 // 10}
LOOSE = ("--rule", "coefficient_e4_min=0")


def corpus(*words: object) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["corpus", *map(str, words)])
    assert not ended.value.code


def test_a_thousand_runs_are_lifted_unchanged(tmp_path: Path) -> None:
    stand, export, state = tmp_path / "stand", tmp_path / "export", ("--state-dir", tmp_path / "state", *LOOSE)
    stand.mkdir()
    episodes = real_episodes(stand, counts=COUNTS, agents=("subtask",), seed=3, documents=6_000, is_in_process=True)
    write_records(Firehose(episodes).as_recorded(), export)
    corpus("rewrite", export, "--out", tmp_path / "thoughts", "--base-url", "scripted", *state)
    lifted = ("--rewritten", tmp_path / "thoughts", "--rule", "off=duplicate,near_duplicate", *state)
    corpus("build", export, "--out", tmp_path / "corpus", *lifted)
    found = compare(export, read_rows(tmp_path / "corpus"))
    assert found.rows >= RUNS
    assert (found.changed_calls, found.changed_rows) == (0, 0)
