"""An agent file under `arena eval`: on the models' set, in the jail, with what it took, and beside the models."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner, Result

from neurons.cli import evaluate as evaluate_model
from neurons.cli import report
from problems.formats import write_problems
from tests.training.stock import POLICY, Stock
from training.evaluation.report import EvalReport

AGENT = Path(__file__).parents[2] / "examples" / "compare_and_budget.py"


@pytest.fixture(scope="module")
def node(stock: Stock, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Flags of a node over the stock's shop, and the set."""
    state = tmp_path_factory.mktemp("node")
    (state / "policy.json").write_bytes(msgspec.json.encode(POLICY))
    flags = {"--policy": state / "policy.json", "--catalogue": stock.folder / "index", "--state-dir": state / "state"}
    flags["--problems"] = state / "held.jsonl"
    flags["--problems"].write_text("\n".join(write_problems(stock.held)) + "\n", "utf-8")
    return [word for flag, place in flags.items() for word in (flag, str(place))]


def evaluate(*words: str) -> Result:
    return CliRunner().invoke(evaluate_model.app, [*words])


def test_an_agent_file_stands_in_the_table_beside_a_model_with_what_each_took(node: list[str], tmp_path: Path) -> None:
    paths = [tmp_path / "agent.json", tmp_path / "model.json"]
    done = evaluate(str(AGENT), *node, "--label", "top miner", "--out", str(paths[0]))
    assert done.exit_code == 0 and "seconds a solved" in done.stdout, done.output
    model = evaluate("scripted", "--model", "scripted-expert", *node, "--out", str(paths[1]))
    assert model.exit_code == 0, model.output
    agent, other = (msgspec.json.decode(path.read_bytes(), type=EvalReport) for path in paths)
    assert agent.conditions.asked_by == "agent" and other.conditions.asked_by == ""
    assert agent.conditions.agent_sha256 != other.conditions.agent_sha256
    for one in (agent, other):
        assert one.spent is not None and one.spent.episodes == one.episodes - one.unscored > 0
        assert one.spent.solved == sum(problem.successes for problem in one.problems)
        assert min(one.spent.prompt_tokens, one.spent.completion_tokens) > 0
    assert agent.spent and agent.spent.episode_ms and other.spent and other.spent.episode_ms is None
    assert agent.spent and agent.spent.solved > 0 and agent.spent.a_solved(agent.spent.solved * 3) == 3
    shown = CliRunner().invoke(report.app, [*map(str, paths), "--out", str(tmp_path / "page.html")])
    assert shown.exit_code == 0, shown.output
    page = (tmp_path / "page.html").read_text("utf-8")
    assert "as the agent file asks, at most" in page and "time a solved" in page and "top miner" in page
    document = json.loads(CliRunner().invoke(report.app, [*map(str, paths), "--json"]).stdout)
    assert [row["report"]["spent"]["solved"] for row in document["rows"]] == [agent.spent.solved, other.spent.solved]
    assert document["tests"] == []  # what one decides for itself is not the other's condition
