"""What a recipe passes on to the engine changes what runs, and SIGTERM ends a run without losing a step."""

from __future__ import annotations

import signal
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
import trl.trainer.utils

from foundation.errors import ArenaError
from tests.training.stage_runs import Bandit, ending, lines_of, run_grpo, run_kto, run_sft, short_rows
from tests.training.stock import Stock
from training.models.render import Qwen3Codec
from training.recipe import Recipe
from training.rollouts.rollout import EpisodeLine, Job
from training.run import CHECKPOINT, Outcome, PreemptionError, RunFolder, RunLineage, Versions, newest_checkpoint
from training.stages import engine, sft
from training.stages.engine import Watch

Run = Callable[[Path], Outcome]
SLOW: dict[str, Any] = {"r": 4, "dropout": 0.2, "accumulation": 2, "every": 50}


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The trainers of the runs of a test."""
    found: list[Any] = []
    real = engine.run_trainer
    monkeypatch.setattr(
        sft, "run_trainer", lambda trainer, *given, **named: found.append(trainer) or real(trainer, *given, **named)
    )
    return found


def test_a_run_reports_to_tensorboard_what_it_logs(model: Path, tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    done = run_sft(model, tmp_path / "run", more='[engine]\nreport_to = ["tensorboard"]\n')
    read = EventAccumulator(str(tmp_path / "run" / "tensorboard" / "log"))
    read.Reload()
    told = [(event.step, event.value) for event in read.Scalars("train/loss")]
    assert told == [(step, pytest.approx(loss)) for step, loss in enumerate(done.losses, 1)]


def test_attention_is_the_recipe_s(model: Path, tmp_path: Path, trained: list[Any]) -> None:
    asked = {name: f'[engine]\nattn_implementation = "{name}"\n' for name in ("sdpa", "eager", "flash_attention_2")}
    runs = [run_sft(model, tmp_path / name, more=asked[name]) for name in ("sdpa", "eager")]
    assert [trainer.model.config._attn_implementation for trainer in trained] == ["sdpa", "eager"]
    assert runs[1].losses == pytest.approx(runs[0].losses, rel=1e-4)
    with pytest.raises(ArenaError, match=r"V2124.*attn_implementation"):
        run_sft(model, tmp_path / "flash", more=asked["flash_attention_2"])


def test_learnt_tokens_alone_have_logits(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scored: list[int] = []
    real = trl.trainer.utils._ChunkedLogProbFunction.apply
    head = SimpleNamespace(apply=lambda hidden, *rest: scored.append(len(hidden)) or real(hidden, *rest))
    monkeypatch.setattr(trl.trainer.utils, "_ChunkedLogProbFunction", head)
    learnt = [sum(row.mask) for row in short_rows(Qwen3Codec(model))]
    alone = run_sft(model, tmp_path / "alone", steps=1, batch=12, dev=2)
    assert (sorted(scored[:12]), scored[12:]) == (sorted(learnt), learnt[:2])
    for module in (engine, sft):
        monkeypatch.setattr(module, "scoring_what_is_learnt", nullcontext)
    whole = run_sft(model, tmp_path / "whole", steps=1, batch=12, dev=2)
    assert min(scored[14:]) > max(learnt)
    assert [whole.losses[0], whole.metrics["dev_loss"]] == pytest.approx([alone.losses[0], alone.metrics["dev_loss"]])


def test_a_model_is_compiled_on_demand(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr("torch.compile", lambda model, **named: asked.append(named["backend"]) or model)
    monkeypatch.setenv("ACCELERATE_DYNAMO_BACKEND", "no")  # the engine sets it, and leaves it behind
    run_sft(model, tmp_path / "plain", steps=1)
    assert not asked
    run_sft(model, tmp_path / "compiled", steps=1, more="[engine]\ntorch_compile = true\n")
    assert set(asked) == {"inductor"}


def test_adam_keeps_8_bits_on_demand(model: Path, tmp_path: Path, trained: list[Any]) -> None:
    import bitsandbytes

    run_sft(model, tmp_path / "run", steps=2, more='[engine]\noptim = "paged_adamw_8bit"\n')
    adam = trained[0].optimizer.optimizer
    assert isinstance(adam, bitsandbytes.optim.AdamW) and (adam.is_paged, adam.args.optim_bits) == (True, 8)


def test_checkpoints_go_to_the_hub_on_demand_alone(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import transformers.trainer

    asked: list[dict[str, Any]] = []

    def sent(*_: Any, **named: Any) -> Any:
        asked.append(named)
        job: Future[None] = Future()
        job.set_result(None)
        job.repo_id = "me/mine"  # type: ignore[attr-defined]
        return job

    hub = SimpleNamespace(create_repo=sent, upload_folder=sent)
    monkeypatch.setattr(transformers.trainer, "hf_api", lambda: hub)
    run_sft(model, tmp_path / "quiet")
    assert not asked
    run_sft(model, tmp_path / "loud", more='[engine]\npush_to_hub = "me/mine"\n')
    assert asked[0]["private"] and {named["repo_id"] for named in asked[1:]} == {"me/mine"}


def test_where_a_run_reports_is_no_part_of_its_hash_and_may_change_before_it_goes_on(tmp_path: Path) -> None:
    def sha256_of(more: str) -> str:
        recipe = msgspec.toml.decode(f'name = "x"\nstage = "sft"\nmodel = "m"\n{more}', type=Recipe)
        RunFolder(tmp_path / str("eager" in more), recipe)  # not refused
        versions = Versions(code_commit="", packages={}, device="")
        named = dict.fromkeys(("parent_sha256", "codec_sha256", "partition_sha256", "weights_sha256"), "")
        return RunLineage(recipe=recipe, versions=versions, steps=1, **named).sha256

    plain, eager, told = sha256_of(""), '[engine]\nattn_implementation = "eager"\n', 'report_to = ["wandb"]\n'
    assert plain == sha256_of(f'[engine]\n{told}push_to_hub = "me/mine"\n') != sha256_of(eager)
    assert sha256_of(eager) == sha256_of(eager + told)
    assert (plain[:12], sha256_of(eager)[:12]) == ("39d58e6c0a89", "94567e93a67d")  # as ever


def require_whole(run: Run, terminated: Run, tmp_path: Path, step: int) -> Outcome:
    """`terminated` ends in this step with it on disk; then `run` goes on to what it comes to when nothing ends it."""
    whole, out = run(tmp_path / "whole"), tmp_path / "ended"
    with pytest.raises(PreemptionError, match=r"V2125.*ended by SIGTERM"):
        terminated(out)
    assert newest_checkpoint(out / "trainer") == str(out / "trainer" / f"checkpoint-{step}")
    assert run(out) == whole
    for key in ("loss", "emission_rate"):
        told = [[(line["step"], line[key]) for line in lines_of(at) if key in line] for at in (out, tmp_path / "whole")]
        assert told[0] == told[1]
    weights = [(at / CHECKPOINT / "adapter_model.safetensors").read_bytes() for at in (out, tmp_path / "whole")]
    assert weights[0] == weights[1]
    return whole


@pytest.mark.parametrize("event", ["on_substep_end", "on_step_end"])
def test_sigterm_loses_no_step_of_sft_with_dropout(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, event: str
) -> None:
    def terminated(out: Path) -> Outcome:
        monkeypatch.setattr(Watch, event, ending(event, 3))
        return run_sft(model, out, **SLOW)

    require_whole(lambda out: run_sft(model, out, **SLOW), terminated, tmp_path, 3)


@pytest.mark.parametrize("step", [2, 6])  # 6 is the last
def test_sigterm_while_kto_samples_loses_no_step_and_no_look_at_it(model: Path, tmp_path: Path, step: int) -> None:
    def ended(policy: Any) -> float:
        signal.raise_signal(signal.SIGTERM)
        raise PreemptionError("V2125", "a sampler that heeds it")

    rates = iter((1.0,) * (step // 2) + (ended,))
    require_whole(
        lambda out: run_kto(model, out, lambda policy: 1.0, every=50, steps=6),
        lambda out: run_kto(
            model, out, lambda policy: found(policy) if callable(found := next(rates)) else found, every=50, steps=6
        ),
        tmp_path,
        step,
    )


def test_sigterm_while_grpo_samples_between_two_renewals_loses_no_step_and_no_count(
    stock: Stock, tmp_path: Path
) -> None:
    class Ended(Bandit):
        def __call__(self, jobs: Sequence[Job], sampler: Any) -> list[EpisodeLine]:
            if len(self.modes) == 3:  # in the fourth step, with the behaviour policy of the third
                signal.raise_signal(signal.SIGTERM)
            return super().__call__(jobs, sampler)

    def run(kind: type[Bandit], out: Path) -> Outcome:
        return run_grpo(stock.folder, out, kind(stock.codec, is_losing=True), steps=5, refresh=2, every=50)

    done = require_whole(lambda out: run(Bandit, out), lambda out: run(Ended, out), tmp_path, 3)
    assert done.steps == 5 and done.dropped == {"not one sequence": 5}
