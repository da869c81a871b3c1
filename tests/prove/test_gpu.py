"""`make prove-gpu` on a CPU: its trainers in `make test`, all of its parts in `make prove`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.prove import gpu
from tests.prove.wheels import STAGES, closure


def test_the_stages_come_to_the_losses_of_trls_own_trainers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--here", f"--out={tmp_path}", f"--work={tmp_path / 'work'}", "sft", "kto", "grpo", "sampling"]
    assert gpu.main(words) == 0 and gpu.main(words) == 0  # the second time from its files
    first, second = capsys.readouterr().out.split("| part |")[1:]
    assert first == second and first.count("\n| ") == 4
    for stage in ("sft", "kto", "grpo"):
        found = json.loads((tmp_path / f"{stage}.json").read_text("utf-8"))
        assert found["gap"] < 1e-5 and found["gap_of_first_norms"] < 1e-4 and len(found["seconds"]) == gpu.REPEATS
        assert found["not_done"] == ["no CUDA device: tiny shapes, no FLOP share"]
    assert {"pyarrow", "prime-pydantic-config", *STAGES} <= set(closure(*STAGES)) < set(closure("agent-arena[train]"))


@pytest.mark.prove
def test_every_part_has_a_result_and_one_that_was_stopped_is_run_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    places = [f"--out={tmp_path / 'out'}", f"--work={tmp_path / 'work'}"]
    with monkeypatch.context() as patch:
        patch.setattr(gpu, "LIMIT_S", 1)
        assert gpu.main([*places, "agree"]) == 1
    assert "over 1 s" in (tmp_path / "out" / "agree.json").read_text("utf-8")
    assert gpu.main(places) == 0
    assert {path.stem for path in (tmp_path / "out").iterdir()} == set(gpu.PARTS)
    assert max(path.stat().st_size for path in (tmp_path / "out").iterdir()) < 10_000
