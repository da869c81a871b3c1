"""`make compat`: its agents part on one agent of each contract and style."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.compat.kinds import agents
from tests.harness.jail_stand import WHY_NO_JAIL, has_jail

ROOT = Path(__file__).parents[2]
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
    "own_tools": agents.MAY_2026,
    "react": agents.MAY_2026,
}


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
