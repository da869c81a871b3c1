"""Rows beyond the paper's: another base, a generation that races at our own server, another harness."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from arena.chain.keys import verify
from arena.export.verify.verification import verify_export
from arena.store.embedded.server import is_running, start_embedded
from foundation.errors import ArenaError
from neurons.cli.training.study import app
from tests.training.toy_study import SEED, TOKENIZER, write_toy_study
from training.corpus.corpus_files import read_rows
from training.evaluation.model_loader import LoadedModel
from training.guards import GuardStopError
from training.models.render import Qwen3Codec
from training.samplers.scripted import ScriptedSampler
from training.stages.run import CHECKPOINT, lineage_chain
from training.study import study as study_module
from training.study.generations import racing
from training.study.generations.counts import COUNTS, read_counts
from training.study.market import read_market
from training.study.measure import file_name
from training.study.parts import Part
from training.study.plan import StudyPlan, read_plan
from training.study.study import Study

WIDE, NEXT = f"sft~wide-{SEED}", f"sft~wide@generation_1-{SEED}"
ASKED = f"{NEXT} under other"


def now_ms() -> int:
    return time.time_ns() // 1_000_000


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Study]:
    """A toy study whose rows stand on another base than the plan's, with the first of them trained."""
    folder = tmp_path_factory.mktemp("beyond")
    plan = write_toy_study(folder / "recipes", ("sft~wide", "sft~wide@generation_1"))
    text = plan.read_text("utf-8")
    opened = Study(read_plan(plan), text, plan.parent, TOKENIZER, folder / "out", code_commit="test", now_ms=now_ms)
    try:
        for name in ("market", "tokenizer", "records", "corpora", "base~wide", f"stage {WIDE}"):
            opened.run(part(opened, name))
        yield opened
    finally:
        for state in (opened.folder / "records" / "state", opened.folder / "generations" / NEXT / "records" / "state"):
            if is_running(state):
                start_embedded(state).stop()


@pytest.fixture
def raced(study: Study, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a generation whose checkpoint shops as the careful scripted model does; not finished yet."""
    serve(study, monkeypatch, "1" * 64)
    folder = study.folder / "generations" / NEXT
    for mark in (folder / COUNTS, study.folder / "done" / file_name(f"generation {NEXT}")):
        mark.unlink(missing_ok=True)
    return folder


def part(study: Study, name: str) -> Part:
    return next(one for one in study.parts() if one.name == name)


def serve(study: Study, monkeypatch: pytest.MonkeyPatch, weights_sha256: str) -> None:
    """Have the checkpoint that races be a scripted one of these weights."""
    codec = Qwen3Codec(study.folder / "tokenizer")
    sampler = ScriptedSampler(codec, "scripted-careful")
    found = LoadedModel(sampler=sampler, codec=codec, version="0" * 64, weights_sha256=weights_sha256, contamination="")
    monkeypatch.setattr(racing, "open_candidate", lambda folder, problems: found)


def run_generation(study: Study, plan: StudyPlan) -> None:
    row = next(one for one in plan.trained if one.name == NEXT)
    racing.run_generation(
        row, plan, study.folder, study.folder / "market", study.folder / "tokenizer",
        code_commit="test", now_ms=now_ms, progress=None,
    )  # fmt: skip


def test_another_base_has_its_own_shape_and_the_rows_on_it_start_from_it(study: Study) -> None:
    base = study.folder / "runs" / "base~wide"
    config = json.loads((base / CHECKPOINT / "config.json").read_text("utf-8"))
    assert config["head_dim"] == 128 != study.plan.base.head_dim
    ((_, _, trained),) = lineage_chain(study.folder / "runs" / WIDE)
    (_, _, made), *_ = lineage_chain(base)
    assert trained.parent_sha256 == made.weights_sha256
    assert not (study.folder / "runs" / "base").exists()


def test_a_generation_races_at_our_own_server_and_its_records_join_the_corpus(study: Study, raced: Path) -> None:
    study.run(part(study, f"generation {NEXT}"))
    export = raced / "records" / "export"
    assert verify_export(export, verify).wrong == ()
    for log, agents in ((study.folder / "records", study.plan.agents), (raced / "records", ("the racer",))):
        gate = json.loads((log / "gate.json").read_text("utf-8"))  # what each agent was let in by
        assert len(gate) >= len(agents) and {report["outcome"] for report in gate.values()} == {"accept"}
    counts = read_counts(raced)
    assert counts is not None and counts.racer == WIDE and counts.raced == 2
    table = pq.read_table(export / "views" / "parquet")
    assert counts.solved == sum(table["is_success"].to_pylist()) == 1  # of what fails some is kept: the judge passed it
    rows = [row.trace.facts for row in read_rows(raced / "corpus")]
    own = [facts for facts in rows if facts.race_id == "study-generation-1"]
    assert len(own) == counts.kept > 0 and len(rows) == counts.rows
    assert {facts.race_id for facts in rows} == {"study", "study-generation-1"}
    trained = {problem.problem_id for problem in read_market(study.folder / "market").train}
    assert {facts.problem_id for facts in rows} <= trained
    assert all(row.trace.source.is_verified for row in read_rows(raced / "corpus"))


def test_a_generation_of_which_nothing_passes_ends_its_row(study: Study, raced: Path) -> None:
    nothing = msgspec.structs.replace(study.plan, coefficient_e4_min=10_001)  # above what any judge gives
    with pytest.raises(GuardStopError, match="none of 2 episodes is kept: coefficient 2"):
        run_generation(study, nothing)
    assert read_counts(raced) is None


def test_a_generation_that_fails_is_named_and_the_study_goes_on(
    study: Study, raced: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*given: object, **named: object) -> None:
        raise GuardStopError("generation", "none of 2 episodes is kept: failed 2")

    monkeypatch.setattr(study_module, "run_generation", fail)
    command = ["--file", str(study.folder.parent / "recipes" / "study.toml"), "--out", str(study.folder)]
    asked = CliRunner().invoke(app, [*command, "--only", "generation"])
    assert asked.exit_code == 1 and "none of 2 episodes is kept" in asked.output
    assert any(note.startswith(f"Failed: generation {NEXT}: error[V2123]") for note in study.document().lacking)


def test_an_agent_that_the_gate_refuses_does_not_race(
    study: Study, raced: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = racing.make_reentry
    monkeypatch.setattr(
        racing,
        "make_reentry",
        lambda *given: msgspec.structs.replace(
            made(*given), source="import os\n\ndef agent_main(problem): os._exit(1)"
        ),
    )
    with pytest.raises(GuardStopError, match="the gate refuses the agent"):
        run_generation(study, study.plan)


def test_a_race_that_another_checkpoint_began_is_not_gone_on_with(
    study: Study, raced: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_generation(study, study.plan)
    (raced / COUNTS).unlink()
    serve(study, monkeypatch, "2" * 64)
    with pytest.raises(ArenaError, match="V2166"):
        run_generation(study, study.plan)


def test_a_row_is_asked_under_another_harness_and_the_page_says_what_that_changed(study: Study, raced: Path) -> None:
    study.run(part(study, f"generation {NEXT}"))
    assert any(f"{ASKED} (second greedy)" in note for note in study.document().lacking)  # it lacks that
    for one in study.parts():
        if one.row in (NEXT, ASKED):
            study.run(one)
    found = study.results.read([NEXT, ASKED])
    (report,) = found[ASKED].reports
    own = found[NEXT].reports[0]
    assert report.conditions.tool_profile == "paper4" != own.conditions.tool_profile
    assert report.conditions.prompt_sha256 != own.conditions.prompt_sha256
    assert report.weights_sha256 == own.weights_sha256 and found[ASKED].lineage == found[NEXT].lineage
    assert found[NEXT].generation == read_counts(raced)
    document = study.document()
    assert sum(row.label == ASKED for row in document.rows) == 1
    assert not any(ASKED in (test.first, test.second) for test in document.tests)  # its conditions differ
    (said,) = [note for note in document.explored if note.startswith(f"Exploratory: {ASKED}")]
    assert "tools paper4 and another system prompt" in said and "as it learnt" in said
    assert any(note.startswith(f"Exploratory: before {NEXT} {WIDE} raced on 2") for note in document.explored)
    assert any(note.startswith("Of the plan not measured yet: ") and "base~wide" in note for note in document.lacking)
