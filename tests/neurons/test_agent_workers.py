"""Several problems at a time: `arena run` and `arena eval` by the validator's workers, as by one process."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from pathlib import Path

import psutil
import pytest

from foundation.executors.processes import ProcessExecutor
from harness.agents.registry import reference_agent
from harness.catalogue.engines.native import open_catalogue
from harness.inference.scripted import start_scripted_server
from neurons.cli.app import main
from neurons.cluster import choice
from problems.suites.formats import write_problems
from problems.synthesis.generator import synthesize
from tests.neurons import test_agents
from tests.neurons.test_agents import BASELINE, Arena

arena, desk = test_agents.arena, test_agents.desk  # fixtures


@pytest.fixture
def problem_set(desk: Path, tmp_path: Path) -> Path:
    """Four problems over the desk's catalogue."""
    products = tuple(open_catalogue(desk / "catalogue").products())
    path = tmp_path / "set.jsonl"
    path.write_text("\n".join(write_problems(synthesize(products, seed=8, counts={"product": 3, "shop": 1}))))
    return path


def test_several_problems_at_a_time_give_the_same_bodies_and_the_rows_in_order(arena: Arena) -> None:
    source = reference_agent(BASELINE).source
    one, four = (json.loads(arena("run", source, "--json", "--workers", workers)[1]) for workers in ("1", "4"))
    assert [row["body_sha256"] for row in one] == [row["body_sha256"] for row in four]


def test_a_worker_that_is_killed_costs_no_problem_and_none_is_left_behind(arena: Arena) -> None:
    source, me = reference_agent(BASELINE).source, psutil.Process()
    whole = json.loads(arena("run", source, "--json", "--count", "4")[1])
    killed: list[int] = []

    def workers() -> list[psutil.Process]:
        return [one for one in me.children() if "neurons.worker.process" in one.cmdline()]

    def kill_the_first_with_a_jail() -> None:
        while not killed:
            with contextlib.suppress(psutil.NoSuchProcess):
                found = sorted(workers(), key=lambda one: one.create_time())
                if len(found) == 2 and found[0].children():  # the second starts once the first has tried its jail
                    found[0].kill()
                    killed.append(found[0].pid)
            time.sleep(0.005)

    threading.Thread(target=kill_the_first_with_a_jail, daemon=True).start()
    again = json.loads(arena("run", source, "--json", "--count", "4", "--workers", "2")[1])
    assert killed
    assert [row["body_sha256"] for row in again] == [row["body_sha256"] for row in whole]
    assert workers() == []


def test_an_agent_is_evaluated_by_workers_or_elsewhere_as_by_this_process(
    arena: Arena, problem_set: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, reports, lines = reference_agent(BASELINE).source, [], []
    elsewhere = contextlib.nullcontext(ProcessExecutor(2))
    monkeypatch.setattr(choice, "open_executor", lambda cluster, processes, records, *, state_dir: elsewhere)
    for name, more in (("one", ()), ("two", ("--workers", "2")), ("three", ("--cluster", "local"))):
        out = tmp_path / f"{name}.json"
        asked = ("--policy", "demo", "--problems", str(problem_set), "--label", "it", "--out", str(out))
        code, _, told = arena("eval", source, *asked, *more)
        assert code == 0, told
        report, kept = json.loads(out.read_bytes()), out.with_suffix(".episodes.jsonl").read_bytes()
        rows = [json.loads(line) for line in kept.splitlines()]
        for spent in (report["spent"], *(row["result"]["taken"] for row in rows)):
            assert spent.pop("episode_ms") > 0  # a clock's
        reports.append(report)
        lines.append(sorted(rows, key=str))
    assert lines[0] == lines[1] == lines[2] and len(lines[0]) == 4
    assert reports[0] == reports[1] == reports[2] and reports[0]["asr"]["value"] > 0
    assert not [one for one in psutil.Process().children() if "neurons.worker.process" in one.cmdline()]


def test_an_evaluation_asks_the_endpoints_it_is_given_each_with_its_own_limit(
    arena: Arena, desk: Path, problem_set: Path, tmp_path: Path
) -> None:
    source, upstreams = reference_agent(BASELINE).source, desk / "state/upstreams"
    given = ("--policy", "demo", "--model", "scripted-expert", "--problems", str(problem_set))
    with start_scripted_server() as one, start_scripted_server() as two:
        urls = ("--model-url", f"{one.base_url}=1", "--model-url", f"{two.base_url}=1")
        code, _, told = arena("eval", source, *given, *urls, "--workers", "2")
        assert code == 0, told
        assert all(list((upstreams / name).iterdir()) for name in ("model-1", "model-2"))
        before, report = set(upstreams.iterdir()), tmp_path / "b.json"
        words = ["eval", f"{one.base_url}=3", *given, "--out", str(report), "--state-dir", str(desk / "state")]
        with pytest.raises(SystemExit) as ended:
            main([*words, "--catalogue", str(desk / "catalogue"), "--parallel", "4"])
    assert not ended.value.code
    assert json.loads(report.read_bytes())["label"] == f"{one.base_url} scripted-expert"
    (own,) = set(upstreams.iterdir()) - before
    assert 1 <= len(list(own.iterdir())) <= 3


def test_workers_are_dealt_over_endpoints_each_with_its_own_limit(arena: Arena, desk: Path) -> None:
    source = reference_agent(BASELINE).source
    plain = json.loads(arena("run", source, "--json", "--count", "4")[1])
    with start_scripted_server() as one, start_scripted_server() as two:
        urls = ("--model-url", f"{one.base_url}=1", "--model-url", f"{two.base_url}=2")
        asked = (*urls, "--model", "scripted-expert", "--count", "4", "--json")
        found = json.loads(arena("run", source, *asked, "--workers", "2")[1])
        gone = ("--model-url", "http://127.0.0.1:9/v1=3")
        code, shown, told = arena("run", source, *asked, *gone)
        none_left, _, told_none = arena("run", source, *gone, "--model", "scripted-expert")
    assert [row["outcome"] for row in found] == [row["outcome"] for row in plain]
    locks = {name: len(list((desk / "state/upstreams" / name).iterdir())) for name in ("model-1", "model-2")}
    assert locks["model-1"] == 1 <= locks["model-2"] <= 2  # a slot of an endpoint is a file; both were asked
    assert code == 0 and len(json.loads(shown)) == 4 and "http://127.0.0.1:9/v1 does not answer" in told
    assert none_left == 3 and "error[U3002]: model-1 at http://127.0.0.1:9/v1 does not answer" in told_none


def test_variants_and_the_time_limit_hold_for_workers_too(arena: Arena) -> None:
    source, asked = reference_agent(BASELINE).source, ("--variant", "7", "--count", "2", "--json")
    one, two = (json.loads(arena("run", source, *asked, "--workers", workers)[1]) for workers in ("1", "2"))
    assert [row["body_sha256"] for row in one] == [row["body_sha256"] for row in two]
    assert [row["outcome"] for row in one] == [row["outcome"] for row in two]
    code, shown, _ = arena("run", source, "--count", "5", "--workers", "2", "--time-limit", "0.000001")
    assert code == 0 and "5 problems were not begun" in shown
