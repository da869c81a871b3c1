"""A node's budget of judging: whole problems, kept over restarts."""

from __future__ import annotations

from pathlib import Path

import pytest

from arena.records.model import Context, Subject
from arena.records.port import WorkItem
from foundation.errors import ArenaError
from judge.budget import Spending
from neurons.loops.node import JudgeBudgets

ITEMS = [
    WorkItem(
        item_id=f"{problem}/{agent}",
        subject=Subject(agent_version_id=f"a{agent}", miner_hotkey="m", agent_sha256="0" * 64),
        context=Context(stage="race", race_id="r/1", problem_id=problem),
    )
    for problem in ("p", "q", "s")
    for agent in range(3)
]
BUDGET = 130_000  # six verdicts of the first estimate


def test_a_problem_without_room_is_refused_for_every_agent_and_after_a_restart(tmp_path: Path):
    budgets = JudgeBudgets(tmp_path, BUDGET)
    budgets.plan("r/1", ITEMS)
    assert [budgets.refusal("r/1", name) is None for name in ("p", "q", "s", "p")] == [True, True, False, True]
    budgets.charge("r/1", "p", Spending(verdicts=1, prompt_tokens=90_000))
    again = JudgeBudgets(tmp_path, BUDGET)
    refused = again.refusal("r/1", "s")
    assert refused is not None and refused.code == "U3022" and "90000 tokens" in refused.detail
    assert again.refusal("r/1", "q") is None
    assert JudgeBudgets(tmp_path, 10**6).refusal("r/1", "s") is None  # the operator gave more
    next(tmp_path.glob("*.json")).write_text("{")  # what can't be read is no fresh budget
    with pytest.raises(ArenaError, match="V2064"):
        again.refusal("r/1", "q")
