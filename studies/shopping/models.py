"""The study's base model, and how its policies are measured.

A model of a few million parameters with random weights knows no words. It learns drills, then transcripts of the random
tool-caller on the `train` problems, every token of them: the tools' form, product texts, quoting, and no policy.
Checkpoints and controls are examined under the same conditions on the same frozen sets.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import msgspec
from msgspec.structs import replace

from foundation.canonical import content_hash
from foundation.durable_files import write_whole
from harness.inference.scripted.model import ScriptedUpstream
from problems.model import Problem
from studies.shopping.market import PROBLEMS, RANDOM, TRAIN, RandomCaller
from studies.shopping.plan import SCRIPTED, SET_NAMES, DecodeRules, SetKey, StudyPlan
from training.evaluation.model_loader import open_candidate
from training.evaluation.report import EvaluationPlan, episodes_path, examine, name_set
from training.model import Decode, TokenRow
from training.models.opening import find_device
from training.models.render import Qwen3Codec
from training.models.tiny_model import TinyShape, build_tiny_model
from training.recipe import DataRules, LoraRules, OptimRules, Recipe
from training.rollouts.rollout import EpisodeFile, EpisodeLine, Job, RunJobs, jobs_of
from training.run import CHECKPOINT, RunFolder
from training.run_context import RunContext
from training.stages.engine import quiet_engine
from training.stages.pipeline import rows_of_traces, trace_of
from training.stages.sft import train_sft

PERIODS = (4, 24)  # tokens until a drill repeats itself, fewest and most
_NAME = re.compile(r"[^\w@~-]+")


def build_base(plan: StudyPlan, folder: Path, study: Path, bench: RunContext) -> None:
    """Build and pre-train the base in `folder`; a finished one is left, a killed one goes on."""
    quiet_engine()
    base = plan.base
    start, tokenizer = folder / "start", study / "tokenizer"
    if not (start / "tokenizer_config.json").exists():  # copied last
        names = ("hidden", "layers", "heads", "kv_heads", "head_dim", "context", "spread", "is_mimetic")
        build_tiny_model(tokenizer, start, TinyShape(**{name: getattr(base, name) for name in names}), plan.seed)
    codec = Qwen3Codec(tokenizer)
    drills = drill_rows(base.drill_rows, base.drill_tokens, codec.tokenizer.vocab_size, plan.seed)
    plain = Recipe(
        name="base",
        stage="sft",
        model=str(start),
        seed=plan.seed,
        data=DataRules(tokens_max=base.drill_tokens),
        lora=LoraRules(r=0),
        optim=OptimRules(
            lr=base.drill_lr,
            batch_rows=base.drill_batch_rows,
            accumulation=1,
            is_bf16=False,
            schedule="constant",
            is_checkpointing=False,
            save_every_steps=100,
        ),
    )
    _pretrain(plain, folder / "drills", lambda: drills, (), codec, bench)
    file = EpisodeFile(folder / "transcripts.jsonl")
    jobs = jobs_of(bench.problems, base.transcripts, plan.seed)
    decode = Decode(temperature=0.0, turns_max=plan.turns_max)
    file.collect(jobs, lambda missing: (bench.ask(job, RandomCaller(job.seed), RANDOM, decode) for job in missing))
    shown = (replace(line, tools="[]") if place % base.tools_every else line for place, line in enumerate(file.lines()))
    traces = {trace.trace_id: trace for trace in map(trace_of, shown)}
    recipe = replace(
        plain,
        model=str(folder / "drills" / CHECKPOINT),
        data=DataRules(problems=str(study / "market" / PROBLEMS / TRAIN), tokens_max=base.tokens_max),
        optim=replace(
            plain.optim,
            lr=base.lr,
            epochs=base.epochs,
            batch_rows=base.batch_rows,
            accumulation=base.accumulation,
            schedule="cosine",
        ),
    )

    def whole() -> list[TokenRow]:  # every token to learn but the first, which nothing predicts
        rows = rows_of_traces(list(traces.values()), codec, recipe).rows
        return [replace(row, mask=(0, *(1,) * (len(row.token_ids) - 1))) for row in rows]

    _pretrain(recipe, folder, whole, (content_hash(sorted(traces)),), codec, bench)


def _pretrain(
    recipe: Recipe,
    folder: Path,
    make_rows: Callable[[], list[TokenRow]],
    corpora: tuple[str, ...],
    codec: Qwen3Codec,
    bench: RunContext,
) -> None:
    """Train all weights on rows of our own, as a run of the stage sft."""
    run = RunFolder(folder, recipe, bench.progress)
    if run.finished() is not None:
        return
    trained = train_sft(recipe, run, make_rows(), (), codec.tokenizer.pad_token_id)
    run.finish(
        trained,
        codec_sha256=codec.identity_sha256,
        partition_sha256=bench.partition_sha256,
        code_commit=bench.code_commit,
        device=find_device().name,
        corpus_sha256s=corpora,
    )


def drill_rows(count: int, length: int, tokens: int, seed: int) -> list[TokenRow]:
    """`count` rows of `length` random ids below `tokens`; what repeats is to be learnt, what is drawn is not.

    Nothing of a policy or of the market is learnt from them, but that a sequence which was seen goes on as it did; a
    small model otherwise spends most of its budget on finding that out.
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


class Measurement(msgspec.Struct, frozen=True, kw_only=True):
    """One row on one set. `run` is the folder of a checkpoint, None for a control, which its label names."""

    label: str
    run: Path | None
    set: SetKey
    decode: DecodeRules

    @property
    def name(self) -> str:
        """Of its report's file."""
        return "-".join(map(file_name, (self.label, self.set, self.decode.name)))


def file_name(label: str) -> str:
    """A label as part of a file's name."""
    return _NAME.sub("_", label)


def measure(one: Measurement, problems: Sequence[Problem], plan: StudyPlan, study: Path, bench: RunContext) -> None:
    """Run what is missing, and write the report to `study`/reports/NAME.json.

    Raises GuardStopError for a checkpoint that learnt from the set, ArenaError V2124 when no episode was scored.
    """
    examination = EvaluationPlan(
        label=one.label,
        set=name_set(SET_NAMES[one.set], problems),
        decode=Decode(
            temperature=one.decode.temperature,
            top_p=one.decode.top_p,
            turn_tokens_max=plan.turn_tokens_max,
            turns_max=plan.turns_max,
            context_tokens_max=plan.base.context,
        ),
        samples=one.decode.samples,
        seeds=one.decode.seeds,
        parallel=plan.parallel,
    )
    path = study / "reports" / f"{one.name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    lineage_sha256, weights, contamination = "", "", "a control: it learns nothing"
    if one.run is not None:
        found = open_candidate(one.run, problems, sample_rows=plan.parallel)
        lineage_sha256, weights, contamination = found.version, found.weights_sha256, found.contamination
        decode, parallel = examination.decode, plan.parallel
        run: RunJobs = partial(bench.sample, sampler=found.sampler, codec=found.codec, decode=decode, parallel=parallel)
    else:

        def ask(job: Job) -> EpisodeLine:
            upstream = ScriptedUpstream() if one.label in SCRIPTED else RandomCaller(job.seed)
            return bench.ask(job, upstream, SCRIPTED.get(one.label, RANDOM), examination.decode)

        run = partial(map, ask)
    report = examine(
        examination,
        problems,
        EpisodeFile(episodes_path(path)),
        run,
        bench,
        lineage_sha256=lineage_sha256,
        contamination=contamination,
        weights_sha256=weights,
    )
    write_whole(path, msgspec.json.encode(report))
