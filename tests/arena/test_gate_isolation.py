"""The gate in its own process: the same report, and nothing a source does to a parser reaches the caller."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import psutil
import pytest

from arena.gate import isolation
from arena.gate.inspection import inspect
from arena.gate.isolation import inspect_isolated
from arena.gate.knowledge import make_knowledge
from arena.gate.similarity.ownership import Author
from foundation.errors import ArenaError
from harness.agents.registry import cheater_source, reference_agents
from tests.arena.gate_stand import END, IDS, RULES, knowledge, make_neighbour


@pytest.mark.parametrize(
    "source", [reference_agents()[0].source, cheater_source(IDS[:3]), b"\xff\xfe", "x = (", "x = '\ud800'" + END]
)
def test_the_report_is_the_one_of_this_process(source: str | bytes) -> None:
    author = Author(agent_version_id="ab12", miner_hotkey="one", commitment_block=1, is_public=True)
    neighbours = [make_neighbour(author, reference_agents()[0].source, is_winner=True)]
    mine = Author(agent_version_id="cd34", miner_hotkey="two", commitment_block=2, miner_coldkey="three")
    alone = inspect_isolated(source, RULES, knowledge(), neighbours, mine)
    assert alone == inspect(source, RULES, knowledge(), neighbours, mine)


def test_a_source_that_uses_up_the_cpu_time_is_rejected() -> None:
    slow = "x = y\n" * 160_000 + END
    report = inspect_isolated(slow, RULES, knowledge(), cpu_limit_s=1)
    assert report.outcome == "reject"
    assert "SIGXCPU" in report.findings[0].detail


def test_a_host_that_is_too_slow_is_the_hosts_fault() -> None:
    with pytest.raises(ArenaError) as caught:
        inspect_isolated(END, RULES, knowledge(), wall_limit_s=0.001)
    assert caught.value.failure.code == "V2004"
    assert caught.value.entry.is_retryable


def test_a_child_that_cannot_start_is_the_hosts_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isolation, "_WARM", isolation._Warm())
    monkeypatch.setattr(isolation.sys, "executable", "/nonexistent/python")
    with pytest.raises(ArenaError) as caught:
        inspect_isolated(END, RULES, knowledge())
    assert caught.value.failure.code == "V2004"


def test_the_child_sees_no_secret_of_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    assert "OPENAI_API_KEY" not in isolation._environment()


def test_a_template_that_was_killed_is_replaced() -> None:
    inspect_isolated(END, RULES, knowledge())
    template = isolation._WARM.template()
    template._process.kill()
    template._process.wait()
    assert inspect_isolated(END, RULES, knowledge()) == inspect(END, RULES, knowledge())
    assert isolation._WARM.template() is not template


def test_files_inspected_side_by_side_do_not_see_each_other() -> None:
    sources = [f"NAMES = {[*IDS[:count]]!r}{END}" for count in range(8)]
    with ThreadPoolExecutor(4) as pool:
        reports = list(pool.map(lambda source: inspect_isolated(source, RULES, knowledge()), sources))
    assert reports == [inspect(source, RULES, knowledge()) for source in sources]


def test_no_process_of_a_source_that_takes_too_long_is_left() -> None:
    slow = "x = y\n" * 160_000 + END
    template = isolation._WARM.template()
    with pytest.raises(ArenaError):
        inspect_isolated(slow, RULES, knowledge(), wall_limit_s=0.3)
    _, alive = psutil.wait_procs(psutil.Process(template._process.pid).children(), timeout=30)
    assert alive == []


def test_what_one_child_is_given_no_child_can_change() -> None:
    file = isolation._WARM.knowledge(knowledge())
    try:
        with pytest.raises(PermissionError):
            os.pwrite(file, b"x", 0)
        with pytest.raises(PermissionError):
            os.ftruncate(file, 0)
        assert np.array_equal(np.frombuffer(os.pread(file, 8 * len(IDS), 0), "<u8"), knowledge().product_ids)
    finally:
        os.close(file)


def test_knowledge_that_changed_is_not_the_one_before() -> None:
    other = make_knowledge(IDS[:2], [], [], RULES)
    table = f"T = {[*IDS[:4]]!r}{END}"
    for known in (knowledge(), other, knowledge()):
        assert inspect_isolated(table, RULES, known) == inspect(table, RULES, known)
