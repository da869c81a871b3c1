"""Evaluation logs and rollouts, opened by the readers they are for, at their newest versions."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.arena.test_export_formats import rows, written

# -- inspect


def test_the_inspect_reader_opens_a_log_whole_in_part_and_by_sample(tmp_path: Path) -> None:
    log = pytest.importorskip("inspect_ai.log", reason="inspect_ai is not installed")
    (file,) = written(tmp_path, "inspect", rows())
    path = str(tmp_path / file.path)
    whole = log.read_eval_log(path)
    assert (whole.status, whole.eval.task, whole.eval.model) == ("success", "agent-arena", "stand-1")
    assert [sample.id for sample in whole.samples] == [1, 2, 3, 4, 5, 6]
    header = log.read_eval_log(path, header_only=True)
    means = {score.name: score.metrics["mean"].value for score in header.results.scores}
    assert (means["success"], means["quality"], means["attribute"]) == (1.0, 0.7, 0.5)
    assert [one.id for one in log.read_eval_log_sample_summaries(path)] == [1, 2, 3, 4, 5, 6]
    assert log.read_eval_log_sample(path, id=2, epoch=1).metadata["code_calls"] == 2


# -- verifiers
