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
from neurons.cli.view import app as view_app
from tests.judge.bodies import COMPARED, episode

RUN = CliRunner()


@pytest.fixture
def body(tmp_path: Path) -> Path:
    path = tmp_path / "body.json"
    path.write_bytes(canonical_bytes(episode(COMPARED)))
    return path


def test_a_policy_prints_whole_and_its_hash_can_be_recomputed():
    shown = json.loads(RUN.invoke(explain_app, ["demo", "--json"]).stdout)
    assert shown["policy_sha256"] == DEMO.policy_sha256
    assert msgspec.convert(shown["policy"], type(DEMO)) == DEMO
    listed = {row["name"] for row in json.loads(RUN.invoke(explain_app, ["--all", "--json"]).stdout)}
    assert listed >= set(POLICIES)


def test_view_shows_the_text_that_a_judge_is_shown(body):
    trace = RUN.invoke(view_app, [str(body), "--as-judged"])
    assert "[[span 1 | query]]" in trace.stdout
