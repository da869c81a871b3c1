"""`arena race` and `arena judge` at the terminal."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
from typer.testing import CliRunner

from arena.policies import DEMO, POLICIES
from foundation.canonical import canonical_bytes
from judge.calibration.traces import make_trace, open_shop, recipes
from judge.render import render
from judge.rubric import GATES
from neurons.cli.explain import app as explain_app
from neurons.cli.judge import app
from neurons.cli.race import app as race_app
from neurons.cli.view import app as view_app
from tests.judge.bodies import COMPARED, episode
from tests.judge.endpoint import ScriptedEndpoint, chat, serving

RUN = CliRunner()


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
    path.write_text("{}\n")
    malformed = RUN.invoke(race_app, ["weights", "--cases", str(path)])
    assert malformed.exit_code == 2 and "line 1" in malformed.output


def test_a_policy_prints_whole_and_its_hash_can_be_recomputed():
    shown = json.loads(RUN.invoke(explain_app, ["demo", "--json"]).stdout)
    assert shown["policy_sha256"] == DEMO.policy_sha256
    assert msgspec.convert(shown["policy"], type(DEMO)) == DEMO
    listed = {row["name"] for row in json.loads(RUN.invoke(explain_app, ["--all", "--json"]).stdout)}
    assert listed >= set(POLICIES)


def test_view_shows_the_text_that_a_judge_is_shown(tmp_path):
    (body := tmp_path / "body.json").write_bytes(canonical_bytes(episode(COMPARED)))
    trace = RUN.invoke(view_app, [str(body), "--as-judged"])
    assert "[[span 1 | query]]" in trace.stdout


GATE = GATES[0]  # all that it saw
NOTHING_READ = {"gates": {gate: gate == GATE for gate in GATES}, "quality": 0.3, "citations": [], "explanation": ""}


def test_two_models_at_two_endpoints_are_measured_as_one_panel(tmp_path: Path) -> None:
    every = recipes()
    with open_shop() as shop:
        made = [make_trace(every[place * len(every) // 6], shop) for place in range(6)]
    reads = ScriptedEndpoint({render(one.body).text: render(one.body) for one in made})
    command = ["calibrate", "--traces", "6", "--json", "--out", str(tmp_path / "found")]
    with serving(reads) as one, serving(lambda _: (200, chat(json.dumps(NOTHING_READ)))) as other:
        command += ["--models", "reads,skims", "--base-url", f"{one},{other}"]
        found = json.loads(CliRunner().invoke(app, command).stdout)
    whole = found["populations"][0]
    assert (whole["traces"], whole["owed"]) == (6, 0)
    assert 0 < whole["kappa_e4"] < 8_000
    rows = [json.loads(line) for line in (tmp_path / "found" / "rows.jsonl").read_bytes().splitlines()]
    assert [one["model"] for one in rows[-1]["verdict"]["opinions"]] == ["reads", "skims"]
