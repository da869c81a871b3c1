"""The shopping study: its plan, its page from the committed results, and a toy of it from nothing through a kill."""

from __future__ import annotations

import re
import shutil
import signal
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner, Result

from arena.store.embedded import is_running, start_embedded
from foundation.errors import ArenaError
from problems.clusters import find_clusters
from problems.model import BUCKETS
from studies.shopping.__main__ import app
from studies.shopping.market import make_market, open_partition, read_market, stock
from studies.shopping.plan import CONTROLS, StudyPlan, read_toml
from studies.shopping.results import EDITION, Results, RowResult, render_page
from tests.training.stage_runs import engine_processes
from training.corpus.building import read_rows

SHIPPED = Path(__file__).parents[2] / "studies" / "shopping" / "recipes"
SEED = 11
ROWS = ("sft", "refresh", "sft@no_agentic_split")

_PLAN = {
    r"documents = \d+": "documents = 400",
    r"train_counts = .*": "train_counts = { product = 8 }",
    r"eval_counts = .*": "eval_counts = { product = 2 }",
    r"second_counts = .*": "second_counts = { product = 1 }",
    r"dev_counts = .*": "dev_counts = { product = 3 }",
    r"drawn = .*": "drawn = { teacher = 4 }",
    r"(?m)^problems = 300": "problems = 4",
    r"(?m)^problems = 600": "problems = 2",
    r"versions = \d+": "versions = 2",
    r"turn_tokens_max = \d+": "turn_tokens_max = 256",  # a random model writes until it is cut; no control is
    r"hidden = \d+": "hidden = 32",
    r"is_mimetic = true": "is_mimetic = false",
    r"drill_rows = \d+": "drill_rows = 24",
    r"layers = \d+": "layers = 1",
    r'sets = \["second", "eval"\]': 'sets = ["second"]',
    r"samples = 8": "samples = 2",
    r"(?ms)^arms = .*?\]$": 'arms = ["no_agentic_split"]',
    r"epochs = \S+": "epochs = 0.5",
}
_RECIPE = {
    r"steps_max = \d+": "steps_max = 1",
    r"turn_tokens_max = \d+": "turn_tokens_max = 8",
    r"turns_max = 8": "turns_max = 3",
    r"samples = \d+": "samples = 2",
    r"problems_per_step = \d+": "problems_per_step = 1",
    r"batch_rows = 8": "batch_rows = 2",
    r"save_every_steps = 5": "save_every_steps = 1",
}
_TESTS = {
    r"seeds = .*": f"seeds = [{SEED}]",
    r"sft@no_structural_filter": "sft@no_agentic_split",
    r"(?m)^control = .*": "",
}


def write_toy_study(folder: Path, rows: Sequence[str] = ROWS) -> Path:
    """Plan, recipes and tests in `folder`; the folder."""
    folder.mkdir(parents=True)
    named = ", ".join(f'"{row}"' for row in rows)
    plan = _PLAN | {
        r"(?s)\[\[blocks\]\].*\[market\]": f"[[blocks]]\nrows = [{named}]\nseeds = [{SEED}]\n\n[market]",
    }
    for path in SHIPPED.glob("*.toml"):
        small = {"study.toml": plan, "hypotheses.toml": _TESTS}.get(path.name, _RECIPE)
        text = path.read_text("utf-8")
        for pattern, value in small.items():
            text = re.sub(pattern, value, text)
        (folder / path.name).write_text(text, "utf-8")
    return folder


COMMITTED = SHIPPED.parent / "results"
PLAN = read_toml(SHIPPED / "study.toml", StudyPlan)
_WAIT_S = 240


def command(*words: object) -> Result:
    before = signal.getsignal(signal.SIGTERM)
    try:
        return CliRunner().invoke(app, list(map(str, words)), catch_exceptions=False)
    finally:
        signal.signal(signal.SIGTERM, before)


def test_the_plan_lists_every_row_and_writes_nothing(tmp_path: Path) -> None:
    asked = command("--out", tmp_path / "out", "--results", COMMITTED, "--plan")
    said = asked.stdout.splitlines()
    assert asked.exit_code == 0 and not (tmp_path / "out").exists()
    assert [line.partition(" h  ")[2] for line in said] == list(PLAN.labels)
    done = {line.partition(" h  ")[2] for line in said if line.startswith("done")}
    assert {*CONTROLS, "base", "sft-11", "refresh-13"} <= done and "grpo_v18_free-11" not in done


def test_the_page_of_the_committed_results_is_the_committed_one() -> None:
    results = Results(COMMITTED, PLAN).read()
    assert render_page(PLAN, SHIPPED, results) == (SHIPPED.parent / "report.md").read_text("utf-8")
    assert {one.edition for one in results.values()} == {"first-edition"}


def test_rows_of_two_editions_are_never_in_one_test(tmp_path: Path) -> None:
    for name in ("sft-11.json", "base.json"):
        shutil.copy(COMMITTED / name, tmp_path / name)
    results = Results(tmp_path, PLAN)
    new = RowResult(row="sft-12", edition=EDITION, plan_sha256=PLAN.plan_sha256, code_commit="", reports=(), seconds={})
    with pytest.raises(ArenaError, match=r"V2124.*another edition"):
        results.add(new)
    (tmp_path / "sft-12.json").write_bytes(msgspec.json.encode(new))
    with pytest.raises(ArenaError, match=r"V2124.*never in one test"):
        results.read()
    other = Results(tmp_path / "new", PLAN)
    other.add(new)
    with pytest.raises(ArenaError, match=r"V2124.*another plan"):
        Results(tmp_path / "new", msgspec.structs.replace(PLAN, seed=30)).read()


def test_the_market_has_the_papers_sizes_shares_no_cluster_and_follows_from_the_seed(tmp_path: Path) -> None:
    few = {"product": 6, "shop": 4, "voucher": 4}
    small = msgspec.structs.replace(PLAN.market, documents=600, train_counts=few, second_counts=few, dev_counts=few)
    for name in ("one", "other"):
        make_market(msgspec.structs.replace(PLAN, market=small), tmp_path / name)
    assert len({open_partition(tmp_path / name).manifest.sha256 for name in ("one", "other")}) == 1
    market = read_market(tmp_path / "one")
    assert market == read_market(tmp_path / "other")
    assert [sum(one.bucket == bucket for one in market.eval) for bucket in BUCKETS] == [28, 24, 23]
    pool_of = {one.problem_id: name for name in ("train", "eval", "second", "dev") for one in getattr(market, name)}
    everything = [*market.train, *market.eval, *market.second, *market.dev]
    assert all(len({pool_of[one] for one in members}) == 1 for members in find_clusters(everything).values())
    products = stock(msgspec.structs.replace(PLAN.market, documents=300), 5)
    assert len({one.product_id for one in products}) == 300 and all(len(one.title) <= 48 for one in products)


def test_the_study_runs_from_nothing_to_its_page_through_a_kill(tmp_path: Path) -> None:
    recipes, out = write_toy_study(tmp_path / "recipes"), tmp_path / "out"
    state = out / "records" / "state"
    try:
        running = engine_processes().Process(target=command, args=("--recipes", recipes, "--out", out))
        running.start()
        deadline = time.monotonic() + _WAIT_S
        while not is_running(state):  # among the records
            assert running.is_alive() and time.monotonic() < deadline
            time.sleep(0.05)
        running.kill()
        running.join()
        again = command("--recipes", recipes, "--out", out)
        assert again.exit_code == 0, again.output
    finally:
        if is_running(state):
            start_embedded(state).stop()
    market = read_market(out / "market")
    rows = list(read_rows(out / "corpora" / "full"))
    assert rows and {row.trace.facts.problem_id for row in rows} <= {one.problem_id for one in market.train}
    plan = read_toml(recipes / "study.toml", StudyPlan)
    results = Results(out / "results", plan).read()
    assert list(results) == list(plan.labels)
    refresh = results[f"refresh-{SEED}"]
    assert [one["recipe"]["stage"] for one in refresh.lineage] == ["grpo", "sft"]
    assert "train.jsonl" in refresh.lineage[0]["problem_files"]
    assert all("{study}/" in str(one["recipe"]) and str(out) not in str(one) for one in refresh.lineage)
    concise = results["scripted concise"].report("second set", 0.0)
    assert concise is not None and concise.asr.value > 0.5  # the control really shops
    page = (out / "report.md").read_text("utf-8")
    assert EDITION in page and "Not made yet" not in page and "confirms nothing" in page
    assert all(f"| {row}-{SEED} |" in page for row in ROWS)
