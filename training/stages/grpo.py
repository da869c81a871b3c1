"""Dr. GRPO over whole episodes; all tokens of an episode, or of a turn, share its advantage (paper section 6, B.6).

Rollouts are the arena's own episodes; what was sampled is what is scored, token by token. The behaviour policy
is the parent, frozen as in the paper, or renewed every so many steps (`refresh_every_steps`), and the importance ratio
is taken against the logprobs it sampled with. Nothing is divided by a group's spread. A fault of ours is an unscorable
rollout, never a zero; a conversation that was not one sequence, or whose mask is wrong, is left out and counted.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import random
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import torch
from trl.trainer.grpo_config import GRPOConfig
from trl.trainer.grpo_trainer import GRPOTrainer

from foundation.durable_files import move_into_place
from foundation.errors import ArenaError
from problems.model import Problem
from training.guards import GuardStopError, require_context, require_exact_masks, require_mixed, require_same_policy
from training.model import Rollout, Sampler
from training.models.opening import lora_config, open_parent
from training.models.render import Qwen3Codec, run_defect
from training.recipe import Recipe
from training.rollouts.rewards import Reward, Step, mixed_share, reward_of, token_advantages
from training.rollouts.rollout import EpisodeLine, Job, jobs_of
from training.run import Outcome, RunFolder, newest_checkpoint
from training.samplers.in_process import eval_mode, sampler_of
from training.samplers.vllm import VllmSampler
from training.stages.engine import Watch, engine_arguments, run_trainer, save_model

# names in the log, of each step
_SAMPLED, _ALONE, _DROPPED, _MIXED = "rollouts", "rollouts/without_teacher", "rollouts/dropped: ", "groups/mixed"
_MASK = f"{_DROPPED}mask"
_BEHAVIOUR = "behaviour.pt"  # in a checkpoint


class GrpoPorts(msgspec.Struct, frozen=True, kw_only=True):
    """What the stage samples with. `run_jobs` gives an episode for each job, in order.

    `server` samples in the place of the model itself; it serves the parent.
    """

    problems: tuple[Problem, ...]
    codec: Any  # Qwen3Codec with `tokenizer` and `stop_id`
    run_jobs: Callable[[Sequence[Job], Sampler], Sequence[EpisodeLine]]
    teachers: Mapping[str, tuple[Step, ...]] = {}  # teacher trajectories by problem id
    server: VllmSampler | None = None


def train_grpo(recipe: Recipe, folder: RunFolder, ports: GrpoPorts) -> Outcome:
    """Train the parent on rollouts of `ports.problems`. Raises ArenaError V2124 without problems."""
    if not ports.problems:
        raise ArenaError("V2124", "no problem to sample on")
    from datasets import Dataset

    model, parent_sha256 = open_parent(recipe)
    rules = recipe.grpo
    watch = GrpoWatch(folder)
    arguments = engine_arguments(recipe, folder.engine, lr=recipe.optim.lr)
    batches = rules.problems_per_step * rules.samples // recipe.optim.batch_rows
    arguments["gradient_accumulation_steps"] = batches // folder.processes.count
    arguments |= {"num_train_epochs": 1, "max_steps": -1}  # the rows are the run
    config = GRPOConfig(
        **arguments,
        num_generations=rules.samples,
        max_completion_length=rules.completion_tokens_max,
        temperature=recipe.decode.temperature,
        top_p=1.0,  # the trainer's distribution; the sampler's own top_p is the recipe's
        beta=rules.beta,
        epsilon=0.2,
        num_iterations=1,
        loss_type="dr_grpo",
        scale_rewards="none",
        importance_sampling_level="token",
        use_bias_correction_kl=True,
        disable_dropout=True,
        mask_truncated_completions=False,
        shuffle_dataset=False,  # rows are in the order of the run
        remove_unused_columns=False,
        log_completions=False,
    )
    trainer = _TurnTrainer(
        model=model,
        args=config,
        train_dataset=Dataset.from_list([{"prompt": name} for name in problem_order(recipe, ports.problems)]),
        processing_class=ports.codec.tokenizer,
        reward_funcs=_reward_column,
        rollout_func=lambda prompts, trainer: trainer.sample(prompts),
        peft_config=lora_config(recipe.lora),
        callbacks=[watch],
    )
    if trainer.ref_model is not None:
        # All weights are trained: the engine took the base model's folder for the parent, whose adapters it can't see.
        trainer.accelerator.unwrap_model(trainer.ref_model).load_state_dict(model.state_dict())
    trainer.prepare(recipe, ports, parent_sha256, watch)
    done = run_trainer(trainer, watch, folder.engine, parent_sha256)
    save_model(trainer, folder)
    told = sum((Counter(line) for line in watch.counted()), Counter[str]())  # before a kill too
    dropped = {name.removeprefix(_DROPPED): int(told[name]) for name in told if name.startswith(_DROPPED)}
    metrics = {"without_teacher": float(told[_ALONE])} | _ends(trainer.state.log_history)
    return msgspec.structs.replace(done, metrics=metrics, dropped=dropped)


def problem_order(recipe: Recipe, problems: Sequence[Problem]) -> list[str]:
    """Ids of the problems of all steps, `problems_per_step` each: pass after pass over them, each shuffled by the seed.

    The engine would shuffle each pass as it comes to it, and a resumed run would begin with the first pass again.
    """
    size = recipe.grpo.problems_per_step
    steps = recipe.optim.steps_max or math.ceil(recipe.optim.epochs * len(problems) / size)
    names, order = sorted(problem.problem_id for problem in problems), list[str]()
    while len(order) < steps * size:
        order += random.Random(f"{recipe.seed} {len(order)}").sample(names, len(names))
    return order[: steps * size]


class GrpoWatch(Watch):
    """Also logs what became of the rollouts of each step."""

    def __init__(self, folder: RunFolder) -> None:
        super().__init__(folder)
        self.step: dict[str, float] = {}  # of the step that is not logged yet

    def counted(self) -> list[dict[str, float]]:
        """The lines of all steps of the run so far in which rollouts were counted, its resumptions together."""
        logged = [line for line in self.folder.lines() if _SAMPLED in line]
        return [*logged, self.step] if self.step else logged

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **rest: Any) -> Any:
        """As for every stage, with the counts."""
        control = super().on_log(args, state, control, (logs or {}) | self.step, **rest)
        self.step = {}
        return control


class Behaviour:
    """The policy that samples: the trained weights as they were when last renewed."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self.renew()

    def renew(self) -> None:
        """From now on the policy that samples is the one that is trained, as it is now."""
        self.kept = {name: weight.detach().clone() for name, weight in self._trained()}

    @contextlib.contextmanager
    def in_place(self) -> Iterator[None]:
        """The model holds the behaviour policy's weights inside, and its own again afterwards."""
        own = {name: weight.detach().clone() for name, weight in self._trained()}
        self._load(self.kept)
        try:
            yield
        finally:
            self._load(own)

    def _trained(self) -> Iterator[tuple[str, torch.Tensor]]:
        return ((name, weight) for name, weight in self._model.named_parameters() if weight.requires_grad)

    @torch.no_grad()
    def _load(self, weights: Mapping[str, torch.Tensor]) -> None:
        for name, weight in self._trained():
            weight.copy_(weights[name])


class _TurnTrainer(GRPOTrainer):  # type: ignore[misc]
    """TRL's GRPO with rollouts of the arena, advantages for each token, and the behaviour policy's own logprobs."""

    def prepare(self, recipe: Recipe, ports: GrpoPorts, version: str, watch: GrpoWatch) -> None:
        """What the run samples with, and where it counts; to be called before `train`."""
        self._recipe, self._ports, self._version, self._watch = recipe, ports, version, watch
        self._processes = watch.folder.processes
        self._behaviour = Behaviour(self.model) if ports.server is None else None  # else the server's
        self._renewed_at = 0
        self._batch: list[tuple[Rollout, Reward]] = []  # of all processes
        resumed = newest_checkpoint(watch.folder.engine, self._processes)
        if resumed and (kept := Path(resumed) / _BEHAVIOUR).exists():
            told = torch.load(kept, map_location="cpu", weights_only=True)
            self._renewed_at = told["renewed_at"]
            if self._behaviour:
                self._behaviour.kept = told["weights"]

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        """With the behaviour policy, which a run that is resumed between two renewals samples with."""
        if self._renewed_at and self._processes.is_first:
            kept = Path(self.args.output_dir) / f"checkpoint-{self.state.global_step}" / _BEHAVIOUR
            kept.parent.mkdir(parents=True, exist_ok=True)
            weights = self._behaviour.kept if self._behaviour else {}
            torch.save({"renewed_at": self._renewed_at, "weights": weights}, kept)
        super()._save_checkpoint(model, trial)

    def sample(self, prompts: Sequence[str]) -> dict[str, list[Any]]:
        """A rollout for each prompt (problem ids, each repeated for its group): the first process samples for all."""
        step, every = self.state.global_step, self._recipe.grpo.refresh_every_steps
        if every and step - self._renewed_at >= every:
            self._renewed_at = step
            self._renew()
        asked = [name for part in self._processes.gather(list(prompts)) for name in part]
        self._batch = self._processes.by_first(lambda: self._rollouts(asked, step))
        first = self._processes.index * len(prompts)
        own = self._batch[first : first + len(prompts)]
        return {
            "prompt_ids": [list(rollout.prompt_ids) for rollout, _ in own],
            "completion_ids": [list(rollout.completion_ids) for rollout, _ in own],
            "logprobs": [list(rollout.logprobs) for rollout, _ in own],
            "env_mask": [list(rollout.mask) for rollout, _ in own],
            "reward": [reward.value for _, reward in own],
        }

    def _rollouts(self, asked: Sequence[str], step: int) -> list[tuple[Rollout, Reward]]:
        """Sample, count, and ask the guards."""
        model = self.accelerator.unwrap_model(self.model)
        problems = {problem.problem_id: problem for problem in self._ports.problems}
        count, jobs, seed = Counter[str](), list[Job](), self._recipe.seed + 1_000_003 * step
        for problem_id in asked:
            count[problem_id] += 1
            jobs.append(jobs_of([problems[problem_id]], count[problem_id], seed)[-1])
        with self._behaviour.in_place() if self._behaviour else contextlib.nullcontext(), eval_mode(model):
            found = self._ports.run_jobs(jobs, self._sampler(model))
        self._watch.folder.require_time()  # episodes that SIGTERM cut short are no rollouts
        self._watch.step = {_SAMPLED: float(len(found)), _ALONE: 0.0}
        kept = [self._kept(line) for line in found]
        self._watch.step[_MIXED] = mixed_share([reward for _, reward in kept], self._recipe.grpo.samples)
        steps = self._watch.counted()
        wrong = ["a turn holds the template's tokens"] * int(sum(step.get(_MASK, 0) for step in steps))
        require_exact_masks(int(sum(step[_SAMPLED] for step in steps)), wrong, self._recipe.guards)
        require_mixed([step[_MIXED] for step in steps], self._recipe.guards)
        limit = self._recipe.grpo.completion_tokens_max
        full = sum(
            line.rollout is not None and (line.result.is_overflow or len(line.rollout.completion_ids) > limit)
            for line in found
        )
        require_context(full, len(found))
        if not any(any(rollout.mask) for rollout, _ in kept):
            raise GuardStopError("nothing to learn", f"all {len(found)} rollouts of a step: {self._watch.step}")
        return kept

    def _renew(self) -> None:
        """From now on the policy that samples is the one that is trained, as it is now."""
        if self._behaviour:
            self._behaviour.renew()
            return
        whole = self.accelerator.get_state_dict(self.model)  # all processes give their parts
        adapter = self._adapter()

        def write() -> None:
            draft = adapter.with_suffix(".draft")  # a kill in here must not leave half an adapter to be served
            for left in (draft, adapter):  # the latter of a run that a kill threw back
                shutil.rmtree(left, ignore_errors=True)
            self.accelerator.unwrap_model(self.model).save_pretrained(str(draft), state_dict=whole)
            move_into_place(draft, adapter)

        self._processes.by_first(write)

    def _adapter(self) -> Path:
        return Path(self.args.output_dir) / f"behaviour-{self._renewed_at}"

    def _sampler(self, model: Any) -> Sampler:
        """The behaviour policy: the model, which holds its weights now, or the server with its adapter."""
        server, codec = self._ports.server, self._ports.codec
        if server is None:
            version = f"{self._version[:12]}-{self._renewed_at}"
            return sampler_of(model, codec, version, self._recipe.sample_rows)
        if self._renewed_at:  # until then it is the parent, which is served
            server.load_adapter(self._adapter())
        return server

    def _kept(self, line: EpisodeLine) -> tuple[Rollout, Reward]:
        """The rollout and its reward, or a stand-in that teaches nothing where it can't be learnt from."""
        rollout = line.rollout
        defect = _defect(rollout, self._ports.codec, self._recipe.grpo.completion_tokens_max)
        if rollout is None or defect:
            self._watch.step[f"{_DROPPED}{defect}"] = self._watch.step.get(f"{_DROPPED}{defect}", 0) + 1
            stop = self._ports.codec.stop_id
            nothing = Rollout(prompt_ids=(stop,), completion_ids=(stop,), mask=(0,), logprobs=(0.0,), turns=())
            return nothing, Reward(value=None, outcome=None, tool_match=None)
        rules = self._recipe.grpo
        reward = reward_of(rollout, line.result, self._ports.teachers, rules.tool_weight)
        if rules.tool_weight and reward.tool_match is None:
            self._watch.step[_ALONE] += 1
        return rollout, reward

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        output: dict[str, Any] = super()._generate_and_score_completions(inputs)
        size = self._recipe.grpo.samples
        advantages = torch.zeros(output["completion_ids"].shape, device=output["completion_ids"].device)
        weight = self._recipe.grpo.tool_weight if self._recipe.grpo.is_blended_per_turn else 0.0
        rows: list[Sequence[float]] = []
        for start in range(0, len(self._batch), size):  # groups may be split among processes
            group = self._batch[start : start + size]
            rows += token_advantages([one for one, _ in group], [reward for _, reward in group], turn_weight=weight)
        first = self._processes.index * len(advantages)
        for place, row in enumerate(rows[first : first + len(advantages)]):
            advantages[place, : len(row)] = torch.tensor(row)
        output["advantages"] = advantages
        # Without a vLLM server TRL ignores what the sampler says, and every ratio would be 1.
        output["old_per_token_logps"] = output["sampling_per_token_logps"]
        self._gaps: list[torch.Tensor] = []  # of sampled tokens, batch by batch
        return output

    def _get_per_token_logps_and_entropies(
        self, model: Any, ids: torch.Tensor, seen: torch.Tensor, keep: int, batch_size: Any = None, **named: Any
    ) -> Any:
        """The engine's, row by row: (rows, keep) each, 0 where nothing stands. Padding, as long as the longest of a
        step's rollouts, would cost more than all rows have tokens."""
        found: list[Any] = []
        for row, mask in zip(ids, seen.bool(), strict=True):
            places = mask.nonzero()[:, 0].tolist()
            last = max(places[-1] + 1, len(row) - keep + 1)
            part = slice(places[0], last)
            kept = last - (len(row) - keep)
            found.append(
                super()._get_per_token_logps_and_entropies(
                    model, row[None, part], mask[None, part].long(), kept, **named
                )
            )
        logps, entropies, losses = zip(*found, strict=True)
        whole = torch.cat([_widened(one, keep) for one in logps])
        self._scored = whole.detach()
        return (
            whole,
            None if entropies[0] is None else torch.cat([_widened(one, keep) for one in entropies]),
            None if losses[0] is None else torch.stack(losses).mean(),
        )

    def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> Any:
        """The engine's loss, and in the log the importance ratio it was taken with: 1 on policy."""
        loss = super()._compute_loss(model, inputs)
        mask = (inputs["completion_mask"] * inputs["tool_mask"]).bool()
        gaps = (self._scored - inputs["old_per_token_logps"])[mask]
        if (ratio := self._mean_of_all(torch.exp(gaps))) is not None:
            self._metrics["train"]["importance_ratio"].append(ratio)
        self._gaps.append(gaps.abs())
        # The first step, and each that begins with a renewed policy: all is scored, and no update has moved it yet.
        if self.state.global_step == self._renewed_at and len(self._gaps) == self.args.steps_per_generation:
            gap = self._mean_of_all(torch.cat(self._gaps)) or 0.0
            self._metrics["train"]["logprob_gap"].append(gap)
            require_same_policy(gap, self._recipe.guards)
        return loss

    def _mean_of_all(self, values: torch.Tensor) -> float | None:
        """Over the values of all processes."""
        total, count = self.accelerator.reduce(torch.stack([values.sum(), values.new_tensor(len(values))])).tolist()
        return float(total / count) if count else None


def _widened(row: torch.Tensor, width: int) -> torch.Tensor:
    """(1, tokens) with zeros behind it, (1, width)."""
    return torch.nn.functional.pad(row, (0, width - row.shape[-1]))


def _ends(history: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Reward, KL and importance ratio in the first and the last step that logged them."""
    found: dict[str, float] = {}
    for name in ("reward", "kl", "importance_ratio"):
        values = [float(line[name]) for line in history if name in line]
        if values:
            found |= {f"{name}_first": values[0], f"{name}_last": values[-1]}
    return found


def _defect(rollout: Rollout | None, codec: Qwen3Codec, tokens_max: int) -> str:
    """Why a rollout can't be learnt from, "" when it can."""
    if rollout is None:
        return "not one sequence"
    if len(rollout.completion_ids) > tokens_max:
        return "too long"
    return "mask" if run_defect([*itertools.compress(rollout.completion_ids, rollout.mask)], codec) else ""


def _reward_column(prompts: Any, completions: Any, reward: list[float | None], **rest: Any) -> list[float | None]:
    """What TRL logs as the reward; the advantages are ours."""
    return reward
