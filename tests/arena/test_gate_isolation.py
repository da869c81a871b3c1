"""The gate in its own process: the same report, and nothing a source does to a parser reaches the caller."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest

from arena.gate import inspection
from arena.gate.inspection import inspect, inspect_isolated
from arena.gate.likeness import Author
from foundation.errors import ArenaError
from harness.agents.registry import cheater_source, reference_agents
from tests.arena.gate_stand import END, IDS, RULES, knowledge, make_neighbour

SLOW = "x = y.z(y)\n" * 60_000 + END


@pytest.mark.parametrize(
    "source", [reference_agents()[0].source, cheater_source(IDS[:3]), b"\xff\xfe", "x = (", "x = '\ud800'" + END]
)
def test_the_report_is_the_one_of_this_process(source: str | bytes) -> None:
    author = Author(agent_version_id="ab12", miner_hotkey="one", commitment_block=1, is_public=True)
    neighbours = [make_neighbour(author, reference_agents()[0].source, is_winner=True)]
    mine = Author(agent_version_id="cd34", miner_hotkey="two", commitment_block=2, miner_coldkey="three")
    alone = inspect_isolated(source, RULES, knowledge(), neighbours, mine)
    assert alone == inspect(source, RULES, knowledge(), neighbours, mine)


def test_a_source_that_uses_up_time_is_rejected() -> None:
    report = inspect_isolated(SLOW, RULES, knowledge(), cpu_limit_s=1)
    assert report.outcome == "reject" and "SIGXCPU" in report.findings[0].detail


def test_a_host_that_is_too_slow_or_starts_no_child_is_at_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ArenaError) as caught:
        inspect_isolated(SLOW, RULES, knowledge(), wall_limit_s=0.3)
    assert caught.value.failure.code == "V2004" and caught.value.entry.is_retryable
    assert [each for each in psutil.Process().children() if "arena.gate.inspection" in each.cmdline()] == []
    monkeypatch.setattr(inspection.sys, "executable", "/nonexistent/python")
    with pytest.raises(ArenaError, match="V2004"):
        inspect_isolated(END, RULES, knowledge())


def test_a_child_out_of_memory_rejects_and_one_that_fails_is_at_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    child = tmp_path / "python"
    monkeypatch.setattr(inspection.sys, "executable", str(child))
    child.write_text("#!/bin/sh\ncat > /dev/null\necho gone >&2\nexit $CODE\n")
    child.chmod(0o700)
    monkeypatch.setattr(inspection, "_environment", lambda: {"CODE": str(inspection.EXIT_OUT_OF_MEMORY)})
    report = inspect_isolated(END, RULES, knowledge())
    assert report.outcome == "reject" and report.findings[0].detail == "the parser ran out of memory"
    monkeypatch.setattr(inspection, "_environment", lambda: {"CODE": "1"})
    with pytest.raises(ArenaError, match=r"V2004.*ended with 1: gone"):
        inspect_isolated(END, RULES, knowledge())


def test_the_child_sees_no_secret_of_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    assert "OPENAI_API_KEY" not in inspection._environment()
