"""The study's agents pass the arena's gate before anything of them is recorded."""

from __future__ import annotations

from pathlib import Path

import pytest

from foundation.errors import ArenaError
from tests.training.toy_study import SHIPPED, write_toy_study
from training.guards import GuardStopError
from training.study import records
from training.study.agent_versions import require_admitted, versions_of
from training.study.market import make_market, read_market
from training.study.plan import read_plan
from training.study.policies import ScriptedUpstream
from training.study.records import Field, record_study, study_policy

PLAN = read_plan(SHIPPED / "study.toml")
RULES = study_policy(PLAN).gate
END = "\n\ndef agent_main(problem):\n    return []\n"
REFUSED, HELD = f"import socket\n{END}", f"def read(one, name):\n    return getattr(one, name)\n{END}"


@pytest.fixture(scope="module")
def market(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("admission")
    make_market(read_plan(write_toy_study(folder / "recipes")), folder / "market")
    return folder / "market"


def test_every_shipped_version_is_accepted_and_none_is_held_for_review(market: Path) -> None:
    sources = {name: source for rules in PLAN.agents for name, source in versions_of(rules)}
    reports = require_admitted(sources, RULES, read_market(market).train)
    assert list(reports) == list(sources) and len(sources) == 12
    assert {report.outcome for report in reports.values()} == {"accept"}


def test_a_source_that_is_held_for_review_races_with_its_findings_noted(market: Path) -> None:
    held = require_admitted({"held": HELD}, RULES, ())["held"]
    assert held.outcome == "review" and [one.rule for one in held.findings] == ["dynamic-attribute"]
    published = read_market(market).train
    told = require_admitted({"told": f"KNOWN = {published[0].query!r}\n{END}"}, RULES, published)["told"]
    assert "benchmark-text" in {one.rule for one in told.findings}  # train requests are what the gate knows


def test_nothing_is_recorded_when_the_gate_refuses_an_agent(
    market: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = read_plan(write_toy_study(tmp_path / "recipes"))
    monkeypatch.setattr(records, "versions_of", lambda rules: [(rules.name, END), (f"{rules.name}/2", REFUSED)])
    with pytest.raises(GuardStopError, match="the gate refuses the agent distilled:scripted-concise/2: ") as stopped:
        record_study(plan, market, tmp_path / "records", code_commit="", now_ms=lambda: 0, progress=None)
    assert isinstance(stopped.value, ArenaError) and stopped.value.failure.code == "V2123"
    assert not (tmp_path / "records").exists()


def test_no_field_races_without_a_report_on_each_source(market: Path) -> None:
    admitted = require_admitted({"one": END}, RULES, ())
    field = Field(
        race_id="r", problems=(), sources={"one": END}, admitted=admitted, policy=study_policy(PLAN),
        upstream=ScriptedUpstream(),
    )  # fmt: skip
    for sources in ({"one": HELD}, {"one": END, "two": END}):
        with pytest.raises(ValueError, match="the gate was not asked about"):
            Field(
                race_id="r", problems=(), sources=sources, admitted=admitted, policy=field.policy,
                upstream=field.upstream,
            )  # fmt: skip
