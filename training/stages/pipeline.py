"""Running a stage: from a recipe and a workbench to a checkpoint with its lineage. The one entry of all five.

Stages form a graph by their parents: sft -> rejection -> teacher, then kto and grpo each from teacher; beyond
the paper sft may go on from sft, and teacher and grpo begin there. A run that is finished is returned; a killed one
goes on. A guard that fires leaves a checkpoint that says so.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from foundation.canonical import content_hash, file_sha256, text_hash
from foundation.errors import ArenaError
from harness.inference.port import Upstream
from training.corpus.building import read_lineage, read_rows
from training.corpus.model import CorpusPool, Trace, TraceFacts, TraceSource, assemble_trace
from training.guards import emission_rate, require_context, require_exact_masks, require_train_pool
from training.model import Decode, Sampler, TokenRow, TrainingStage, TurnSample, UnfitRowError
from training.models.opening import find_device, open_parent, placed
from training.models.render import Qwen3Codec, mask_defect, masked_runs, run_defect
from training.recipe import Recipe
from training.rollouts.rewards import Step
from training.rollouts.rollout import EPISODES, EpisodeFile, EpisodeLine, Job, RunJobs, jobs_of
from training.run import (
    LINEAGE,
    Outcome,
    RunFolder,
    RunLineage,
    launched,
    open_checkpoint,
    require_shareable,
    weights_sha256,
)
from training.run_context import RunContext
from training.samplers.in_process import sampler_of
from training.samplers.vllm import outside_sampler
from training.stages.engine import quiet_engine
from training.stages.sft import train_sft


class TokenRows(msgspec.Struct, frozen=True, kw_only=True):
    """Token rows, and what was left out, by reason."""

    rows: tuple[TokenRow, ...]
    dropped: dict[str, int]


def rows_of_traces(traces: Sequence[Trace], codec: Qwen3Codec, recipe: Recipe) -> TokenRows:
    """Render traces. Raises GuardStopError when too many masks are inexact."""
    rows: list[TokenRow] = []
    defects: list[str] = []
    unfit = 0
    for trace in traces:
        try:
            row = codec.row(trace.trace_id, trace.messages, trace.tools, recipe.data.tokens_max)
        except UnfitRowError:
            unfit += 1
            continue
        defect = mask_defect(row, trace.messages, codec)
        if defect:
            defects.append(f"{trace.trace_id[:12]}: {defect}")
        else:
            rows.append(replace(row, bucket=trace.facts.bucket, is_wanted=trace.facts.is_success is not False))
    require_exact_masks(len(rows) + len(defects), defects, recipe.guards)
    return TokenRows(rows=tuple(rows), dropped={"unfit": unfit, "mask": len(defects)})


def rows_of_episodes(lines: Sequence[EpisodeLine], codec: Qwen3Codec, recipe: Recipe) -> TokenRows:
    """The rows of scored episodes: the tokens that were sampled, or rendered where an endpoint gave none, each trace
    once. Raises GuardStopError when too many masks are inexact."""
    traces = {trace.trace_id: trace for trace in map(trace_of, (line for line in lines if line.rollout is None))}
    rendered = rows_of_traces(list(traces.values()), codec, recipe)
    rows: list[TokenRow] = []
    sampled = [(line.result, line.rollout) for line in lines if line.rollout is not None]
    dropped = Counter(rendered.dropped) + Counter(repeated=len(lines) - len(sampled) - len(traces))
    wrong: list[str] = []
    for result, rollout in sampled:
        token_ids = rollout.prompt_ids + rollout.completion_ids
        own = list(itertools.compress(rollout.completion_ids, rollout.mask))
        if len(token_ids) > recipe.data.tokens_max:
            dropped["unfit"] += 1
        elif not own or run_defect(own, codec):
            wrong.append("a turn holds the template's tokens")
        else:
            rows.append(
                TokenRow(
                    trace_id=text_hash(f"{result.body_sha256}/{result.sample}"),
                    token_ids=token_ids,
                    mask=(0,) * len(rollout.prompt_ids) + rollout.mask,
                    prompt_length=len(rollout.prompt_ids),
                    bucket=result.bucket,
                    is_wanted=bool(result.is_success),
                )
            )
    require_exact_masks(len(sampled), wrong, recipe.guards)
    dropped["mask"] += len(wrong)
    return TokenRows(rows=(*rows, *rendered.rows), dropped=dict(dropped))


def by_step(rows: TokenRows) -> TokenRows:
    """One row an assistant turn: everything before it as prompt, that turn alone to learn (paper B.4)."""
    steps: list[TokenRow] = []
    for row in rows.rows:
        last = 0
        for number, run in enumerate(masked_runs(row.token_ids, row.mask)):
            first = row.mask.index(1, last)
            last = first + len(run)
            mask = (0,) * first + (1,) * len(run)
            step = replace(row, token_ids=row.token_ids[:last], mask=mask, prompt_length=first)
            steps.append(replace(step, trace_id=f"{row.trace_id}/{number}"))
    return TokenRows(rows=tuple(steps), dropped=rows.dropped)


def blend(corpus: TokenRows, rollouts: TokenRows, *, corpus_share_e4: int, voucher_times: int, seed: int) -> TokenRows:
    """Rows of both parts, so many ten-thousandths of them the corpus', each of a voucher several times, shuffled by the
    seed: the largest mix of these shares, to within one row; none where a part has none (paper B.3 and B.4)."""

    def lot(purpose: str, name: str) -> bytes:
        return hashlib.sha256(f"{seed} {purpose} {name}".encode()).digest()

    def copies(part: str, rows: Sequence[TokenRow]) -> list[tuple[str, TokenRow]]:
        """Every copy of every row with its name, in the order in which they are drawn."""
        named = [
            (f"{part} {row.trace_id}/{place} {copy}", row)
            for place, row in enumerate(rows)
            for copy in range(voucher_times if row.bucket == "voucher" else 1)
        ]
        return sorted(named, key=lambda one: lot("draw", one[0]))

    first, second = copies("corpus", corpus.rows), copies("rollouts", rollouts.rows)
    shares = ((first, corpus_share_e4), (second, 10_000 - corpus_share_e4))
    total = min(len(part) * 10_000 // share for part, share in shares if share)
    count = total * corpus_share_e4 // 10_000
    taken = sorted([*first[:count], *second[: total - count]], key=lambda one: lot("order", one[0]))
    dropped = dict(Counter(corpus.dropped) + Counter(rollouts.dropped))
    return TokenRows(rows=tuple(row for _, row in taken), dropped=dropped)


def trace_of(line: EpisodeLine) -> Trace:
    """An episode as a canonical trace."""
    result = line.result
    place = f"{result.problem_id}/{result.sample}"
    return assemble_trace(
        TraceSource(kind="arena", place=place, sha256=result.body_sha256, is_verified=True),
        line.messages,
        tools=line.tools,
        query=line.query,
        facts=TraceFacts(problem_id=result.problem_id, bucket=result.bucket, is_success=result.is_success),
    )


def reference_steps(lines: Sequence[EpisodeLine]) -> dict[str, tuple[Step, ...]]:
    """Of every problem the teacher solved, the calls of each of its turns: what tool match compares with."""
    return {
        line.result.problem_id: tuple(
            tuple((call.name, call.arguments) for call in message.calls)
            for message in line.messages
            if message.role == "assistant"
        )
        for line in lines
        if line.result.is_success
    }


def keep_successes(lines: Sequence[EpisodeLine], codec: Qwen3Codec, recipe: Recipe) -> TokenRows:
    """Rows of the episodes with full reward.

    Raises ArenaError V2124 when there is none to learn from, GuardStopError when too many masks are inexact or too many
    conversations outgrew the context.
    """
    require_context(sum(line.result.is_overflow for line in lines), len(lines))
    kept = [line for line in lines if line.result.reward == 1.0]
    rows = rows_of_episodes(kept, codec, recipe)
    if not rows.rows:
        best = max((line.result.reward or 0.0 for line in lines), default=0.0)
        raise ArenaError(
            "V2124",
            f"none of {len(lines)} episodes can be learnt from: {len(kept)} have full reward, the best has {best:.2f}, "
            f"{rows.dropped.get('unfit', 0)} are over {recipe.data.tokens_max} tokens; train the parent further, or "
            "raise `samples`",
        )
    return rows


PARENTS: dict[TrainingStage, tuple[TrainingStage | None, ...]] = {
    "sft": (None, "sft"),  # from itself: the control of a stage that takes more compute
    "rejection": ("sft",),
    "teacher": ("rejection", "sft"),
    "kto": ("teacher",),
    "grpo": ("teacher", "sft"),  # the paper's starts from teacher
}

OpenTeacher = Callable[[Recipe], Upstream]


def run_stage(
    recipe: Recipe,
    folder: Path,
    bench: RunContext,
    *,
    open_teacher: OpenTeacher,
    run_jobs: RunJobs | None = None,
    environment: Mapping[str, str] = os.environ,
) -> RunLineage:
    """Run `recipe` in `folder`; a finished run is returned as it is.

    `run_jobs` runs a rejection's or a teacher's episodes, None: this process does; `environment` names the processes of
    a launcher, which all come here with the same. Raises ArenaError V2124 for a parent of another stage, a folder of
    another recipe, nothing to learn from, or a stage that several processes can't run; V2120 where they can't share out
    its steps; V2120 where nothing says what is held out; V2166 when the run was begun from another parent than stands
    there now; GuardStopError when a guard fired before anything was trained, a problem that shares a leak cluster with
    a held-out one among them.
    """
    processes = launched(environment)
    require_shareable(recipe, processes)
    parent_sha256 = require_parent(recipe)
    bench.require_split()
    is_finished, partition_sha256 = (folder / LINEAGE).exists(), ""
    if not is_finished:
        bench.require_known()
        data = recipe.data
        taken: tuple[tuple[CorpusPool, tuple[str, ...]], ...] = (("train", data.corpus), ("dev", data.dev))
        corpora = [(name, pool, read_lineage(Path(name))) for pool, names in taken for name in names]
        partition_sha256 = bench.partition_in_use(corpora)
    run = RunFolder(folder, recipe, bench.progress, processes)
    done = run.finished()
    if done is None or recipe.parent:
        run.pin_parent(parent_sha256 or weights_sha256(Path(recipe.model)))
    if done is not None:
        return done
    quiet_engine()
    codec = Qwen3Codec(Path(recipe.tokenizer or recipe.model))
    stage = _StageRun(recipe=recipe, run=run, bench=bench, codec=codec, open_teacher=open_teacher, run_jobs=run_jobs)
    named = (recipe.data.problems, recipe.data.dev_problems)
    return run.finish(
        stage.train(),
        codec_sha256=codec.identity_sha256,
        partition_sha256=partition_sha256,
        code_commit=bench.code_commit,
        device=find_device().name,
        corpus_sha256s=tuple(content_hash(read_lineage(Path(name))) for name in recipe.data.corpus),
        dev_sha256s=tuple(content_hash(read_lineage(Path(name))) for name in recipe.data.dev),
        problem_files={Path(name).name: file_sha256(Path(name)) for name in named if name},
    )


def require_parent(recipe: Recipe) -> str:
    """What the run starts from: the lineage hash of its parent checkpoint, "" for the base model.

    Raises ArenaError V2124 when the parent is not of a stage this one starts from, V2166 when its weights were changed.
    """
    allowed = PARENTS[recipe.stage]
    parent = open_checkpoint(Path(recipe.parent)) if recipe.parent else None
    stage = parent.recipe.stage if parent else None
    if stage not in allowed:
        wanted = " or ".join(str(name) if name else "the base model" for name in allowed)
        raise ArenaError("V2124", f"{recipe.stage} starts from {wanted}, not from {stage or 'the base model'}")
    return parent.sha256 if parent else ""


class _HeedingSampler:
    """`inner`, which begins no turn once SIGTERM has come: a step's episodes may take longer than a machine waits."""

    def __init__(self, inner: Sampler, run: RunFolder) -> None:
        self._inner, self._run = inner, run

    @property
    def version(self) -> str:
        """Of the weights, which a server may have changed meanwhile."""
        return self._inner.version

    def sample(self, prompt_ids: tuple[int, ...], decode: Decode, seed: int) -> TurnSample:
        """One turn. Raises PreemptionError, and what the sampler raises."""
        self._run.require_time()
        return self._inner.sample(prompt_ids, decode, seed)


@dataclass(frozen=True, kw_only=True)
class _StageRun:
    """One run of one stage."""

    recipe: Recipe
    run: RunFolder
    bench: RunContext
    codec: Qwen3Codec
    open_teacher: OpenTeacher
    run_jobs: RunJobs | None

    def train(self) -> Outcome:
        """Make what the stage learns, and learn it."""
        match self.recipe.stage:
            case "sft":
                return self._sft(self._corpus(self.recipe.data.corpus))
            case "rejection":
                successes = keep_successes(self._made(), self.codec, self.recipe)
                return self._sft(self._blended(successes))
            case "teacher":
                lines = self._teacher_lines()
                solved = [trace_of(line) for line in lines if line.result.is_success]
                rows = by_step(rows_of_traces(solved, self.codec, self.recipe))
                if not rows.rows:
                    raise ArenaError(
                        "V2124", f"none of the teacher's {len(lines)} episodes succeeded: nothing to learn from"
                    )
                return self._sft(self._blended(rows))
            case "kto":
                return self._kto()
            case "grpo":
                return self._grpo()

    # -- rows
    def _corpus(self, folders: Sequence[str], pool: CorpusPool = "train") -> TokenRows:
        traces = [row.trace for name in folders for row in read_rows(Path(name))]
        self.bench.require_clean(traces, pool)
        return rows_of_traces(traces, self.codec, self.recipe)

    def _blended(self, rows: TokenRows) -> TokenRows:
        """With the corpus in the recipe's shares; alone where the recipe names no corpus."""
        data = self.recipe.data
        share_e4 = round(10_000 * (1 - data.rollout_share)) if data.corpus else 0
        corpus = self._corpus(data.corpus)
        if share_e4 and not corpus.rows:
            raise ArenaError("V2124", f"no row of {', '.join(data.corpus)} can be learnt from: {corpus.dropped}")
        times, seed = data.voucher_times, self.recipe.seed
        return blend(corpus, rows, corpus_share_e4=share_e4, voucher_times=times, seed=seed)

    def _made(self) -> tuple[EpisodeLine, ...]:
        """The run's own episodes, of the recipe's teacher or sampler, else of its parent: made by the first process,
        read by all when they are whole. Raises GuardStopError for a problem outside the train pool."""
        path, recipe = self.run.path / EPISODES, self.recipe
        phase, samples = ("sample", recipe.samples) if recipe.stage == "rejection" else ("teacher", 1)

        def collect() -> None:
            jobs, report = jobs_of(self.bench.problems, samples, recipe.seed), self.run.progress
            require_train_pool((job.problem.problem_id for job in jobs), self.bench.train_ids)
            run = self.run_jobs or self._runner()
            EpisodeFile(path).collect(jobs, run, report and functools.partial(report, phase))

        self.run.processes.by_first(collect)
        return EpisodeFile(path).lines()

    def _runner(self) -> RunJobs:
        """What runs episodes in this process."""
        recipe = self.recipe
        decoding: dict[str, Any] = {"decode": recipe.decode, "parallel": recipe.parallel}
        if recipe.stage == "teacher" or recipe.teacher:
            decoding |= {"upstream": self.open_teacher(recipe), "model": recipe.teacher_model}
            return functools.partial(self.bench.ask_all, **decoding)
        sampler: Sampler | None = outside_sampler(recipe, self.codec)
        if sampler is None:
            model, version = open_parent(recipe)
            sampler = sampler_of(placed(model), self.codec, version, recipe.sample_rows)
        return functools.partial(self.bench.sample, sampler=sampler, codec=self.codec, **decoding)

    def _teacher_lines(self) -> tuple[EpisodeLine, ...]:
        """The teacher's episodes: those of the folders the recipe names, else asked for here.

        Raises ArenaError V2124 for a folder without any: silence would train on fewer, or on none.
        """
        named = self.recipe.data.rollouts
        if named:
            bare = [name for name in named if not (Path(name) / EPISODES).exists()]
            if bare:
                raise ArenaError("V2124", f"{bare[0]} of data.rollouts holds no {EPISODES}: name a run that sampled")
            lines = tuple(line for name in named for line in EpisodeFile(Path(name) / EPISODES).lines())
            require_train_pool((line.result.problem_id for line in lines), self.bench.train_ids)
            return lines
        return self._made()

    # -- training
    def _sft(self, rows: TokenRows) -> Outcome:
        dev = self._corpus(self.recipe.data.dev, "dev")
        pad_id = self.codec.tokenizer.pad_token_id
        done = train_sft(self.recipe, self.run, rows.rows, dev.rows, pad_id)
        return replace(done, dropped=rows.dropped)

    def _kto(self) -> Outcome:
        from training.stages.kto import train_kto

        lines = self._teacher_lines()
        scored = [line for line in lines if line.result.is_success is not None]
        rows = rows_of_episodes(scored, self.codec, self.recipe)
        jobs = jobs_of(self.bench.dev, 1, self.recipe.seed)

        def emission(model: Any) -> float:
            sampler = _HeedingSampler(sampler_of(model, self.codec, "dev", self.recipe.sample_rows), self.run)
            lines = self.bench.sample(jobs, sampler, self.codec, self.recipe.decode, self.recipe.parallel)
            return emission_rate([line.result for line in lines])

        tokenizer, watched = self.codec.tokenizer, emission if jobs else None
        done = train_kto(self.recipe, self.run, rows.rows, tokenizer, watched)
        return replace(done, dropped=rows.dropped | done.dropped | {"unscored": len(lines) - len(scored)})

    def _grpo(self) -> Outcome:
        from training.stages.grpo import GrpoPorts, train_grpo

        recipe = self.recipe
        teachers = reference_steps(self._teacher_lines()) if recipe.grpo.tool_weight else {}

        def run_jobs(jobs: Sequence[Job], sampler: Sampler) -> list[EpisodeLine]:
            require_train_pool((job.problem.problem_id for job in jobs), self.bench.train_ids)
            heeding = _HeedingSampler(sampler, self.run)
            return list(self.bench.sample(jobs, heeding, self.codec, recipe.decode, recipe.parallel))

        ports = GrpoPorts(
            problems=self.bench.problems,
            codec=self.codec,
            run_jobs=run_jobs,
            teachers=teachers,
            server=outside_sampler(recipe, self.codec),
        )
        return train_grpo(recipe, self.run, ports)
