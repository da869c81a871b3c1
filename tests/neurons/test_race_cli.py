"""`arena race` and `arena judge` at the terminal."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner

from arena.policies import DEMO, POLICIES
from foundation.canonical import canonical_bytes
from neurons.cli.explain import app as explain_app
from neurons.cli.race import app as race_app
from neurons.cli.view import app as view_app
from tests.judge.bodies import COMPARED, episode

RUN = CliRunner()


@pytest.fixture
def body(tmp_path: Path) -> Path:
    path = tmp_path / "body.json"
    path.write_bytes(canonical_bytes(episode(COMPARED)))
    return path


def test_weights_prints_a_line_per_case_with_a_vector_or_the_error(tmp_path):
    finishers = [{"miner_hotkey": f"h{n}", "agent_version_id": f"v{n}", "race_score": 1 - n / 10} for n in range(4)]
    case = {"metagraph_hotkeys": ["owner", "h0", "h1"], "finishers": finishers, "t_top": 0.25, "t_burn": 0.75}
    path = tmp_path / "cases.jsonl"
    rows = [{"case_id": "good", **case}, {"case_id": "bad", **case, "t_top": 1.0, "t_burn": 0.0}]
    path.write_text("\n".join(map(json.dumps, rows)) + "\n")
    result = RUN.invoke(race_app, ["weights", "--cases", str(path)])
    assert result.exit_code == 0
    assert [json.loads(line) for line in result.stdout.splitlines()] == [
        {"case_id": "good", "uids": [0, 1, 2], "weights": [65_535, 21_845, 1]},
        {"case_id": "bad", "error": "ValueError"},
    ]


def test_a_line_that_is_no_case_is_a_usage_error_that_names_the_line(tmp_path):
    path = tmp_path / "cases.jsonl"
    path.write_text("{}\n")
    result = RUN.invoke(race_app, ["weights", "--cases", str(path)])
    assert result.exit_code == 2
    assert "line 1" in result.output


def test_a_policy_prints_whole_and_its_hash_can_be_recomputed():
    shown = json.loads(RUN.invoke(explain_app, ["demo", "--json"]).stdout)
    assert shown["policy_sha256"] == DEMO.policy_sha256
    assert msgspec.convert(shown["policy"], type(DEMO)) == DEMO
    listed = {row["name"] for row in json.loads(RUN.invoke(explain_app, ["--all", "--json"]).stdout)}
    assert listed >= set(POLICIES)


def test_view_shows_the_text_that_a_judge_is_shown(body):
    trace = RUN.invoke(view_app, [str(body), "--as-judged"])
    assert "[[span 1 | query]]" in trace.stdout
