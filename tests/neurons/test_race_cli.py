"""`arena race` and `arena judge` at the terminal."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner

from arena.policies import DEMO, POLICIES
from foundation.canonical import canonical_bytes
from foundation.errors import ArenaError
from judge.verdict import Verdict
from neurons.cli.miner.view import app as view_app
from neurons.cli.validator.judge import app as judge_app
from neurons.cli.validator.race import app as race_app
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


def test_every_shipped_policy_is_listed_with_its_hash():
    result = RUN.invoke(race_app, ["policy", "--json"])
    assert json.loads(result.stdout) == {name: policy.policy_sha256 for name, policy in POLICIES.items()}


def test_a_policy_prints_whole_and_its_hash_can_be_recomputed():
    result = RUN.invoke(race_app, ["policy", "demo", "--json"])
    shown = json.loads(result.stdout)
    assert shown["policy_sha256"] == DEMO.policy_sha256
    assert msgspec.convert(shown["policy"], type(DEMO)) == DEMO


def test_an_unknown_policy_is_a_usage_error_that_names_the_known_ones():
    result = RUN.invoke(race_app, ["policy", "papper"])
    assert result.exit_code == 2
    assert "known: agentic, demo" in result.output


def test_replay_judges_a_stored_body_and_names_it(body):
    result = RUN.invoke(judge_app, ["body", "--body", str(body), "--json"])
    assert result.exit_code == 0
    verdict = msgspec.json.decode(result.stdout, type=Verdict)
    assert (verdict.quality_e4, verdict.body_sha256) == (9_000, episode(COMPARED).body_hash())


def test_replay_shows_citations_to_people_and_view_the_text_that_a_judge_is_shown(body):
    shown = RUN.invoke(judge_app, ["body", "--body", str(body)])
    assert "quality 0.9" in shown.stdout and "[candidates_compared]" in shown.stdout
    trace = RUN.invoke(view_app, [str(body), "--as-judged"])
    assert "[[span 1 | query]]" in trace.stdout


def test_a_verdict_that_is_owed_exits_with_one(body):
    result = RUN.invoke(judge_app, ["body", "--body", str(body), "--policy", "paper"], env={"OPENAI_API_KEY": ""})
    assert result.exit_code == 1
    assert isinstance(result.exception, ArenaError)
    assert result.exception.failure.code == "U3020"


def test_a_file_that_is_no_body_is_a_usage_error(tmp_path):
    path = tmp_path / "body.json"
    path.write_text("{}")
    assert RUN.invoke(judge_app, ["body", "--body", str(path)]).exit_code == 2
