"""The export to prime-rl's sample form: what comes back is what was sampled, what is left out is counted."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner, Result

from foundation.errors import ArenaError
from neurons.cli.training.rollouts import app
from tests.training.rollouts import make_rollout
from training.model import Rollout
from training.rollouts.episode_file import EpisodeFile, EpisodeLine
from training.rollouts.prime_rl import export_episodes
from training.rollouts.rewards import reward_of, token_advantages

GROUP = (
    make_rollout([None, ("find_product", "{}")], reward=1.0, problem_id="b"),
    make_rollout([None], reward=0.25, problem_id="b", sample=1),
)
LEVEL = make_rollout([None], reward=0.0, problem_id="a")
LOST = make_rollout([None], reward=None, problem_id="b", sample=2)


def line(rollout: Rollout, *, has_tokens: bool = True) -> EpisodeLine:
    return EpisodeLine(
        result=rollout.result, query="q", messages=(), tools="[]", rollout=rollout if has_tokens else None
    )


LINES = (*(line(one) for one in (*GROUP, LEVEL, LOST)), line(make_rollout([], reward=1.0, sample=9), has_tokens=False))


class TrainingAdvantage(msgspec.Struct, array_like=True):
    """As prime-rl's `transport/types.py` has it."""

    loss: str
    values: list[float]
    mask: list[bool]


class TrainingSample(msgspec.Struct, array_like=True, omit_defaults=True):
    """As prime-rl's `transport/types.py` has it, less what only images and mixtures of experts need."""

    token_ids: list[int]
    mask: list[bool]
    logprobs: list[float]
    temperatures: list[float]
    env_name: str
    advantages: list[TrainingAdvantage]
    reward: float | None = None


RECIPE = 'name = "r"\nstage = "rejection"\nmodel = "m"\nparent = "p"\n[decode]\ntemperature = 0.7\n'


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A folder as a rejection stage leaves it."""
    folder = tmp_path / "run"
    file = EpisodeFile(folder / "episodes.jsonl")
    for one in LINES:
        file.add(one)
    (folder / "recipe.toml").write_text(RECIPE, "utf-8")
    return folder


def export(run: Path, out: Path, *more: str, code: int = 0) -> Result:
    result = CliRunner().invoke(app, [str(run), "--out", str(out), *more], catch_exceptions=False)
    assert result.exit_code == code, result.output
    return result


def test_an_export_reads_back_as_the_tokens_that_were_sampled(run: Path, tmp_path: Path) -> None:
    out = tmp_path / "new" / "samples.jsonl"
    counts = json.loads(export(run, out, "--json").stdout)
    assert counts == {"samples": 3, "groups": 2, "level_groups": 1, "left_out": {"no reward": 1, "no tokens": 1}}
    found = [msgspec.json.decode(one, type=TrainingSample) for one in out.read_bytes().splitlines()]
    assert list(out.parent.iterdir()) == [out]
    rewards = [reward_of(one, {}, 0.0) for one in GROUP]
    wanted = [[0.0] * len(LEVEL.mask), *token_advantages(GROUP, rewards)]
    for sample, rollout, advantages in zip(found, (LEVEL, *GROUP), wanted, strict=True):
        before = len(rollout.prompt_ids)
        assert sample.token_ids == [*rollout.prompt_ids, *rollout.completion_ids]
        assert sample.mask == [False] * before + [bool(bit) for bit in rollout.mask]
        assert sample.logprobs == [0.0] * before + list(rollout.logprobs)
        assert sample.temperatures == [0.7] * len(sample.token_ids)
        (advantage,) = sample.advantages
        assert (advantage.loss, advantage.mask) == ("rl", sample.mask)
        assert advantage.values == [0.0] * before + advantages
        assert sample.reward == rollout.result.reward and sample.env_name == "agent-arena"
    assert any(found[1].advantages[0].values) and not any(found[0].advantages[0].values)


def test_every_episode_is_a_sample_or_counted_with_its_reason() -> None:
    for taken in (LINES, LINES[:2], LINES[3:], ()):
        found = export_episodes(taken, 0.7)
        assert len(found.lines) + sum(found.left_out.values()) == len(taken)


def test_a_file_that_exists_is_never_overwritten(run: Path, tmp_path: Path) -> None:
    out = tmp_path / "samples.jsonl"
    out.write_text("mine", "utf-8")
    assert "exists" in export(run, out, code=2).output
    assert out.read_text("utf-8") == "mine"


def test_what_was_left_out_is_shown_and_an_empty_export_writes_nothing(run: Path, tmp_path: Path) -> None:
    shown = export(run, tmp_path / "samples.jsonl").stdout
    assert "3 samples of 2 problems" in shown and "left out, no tokens" in shown and "left out, no reward" in shown
    bare = tmp_path / "teacher"
    EpisodeFile(bare / "episodes.jsonl").add(line(make_rollout([], reward=1.0), has_tokens=False))
    (bare / "recipe.toml").write_text(RECIPE, "utf-8")
    counts = json.loads(export(bare, tmp_path / "none.jsonl", "--json", code=1).stdout)
    assert counts["samples"] == 0 and counts["left_out"] == {"no tokens": 1}
    assert not (tmp_path / "none.jsonl").exists()


def test_only_the_folder_of_a_stage_is_exported(tmp_path: Path) -> None:
    """An evaluation's episodes lie in no such folder: their problems are held out."""
    EpisodeFile(tmp_path / "episodes.jsonl").add(line(LEVEL))
    with pytest.raises(ArenaError, match=r"V2124.*holds no recipe\.toml"):
        export(tmp_path, tmp_path / "samples.jsonl")
    (tmp_path / "recipe.toml").write_text("", "utf-8")
    (tmp_path / "episodes.jsonl").unlink()
    with pytest.raises(ArenaError, match=r"V2124.*holds no episodes\.jsonl"):
        export(tmp_path, tmp_path / "samples.jsonl")
