"""The study: its market is frozen, its parts follow from the plan, and a kill does not keep it from its report."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner

from arena.chain.keys import verify
from arena.export.verify.verification import verify_export
from arena.store.embedded.server import is_running, start_embedded
from foundation.errors import ArenaError
from neurons.cli.exit_codes import EXIT_INTERRUPTED
from neurons.cli.training.study import app
from problems.model import BUCKETS
from problems.pools.clusters import find_clusters
from tests.training.eval_reports import as_version_1, make
from tests.training.toy_study import ROWS, SEED, SHIPPED, TOKENIZER, write_toy_study
from training.corpus.corpus_files import read_rows
from training.evaluation.contamination import learnt_by
from training.report.document import Document
from training.stages.run import SAMPLED, lineage_chain
from training.study.corpora import build_corpora
from training.study.findings.hypotheses import HYPOTHESES
from training.study.findings.results import RowResult
from training.study.market import make_market, open_partition, read_market, stock
from training.study.measure import AGENT, CONTROLS, file_name
from training.study.plan import read_plan
from training.study.policies import RandomCaller
from training.study.study import Study

RUNS = [f"{row}-{SEED}" for row in ROWS]
ROOT = Path(__file__).parents[2]
_WAIT_S = 240


def open_study(plan: Path, folder: Path) -> Study:
    """The toy study as the command opens it."""
    return Study(
        read_plan(plan), plan.read_text("utf-8"), plan.parent, TOKENIZER, folder, code_commit="test", now_ms=_now_ms
    )


def finished(study: Study, row: str) -> RowResult:
    """A row's result without anything in it."""
    return RowResult(
        row=row, plan_sha256=study.plan.sha256_of(row), code_commit="", reports=(), failures={}, seconds={}
    )


def mark(out: Path, part: str) -> None:
    """Have a part stand as finished."""
    (out / "done").mkdir(parents=True, exist_ok=True)
    (out / "done" / file_name(part)).touch()


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def test_the_market_of_a_plan_is_the_same_whoever_makes_it(tmp_path: Path) -> None:
    plan = read_plan(write_toy_study(tmp_path / "recipes"))
    for name in ("one", "other"):
        make_market(plan, tmp_path / name)
    one, other = (
        {path.name: path.read_bytes() for path in (tmp_path / name / "problems").iterdir()} for name in ("one", "other")
    )
    assert one == other and len(one["train.jsonl"]) > 0
    manifests = {open_partition(tmp_path / name).manifest.sha256 for name in ("one", "other")}
    assert len(manifests) == 1


def test_the_studys_sets_have_the_papers_sizes_and_share_no_cluster(tmp_path: Path) -> None:
    plan = read_plan(SHIPPED / "study.toml")
    assert sum(plan.market.second_counts.values()) == 500 and sum(plan.market.dev_counts.values()) == 60
    few = {"product": 6, "shop": 4, "voucher": 4}
    small = msgspec.structs.replace(plan.market, documents=1_000, train_counts=few, second_counts=few, dev_counts=few)
    make_market(msgspec.structs.replace(plan, market=small), tmp_path)
    market = read_market(tmp_path)
    counts = {bucket: sum(one.bucket == bucket for one in market.eval) for bucket in BUCKETS}
    assert counts == {"product": 28, "shop": 24, "voucher": 23}
    pool_of = {one.problem_id: name for name in ("train", "eval", "second", "dev") for one in getattr(market, name)}
    everything = [*market.train, *market.eval, *market.second, *market.dev]
    for members in find_clusters(everything).problems_of.values():
        assert len({pool_of[one] for one in members}) == 1


def test_products_have_short_ids_and_short_titles() -> None:
    rules = read_plan(SHIPPED / "study.toml").market
    products = stock(msgspec.structs.replace(rules, documents=300), 5)
    assert len({one.product_id for one in products}) == 300
    assert all(len(one.product_id) <= 4 and len(one.title) <= 48 and not one.description for one in products)
    assert all(one.title == one.title.lower() and one.title.replace(" ", "").isalpha() for one in products)


_PAGE = (
    '[{"product_id":"101","shop_id":"7","title":"garden hose","price":9.0},'
    '{"product_id":"102","shop_id":"8","title":"green hose","price":8.0}]'
)


def test_the_random_tool_caller_names_only_what_a_search_showed_and_ends() -> None:
    messages: list[dict[str, object]] = [{"role": "user", "content": "find a green garden hose with brand zuon"}]
    made: list[str] = []
    for _ in range(60):
        reply = RandomCaller(3).complete(msgspec.json.encode({"model": "m", "messages": messages}).decode())
        (call,) = reply.calls
        made.append(call.name)
        arguments = msgspec.json.decode(call.arguments)
        if call.name == "terminate":
            break
        if call.name != "find_product":
            assert set(str(arguments["product_ids"]).split(",")) <= {"101", "102"}
        else:
            assert all(word in str(messages[0]["content"]) for word in arguments["q"].split())
        function = {"name": call.name, "arguments": call.arguments}
        messages.append({"role": "assistant", "content": "", "tool_calls": [{"function": function}]})
        messages.append({"role": "tool", "content": _PAGE})
    assert made[0] == "find_product" and made[-2:] == ["recommend_product", "terminate"]


def test_a_row_that_is_finished_elsewhere_is_not_run_and_its_run_only_where_an_open_row_starts_from_it(
    tmp_path: Path,
) -> None:
    plan = write_toy_study(tmp_path / "recipes")
    study = open_study(plan, tmp_path / "out")
    for row in ("base", f"sft-{SEED}"):
        study.results.add(finished(study, row))
    open_names = {part.name for part in study.parts() if not study.is_done(part)}
    assert {f"stage sft-{SEED}", f"stage refresh-{SEED}"} <= open_names  # refresh starts from sft, which is made again
    assert not any(name.startswith((f"measure sft-{SEED}", "measure base")) for name in open_names)
    for part in study.parts():
        if part.kind == "result":
            study.results.add(finished(study, part.row))
    assert {part.name for part in study.parts() if not study.is_done(part)} == {"report"}
    plan.write_text(plan.read_text("utf-8").replace("seed = 29", "seed = 30"), "utf-8")
    with pytest.raises(ArenaError, match="V2124"):
        Study(
            read_plan(plan), plan.read_text("utf-8"), plan.parent, TOKENIZER, tmp_path / "new",
            code_commit="", now_ms=_now_ms, results=tmp_path / "out" / "results",
        ).document()  # fmt: skip


def test_a_folder_of_another_plan_is_refused(tmp_path: Path) -> None:
    plan = write_toy_study(tmp_path / "recipes")
    study = open_study(plan, tmp_path / "out")
    study.run(study.parts()[0])
    plan.write_text(plan.read_text("utf-8").replace("seed = 29", "seed = 30"), "utf-8")
    with pytest.raises(ArenaError, match="V2124"):
        open_study(plan, tmp_path / "out")


def test_a_plan_may_gain_rows_and_arms_while_it_runs(tmp_path: Path) -> None:
    plan = write_toy_study(tmp_path / "recipes")
    study = open_study(plan, tmp_path / "out")
    study.run(study.parts()[0])
    study.results.add(finished(study, "base"))
    for arm in study.plan.arms:
        (tmp_path / "out" / "corpora" / "matched" / arm).mkdir(parents=True)
    mark(tmp_path / "out", "corpora")
    corpora = next(part for part in study.parts() if part.kind == "corpora")
    assert study.is_done(corpora)
    more = msgspec.structs.replace(study.plan, arms=(*study.plan.arms, "no_coefficient"), blocks=study.plan.blocks[:1])
    text = plan.read_text("utf-8")
    grown = Study(more, text, plan.parent, TOKENIZER, tmp_path / "out", code_commit="", now_ms=_now_ms)
    assert grown.results.read(["base"])
    assert not grown.is_done(corpora)  # the new arm has no corpus yet


def test_a_misspelt_plan_and_an_arm_without_a_corpus_are_refused(tmp_path: Path) -> None:
    plan = write_toy_study(tmp_path / "recipes")
    text = plan.read_text("utf-8")
    for odd in (text.replace("parallel =", "paralel ="), text.replace("sft@mixed", "sft@mixd")):
        plan.write_text(odd, "utf-8")
        with pytest.raises(ArenaError, match="V2120"):
            read_plan(plan)


def test_the_study_runs_from_nothing_to_its_report_through_a_kill(tmp_path: Path) -> None:
    plan = write_toy_study(tmp_path / "recipes")
    out = tmp_path / "out"
    try:
        _start_and_kill(plan, out, out / "done" / "market")
        study = open_study(plan, out)
        assert study.is_done(study.parts()[0]) and not study.is_done(study.parts()[-1])
        for part in study.parts():
            study.run(part)
    finally:
        if is_running(out / "records" / "state"):  # a kill leaves the server up; the next run takes it over and ends it
            start_embedded(out / "records" / "state").stop()

    export = out / "records" / "export"
    assert verify_export(export, verify).wrong == ()
    market = read_market(out / "market")
    trained = {one.problem_id for one in market.train}
    rows = list(read_rows(out / "corpora" / "full"))
    assert rows and {row.trace.facts.problem_id for row in rows} <= trained
    assert all(row.trace.source.is_verified for row in rows)
    held = {row.trace.facts.problem_id for row in read_rows(out / "corpora" / "dev")}
    assert held and held <= {one.problem_id for one in market.dev}
    sizes = {name: len(list(read_rows(out / "corpora" / "matched" / name))) for name in ("full", "no_agentic_split")}
    mixed = {part: list(read_rows(out / "corpora" / "matched" / "mixed" / part)) for part in ("agentic", "lifted")}
    assert {row.trace.provenance for row in mixed["agentic"]} == {"verbatim"}
    assert {row.trace.provenance for row in mixed["lifted"]} == {"rewritten"}
    assert {row.trace.facts.problem_id for rows in mixed.values() for row in rows} <= trained
    sizes["mixed"] = sum(map(len, mixed.values()))
    assert len(set(sizes.values())) == 1
    assert [found.stage for _, _, found in lineage_chain(out / "runs" / f"refresh-{SEED}")] == ["grpo", "sft"]
    kept = study.results.read([f"refresh-{SEED}"])[f"refresh-{SEED}"]
    assert all("{study}/" in one.recipe and str(study.folder) not in one.recipe for one in kept.lineage)
    assert [found.stage for found in kept.lineage] == ["grpo", "sft"] and len(kept.reports) == 2
    dealt = learnt_by(out / "runs" / f"refresh-{SEED}")  # all of the pool, whatever its parent's corpus holds
    assert trained <= dealt.problem_ids and not dealt.unread and SAMPLED in kept.lineage[0].problem_files
    assert {"reward", "groups/mixed"} <= {one.metric for one in kept.curves}
    assert {sum(counts.values()) for place in kept.failures.values() for counts in place.values()} == {1, 2}
    document = msgspec.json.decode((out / "report.json").read_bytes(), type=Document)
    labels = {row.label for row in document.rows}
    agents = [row for row in document.rows if row.label.startswith(AGENT)]
    assert {row.label.removeprefix(AGENT) for row in agents} == set(study.plan.measured_agents)
    assert labels == {"base", *CONTROLS, *RUNS, f"{RUNS[-1]} under other", *(row.label for row in agents)}
    for row in agents:
        assert row.spent and row.spent.completion_tokens and row.spent.episode_ms is not None
    assert all(row.spent and row.processor_s is not None for row in document.rows)  # beside the models
    shopper = next(row for row in agents if "concise" in row.label)
    assert shopper.spent and shopper.spent.solved and shopper.processor_ms_a_solved is not None
    assert "processor time a solved" in (out / "report.html").read_text("utf-8")
    assert {row.set for row in document.rows} == {"second set"}
    expert = [row.asr.value for row in document.rows if row.label == "scripted concise"]
    assert min(expert) > 0.5  # the control really shops
    partial = [row.partial for row in document.rows]
    assert all(one is not None and 0.0 <= one.value <= 1.0 for one in partial)
    assert [line.split(":")[0] for line in document.arms] == ["full", "no_agentic_split", "mixed"]
    assert f"{len(mixed['lifted'])} of them lifted" in document.arms[-1]
    assert not any(note.startswith(("Of the plan", "Failed")) for note in document.lacking)  # it lacks nothing
    assert [claim.holds is not None and claim.comparison is not None for claim in document.claims] == [True] * 3
    assert any(one.label == f"refresh-{SEED}" and one.set == "second set" for one in document.endings)
    pages = (out / "report.html").read_text("utf-8")
    assert "its numbers say nothing of ShoppingBench" in pages and "pre-trained from scratch" in pages
    assert all(study.is_done(part) for part in study.parts() if part.kind != "report")
    arm = study.results.read([f"sft@mixed-{SEED}"])[f"sft@mixed-{SEED}"]
    assert len(arm.lineage[0].corpus_sha256s) == 2

    before = _bytes_below(out / "corpora" / "matched")
    more = msgspec.structs.replace(study.plan, arms=(*study.plan.arms, "outcome_only"))
    build_corpora(
        more,
        out / "market",
        out / "records" / "export",
        out / "corpora",
        out / "tokenizer",
        code_commit="later",
        progress=None,
    )
    after = _bytes_below(out / "corpora" / "matched")
    assert before.items() <= after.items()  # an arm whose rows stay the same keeps its bytes, and its identity
    assert {Path(name).parts[0] for name in after.keys() - before.keys()} == {"outcome_only"}


def _bytes_below(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def _start_and_kill(plan: Path, out: Path, mark: Path) -> None:
    """Start the command and kill it a moment after `mark` appears: in the middle of what comes next."""
    running = _start(plan, out)
    _wait(running, mark.exists)
    time.sleep(2)  # wherever it is now: nothing that follows depends on it
    os.kill(running.pid, signal.SIGKILL)
    running.communicate()


def _start(plan: Path, out: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "neurons.cli.app", "study", "--file", str(plan), "--out", str(out)]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


def _wait(running: subprocess.Popen[str], is_there: Callable[[], bool]) -> None:
    """Wait until the command has got as far."""
    deadline = time.monotonic() + _WAIT_S
    while not is_there():
        assert running.poll() is None, running.communicate()[1][-2_000:]
        assert time.monotonic() < deadline, "the study did not get as far"
        time.sleep(0.05)


def test_a_study_that_is_told_to_stop_leaves_no_server_running(tmp_path: Path) -> None:
    out = tmp_path / "out"
    state = out / "records" / "state"
    running = _start(write_toy_study(tmp_path / "recipes"), out)
    try:
        _wait(running, lambda: is_running(state))
        running.terminate()
        running.communicate(timeout=_WAIT_S)
        assert running.returncode == EXIT_INTERRUPTED
        assert not is_running(state)
    finally:
        if running.poll() is None:
            running.kill()
            running.communicate()
        if is_running(state):
            start_embedded(state).stop()


def test_a_stage_that_cannot_be_trained_is_named_and_keeps_no_other_from_the_table(tmp_path: Path) -> None:
    plan = write_toy_study(tmp_path / "recipes")
    study = open_study(plan, tmp_path / "out")
    parts = study.parts()
    (plan.parent / HYPOTHESES).unlink()  # there is nothing in the results to test
    for part in parts[:2]:  # market and tokenizer
        study.run(part)
    for arm in study.plan.arms:
        (tmp_path / "out" / "corpora" / "matched" / arm).mkdir(parents=True)
    for part in parts:
        if part.kind == "result" and part.row not in (f"refresh-{SEED}", "scripted concise"):
            study.results.add(finished(study, part.row))
        is_left = part.kind in ("stage", "report") or part.name.startswith("measure scripted_concise-")
        if not is_left or part.name == f"stage sft-{SEED}":  # which left nothing behind: refresh has no parent
            mark(tmp_path / "out", part.name)
    asked = CliRunner().invoke(app, ["--file", str(plan), "--out", str(tmp_path / "out")])
    assert asked.exit_code == 1
    assert "stage refresh-11: error[V2124]" in asked.output
    page = (tmp_path / "out" / "report.html").read_text("utf-8")
    assert "scripted concise" in page and "Failed: stage refresh-11: error[V2124]" in page
    reopened = open_study(plan, tmp_path / "out").document()
    assert any(
        note.startswith("Failed: stage refresh-11: error[V2124]") for note in reopened.lacking
    )  # by whoever opens it
    mark(tmp_path / "out", f"stage refresh-{SEED}")
    assert not any("stage refresh" in note for note in open_study(plan, tmp_path / "out").document().lacking)


def test_a_dry_run_lists_parts_and_makes_none(tmp_path: Path) -> None:
    plan = write_toy_study(tmp_path / "recipes")
    shown = CliRunner().invoke(app, ["--file", str(plan), "--out", str(tmp_path / "out"), "--plan"])
    assert (
        shown.exit_code == 0
        and re.search(r"open +\d+\.\d h of +\d+\.\d  refresh-11", shown.output)
        and "left: about" in shown.output
    )
    assert not (tmp_path / "out").exists()


def test_a_dry_run_gives_its_parts_as_json_and_writes_nothing(tmp_path: Path) -> None:
    plan = write_toy_study(tmp_path / "recipes")
    out = tmp_path / "out"
    study = open_study(plan, out)
    study.run(study.parts()[0])
    before = sorted(out.rglob("*"))
    shown = CliRunner().invoke(app, ["--file", str(plan), "--out", str(out), "--plan", "--json"])
    parts = msgspec.json.decode(shown.stdout)
    assert [part["name"] for part in parts] == [part.name for part in study.parts()]
    assert [part["name"] for part in parts if part["is_done"]] == ["market"]
    assert all(part["minutes"] >= 0 and part["kind"] for part in parts)
    assert sorted(out.rglob("*")) == before


def test_a_folder_begun_before_failures_were_kept_goes_on(tmp_path: Path) -> None:
    """It has a plan, marks, and reports without what is recorded now."""
    plan = write_toy_study(tmp_path / "recipes")
    out = tmp_path / "out"
    (out / "done").mkdir(parents=True)
    (out / "reports").mkdir()
    (out / "plan.toml").write_text(plan.read_text("utf-8"), "utf-8")
    study = open_study(plan, out)
    for part in study.parts():
        mark(out, part.name)
        if part.measurement is not None:
            older = as_version_1(make(part.measurement.label, 3))
            (out / "reports" / f"{part.measurement.file_name}.json").write_bytes(msgspec.json.encode(older))
            break
    study.run(study.parts()[-1])
    (row,) = msgspec.json.decode((out / "report.json").read_bytes(), type=Document).rows
    assert row.partial is None and "not recorded" in (out / "report.html").read_text("utf-8")
