"""The compatibility page as it is committed, and the agents part of what makes it, on one agent of each contract and
style."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.compat.kinds import agents
from tests.compat.rows import examine_all, known_kinds, read_page, write_page
from tests.harness.jail_stand import WHY_NO_JAIL, has_jail

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "compatibility.md"
STYLES = {
    **{path.stem: path for path in sorted((ROOT / "tests" / "compat" / "styles").glob("*.py"))},
    "react": ROOT / "tests" / "harness" / "sn15_react_agent.py",
    "classes": ROOT / "tests" / "harness" / "sn15_environment_agent.py",
}
CONTRACTS = {
    "asynchronous": agents.MAY_2026,
    "classes": agents.ENVIRONMENT,
    "direct_requests": agents.ENVIRONMENT,
    "native": agents.NATIVE,
    "own_loop": agents.MAY_2026,
    "own_tools": agents.MAY_2026,
    "react": agents.MAY_2026,
}


def test_the_committed_page_is_read_back() -> None:
    rows = read_page(PAGE.read_text("utf-8"))
    agents_of_page = [row for row in rows if row.kind == "agents"]
    assert len({row.sha256 for row in agents_of_page}) == len(agents_of_page) >= 50
    assert all(row.version != "not given" for row in rows)


def test_a_page_of_what_was_examined_is_read_as_it_was_written(tmp_path: Path) -> None:
    folder = tmp_path / "agents"
    folder.mkdir()
    (folder / "b.py").write_text("import subprocess\ndef agent_main(p):\n    return None\n")
    (tmp_path / "sources.json").write_text(json.dumps({"agents/b.py": {"source": "here | there", "version": "1"}}))
    rows = [row for kind in known_kinds() for row in examine_all(tmp_path, kind)]
    (row,) = read_page(write_page(rows, ran_on="2026-11-23", version="version 0"))
    assert (row.name, row.source, row.version, row.date) == ("the file", "here / there", "1", "not given")
    assert row.is_red and row.result.startswith("gate reject: import, line 1: subprocess; no process can be started")
    with pytest.raises(ValueError, match="not a row"):
        read_page("## Agents\n| a | b | c |\n")


@pytest.mark.parametrize("style", STYLES)
def test_an_agent_of_each_contract_and_style_is_accepted_and_ends_without_a_fault(
    style: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not has_jail():
        pytest.skip(WHY_NO_JAIL)
    monkeypatch.setattr(agents, "PROBLEMS", 1)
    found = agents.examine(STYLES[style])
    assert f"; {CONTRACTS[style]}; 1 problems" in found.ran
    assert not found.is_red and found.result.startswith("gate accept; 1 x terminated"), found.result
