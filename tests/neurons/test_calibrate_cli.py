"""`arena judge calibrate` with a panel of two models, each at an endpoint of its own."""

from __future__ import annotations

import json
from pathlib import Path

from typer.testing import CliRunner

from judge.calibration.traces import make_trace, open_shop, recipes
from judge.render import render
from judge.rubric import GATES
from neurons.cli.judge import app
from tests.judge.endpoint import ScriptedEndpoint, chat, serving

NOTHING_READ = {
    "gates": {gate: gate == "inference_present" for gate in GATES},
    "quality": 0.3,
    "citations": [],
    "explanation": "",
}


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
