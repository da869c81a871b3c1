"""`arena catalogue` makes, builds and checks a catalogue, and says what is wrong in exit codes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from typer.testing import CliRunner, Result

from harness.catalogue.native import open_catalogue
from neurons.cli.catalogue import app


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(one) for one in arguments])


def read(result: Result) -> Any:
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_a_catalogue_is_made_built_and_verified_by_three_commands(tmp_path: Path) -> None:
    made = read(run("synth", "--count", 150, "--seed", 9, "--out", tmp_path / "new" / "place", "--json"))
    assert made["documents"] == 150 and Path(made["path"]).stat().st_size == made["bytes"]
    built = read(run("build", made["path"], "--out", tmp_path / "index", "--json"))
    shown = read(run("info", tmp_path / "index", "--verify", "--json"))
    assert shown["documents"] == built["documents"] == 150
    assert shown["fully_verified"] is True
    assert shown["content_sha256"] == open_catalogue(tmp_path / "index").content_sha256
