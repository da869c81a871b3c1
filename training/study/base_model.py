"""The study's base model: built from a seed, and taught the language of episodes before any stage.

A model of a few million parameters with random weights knows no words, so it is pre-trained from scratch, and
every table says so. It learns drills, then transcripts of the random tool-caller
on the `train` problems, every token of them: the tools' form, product texts, quoting, and no policy. None of the corpus
is in it. So what the stages add is policy.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import msgspec

from foundation.canonical import content_hash
from training.model import Decode, RunLineage, TokenRow
from training.models.opening import copy_tokenizer, device_name
from training.models.render import Qwen3Codec
from training.models.tiny_model import TinyShape, build_tiny_model
from training.recipe import parse_recipe
from training.rollouts.episode_file import EpisodeFile, EpisodeLine
from training.rollouts.rollout import jobs_of
from training.rollouts.token_rows import rows_of_traces
from training.run_context import RunContext
from training.stages.engine import quiet_engine
from training.stages.run import CHECKPOINT, RunFolder
from training.stages.sft import Save, train_sft
from training.stages.teacher import trace_of
from training.study.market import PROBLEMS, TRAIN
from training.study.plan import BaseRules, StudyPlan
from training.study.policies import RANDOM, RandomCaller

START, DRILLS, TRANSCRIPTS = "start", "drills", "transcripts.jsonl"
PERIODS = (4, 24)  # tokens until a drill repeats itself, fewest and most
_RECIPE = """# The base model of a study: {what}.
name = "base"
stage = "sft"
model = "{model}"
seed = {seed}

[data]
problems = "{problems}"
tokens_max = {tokens_max}

[lora]
r = 0

[optim]
lr = {lr}
epochs = {epochs}
batch_rows = {batch_rows}
accumulation = {accumulation}
is_bf16 = false
schedule = "{schedule}"
is_checkpointing = false
save_every_steps = 100
"""


def build_base(
    plan: StudyPlan, base: BaseRules, tokenizer: Path, folder: Path, market_dir: Path, bench: RunContext
) -> RunLineage:
    """Build and pre-train a base of the plan in `folder`; a finished one is returned, a killed one goes on."""
    quiet_engine()
    start = folder / START
    if not (start / "tokenizer_config.json").exists():  # copied last
        shape = TinyShape(
            hidden=base.hidden,
            layers=base.layers,
            heads=base.heads,
            kv_heads=base.kv_heads,
            head_dim=base.head_dim,
            context=base.context,
            spread=base.spread,
            is_mimetic=base.is_mimetic,
        )
        build_tiny_model(tokenizer, start, shape, plan.seed)
    text = _RECIPE.format(
        what="every token of the random tool-caller's transcripts",
        model=_drilled(base, plan.seed, tokenizer, start, folder / DRILLS, bench),
        seed=plan.seed,
        problems=market_dir / PROBLEMS / TRAIN,
        tokens_max=base.tokens_max,
        lr=base.lr,
        epochs=base.epochs,
        batch_rows=base.batch_rows,
        accumulation=base.accumulation,
        schedule="cosine",
    )
    recipe = parse_recipe(text, "base")
    run = RunFolder(folder, recipe, text, bench.progress)
    done = run.finished()
    if done is not None:
        return done
    codec = Qwen3Codec(tokenizer)
    shown = [
        msgspec.structs.replace(line, tools="[]") if place % base.tools_every else line
        for place, line in enumerate(_transcripts(plan, base.transcripts, folder / TRANSCRIPTS, bench))
    ]
    traces = {trace.trace_id: trace for trace in map(trace_of, shown)}
    rows = rows_of_traces(list(traces.values()), codec, recipe)
    whole = [  # every token to learn but the first, which nothing predicts
        msgspec.structs.replace(row, mask=(0, *(1,) * (len(row.token_ids) - 1))) for row in rows.rows
    ]
    trained = train_sft(recipe, run, whole, (), codec.tokenizer.pad_token_id, save=_saver(tokenizer))
    return run.finish(
        parent_sha256=trained.parent_sha256,
        corpus_sha256s=(content_hash(sorted(traces)),),
        codec_sha256=codec.identity_sha256,
        partition_sha256=bench.partition_sha256,
        code_commit=bench.code_commit,
        device=device_name(),
        steps=trained.steps,
        metrics={"rows": float(len(whole)), "loss_first": trained.losses[0], "loss_last": trained.losses[-1]},
        dropped=rows.dropped,
        stopped_by=trained.stopped_by,
    )


def _drilled(rules: BaseRules, seed: int, tokenizer: Path, start: Path, folder: Path, bench: RunContext) -> Path:
    """Train the random weights on drills; the folder of what comes of it, `start` itself for a base without drills."""
    if not rules.drill_rows:
        return start
    text = _RECIPE.format(
        what="drills",
        model=start,
        seed=seed,
        problems="",
        tokens_max=rules.drill_tokens,
        lr=rules.drill_lr,
        epochs=1.0,
        batch_rows=rules.drill_batch_rows,
        accumulation=1,
        schedule="constant",
    )
    recipe = parse_recipe(text, "drills")
    run = RunFolder(folder, recipe, text, bench.progress)
    if run.finished() is None:
        codec = Qwen3Codec(tokenizer)
        rows = drill_rows(rules.drill_rows, rules.drill_tokens, codec.tokenizer.vocab_size, seed)
        trained = train_sft(recipe, run, rows, (), codec.tokenizer.pad_token_id, save=_saver(tokenizer))
        run.finish(
            parent_sha256=trained.parent_sha256,
            corpus_sha256s=(),
            codec_sha256=codec.identity_sha256,
            partition_sha256=bench.partition_sha256,
            code_commit=bench.code_commit,
            device=device_name(),
            steps=trained.steps,
            metrics={"rows": float(len(rows)), "loss_first": trained.losses[0], "loss_last": trained.losses[-1]},
            dropped={},
            stopped_by=trained.stopped_by,
        )
    return folder / CHECKPOINT


def drill_rows(count: int, length: int, tokens: int, seed: int) -> list[TokenRow]:
    """`count` rows of `length` random ids below `tokens`; what repeats is to be learnt, what is drawn is not.

    No word, request or result follows another more often than chance has it, so nothing of a policy or of the market
    is learnt from them. What can be learnt is that a sequence which was seen goes on as it did; a small model
    otherwise spends most of its budget on finding that out.
    """
    dice = random.Random(f"drills {seed}")
    rows = []
    for number in range(count):
        period = dice.randint(*PERIODS)
        drawn = dice.choices(range(tokens), k=period)
        ids = (drawn * (length // period + 1))[:length]
        mask = tuple(int(place > period) for place in range(length))  # the first repeated token is still a surprise
        rows.append(TokenRow(trace_id=f"drill-{number}", token_ids=tuple(ids), mask=mask, prompt_length=period + 1))
    return rows


def _transcripts(plan: StudyPlan, each: int, path: Path, bench: RunContext) -> tuple[EpisodeLine, ...]:
    """The random tool-caller's episodes, `each` on every train problem; those in the file are not run again."""
    file = EpisodeFile(path)
    jobs = jobs_of(bench.problems, each, plan.seed)
    bench.require_train(jobs)
    decode = Decode(temperature=0.0, turns_max=plan.turns_max)
    missing = file.missing(jobs)
    for number, job in enumerate(missing, len(jobs) - len(missing) + 1):
        file.add(bench.ask(job, RandomCaller(job.seed), RANDOM, decode))
        if bench.progress:
            bench.progress("transcripts", number, len(jobs))
    return file.lines()


def _saver(tokenizer: Path) -> Save:
    def save(model: Any, folder: Path, /, **state_dict: Any) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        model.save_pretrained(str(folder), **state_dict)
        copy_tokenizer(tokenizer, folder)

    return save
