"""Evaluation logs and rollouts, opened by the readers they are for, at their newest versions."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from arena.export.row import row_of
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


def test_an_inspect_sample_has_chat_scores_and_the_judges_words(tmp_path: Path) -> None:
    log = pytest.importorskip("inspect_ai.log", reason="inspect_ai is not installed")
    (file,) = written(tmp_path, "inspect", rows())
    samples = log.read_eval_log(str(tmp_path / file.path)).samples
    first = samples[0]
    turn = first.messages[2]
    assert turn.tool_calls[0].arguments == {"q": "red lamp"}
    assert turn.content[0].reasoning == "A lamp, red."
    assert first.target == "1000000001"
    assert "It searches before it answers." in first.scores["quality"].explanation
    assert "I search first." in first.scores["quality"].explanation
    assert first.scores["attribute"].explanation == "1 of 2 rules met"
    assert "success" not in samples[2].scores  # unscored: no score rather than none met
    assert "quality" not in samples[3].scores
    assert samples[5].messages == []


# -- verifiers


def test_the_graph_of_a_rollout_is_what_was_sent_and_sampled(tmp_path: Path) -> None:
    """The shape of `verifiers` 0.4; its own reader is driven by tests/prove/test_verifiers_reader.py."""
    written(tmp_path, "verifiers", rows())
    episodes = [json.loads(line) for line in (tmp_path / "000003" / "traces.jsonl").read_text("utf-8").splitlines()]
    assert len(episodes) == 6
    for episode, one in zip(episodes, rows(), strict=True):
        (trace,), talk = episode["traces"], row_of(one).conversation
        nodes, every = trace["nodes"], (*talk.messages, *talk.other_messages)
        assert all(node["parent"] is None or node["parent"] < number for number, node in enumerate(nodes))
        for call, turn in zip(trace["calls"], talk.completions, strict=True):
            path, at = [], call["node"]
            assert nodes[at]["sampled"]
            while at is not None:
                path.append(nodes[at]["message"]["content"])
                at = nodes[at]["parent"]
            assert path[::-1] == [every[index].content for index in (*turn.request, turn.reply)]
    assert [episode["traces"][0]["rewards"]["reward"] is None for episode in episodes] == [
        row_of(one).facts.reward_e4 is None for one in rows()
    ]
