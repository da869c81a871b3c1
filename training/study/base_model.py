"""The study's base model: built from a seed, and taught the language of episodes before any stage.

Promise: a model of a few million parameters with random weights knows no words, so it is pre-trained from scratch, and
every table says so. It learns transcripts of the random tool-caller on the `train` problems, every token of them: the
tools' form, product texts, how ids look, and no policy. None of the corpus is in it. So what the stages add is policy.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from problems.canonical import content_hash
from training.episode_file import EpisodeFile, EpisodeLine
from training.model import Decode, RunLineage, TokenRow
from training.models import copy_tokenizer, device_name
from training.recipe import parse_recipe
from training.render import Qwen3Codec
from training.rollout import jobs_of
from training.stages.run import RunFolder, weights_sha256
from training.stages.sft import train_sft
from training.stages.teacher import trace_of
from training.study.market import PROBLEMS, TRAIN
from training.study.plan import Plan
from training.study.policies import RANDOM, RandomCaller
from training.tiny_model import TinyShape, build_tiny_model
from training.token_rows import rows_of_traces
from training.workbench import Workbench

START, TRANSCRIPTS = "start", "transcripts.jsonl"
_RECIPE = """# The base model of a study: every token of the random tool-caller's transcripts.
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
is_checkpointing = false
save_every_steps = 20
"""


def build_base(plan: Plan, tokenizer: Path, folder: Path, market_dir: Path, bench: Workbench) -> RunLineage:
    """Build and pre-train the base in `folder`; a finished one is returned, a killed one goes on."""
    start = folder / START
    if not (start / "tokenizer_config.json").exists():  # copied last
        shape = TinyShape(hidden=plan.base.hidden, layers=plan.base.layers, context=plan.base.context)
        build_tiny_model(tokenizer, start, shape, plan.seed)
    text = _recipe_text(plan, start, market_dir / PROBLEMS / TRAIN)
    recipe = parse_recipe(text, "base")
    run = RunFolder(folder, recipe, text)
    done = run.finished()
    if done is not None:
        return done
    codec = Qwen3Codec(tokenizer)
    lines = _transcripts(plan, folder / TRANSCRIPTS, bench)
    traces = {trace.trace_id: trace for trace in map(trace_of, lines)}
    rows = rows_of_traces(list(traces.values()), codec, recipe)
    whole = [_learnt_whole(row) for row in rows.rows]
    trained = train_sft(recipe, run, whole, (), codec.tokenizer.pad_token_id, save=_saver(tokenizer))
    return run.finish(
        parent_sha256=weights_sha256(start),
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


def _recipe_text(plan: Plan, start: Path, problems: Path) -> str:
    base = plan.base
    return _RECIPE.format(
        model=start,
        seed=plan.seed,
        problems=problems,
        tokens_max=base.tokens_max,
        lr=base.lr,
        epochs=base.epochs,
        batch_rows=base.batch_rows,
        accumulation=base.accumulation,
    )


def _transcripts(plan: Plan, path: Path, bench: Workbench) -> tuple[EpisodeLine, ...]:
    """The random tool-caller's episodes on the train problems; those that stand in the file are not run again."""
    file = EpisodeFile(path)
    jobs = jobs_of(bench.problems, plan.base.transcripts, plan.seed)
    bench.require_train(jobs)
    decode = Decode(temperature=0.0, turns_max=plan.turns_max)
    missing = file.missing(jobs)
    for number, job in enumerate(missing, len(jobs) - len(missing) + 1):
        file.add(bench.ask(job, RandomCaller(job.seed), RANDOM, decode))
        if bench.progress:
            bench.progress("transcripts", number, len(jobs))
    return file.lines()


def _learnt_whole(row: TokenRow) -> TokenRow:
    """The same row with every token to learn but the first, which nothing predicts."""
    return msgspec.structs.replace(row, mask=(0, *(1,) * (len(row.token_ids) - 1)))


def _saver(tokenizer: Path) -> Callable[[Any, Path], None]:
    def save(model: Any, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        model.save_pretrained(str(folder))
        copy_tokenizer(tokenizer, folder)

    return save
