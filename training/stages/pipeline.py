"""Running a stage: from a recipe and a workbench to a checkpoint with its lineage. The one entry of all five.

Stages form a graph by their parents: sft -> rejection -> teacher, then kto and grpo each from teacher; beyond
the paper sft may go on from sft, and teacher and grpo begin there. A run that is finished is returned; a killed one
goes on. A guard that fires leaves a checkpoint that says so.
"""

from __future__ import annotations

import contextlib
import functools
import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from foundation.canonical import content_hash, file_sha256, text_hash
from foundation.errors import ArenaError
from harness.inference.port import Upstream
from training.corpus.building import Mix, MixRow, mix
from training.corpus.corpus_files import read_lineage, read_rows
from training.corpus.model import CorpusPool, Trace, TraceFacts, TraceSource, assemble_trace
from training.guards import emission_rate, require_context, require_exact_masks, require_train_pool
from training.model import Rollout, Sampler, Stage, TokenRow, UnfitRowError
from training.models.opening import find_device, open_parent, placed
from training.models.render import Qwen3Codec, mask_defect, masked_runs, run_defect
from training.recipe import Recipe
from training.rollouts.rewards import Step
from training.rollouts.rollout import EPISODES, EpisodeFile, EpisodeLine, Job, RunJobs, collect, jobs_of
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
from training.samplers.in_process import LocalSampler
from training.samplers.vllm import VllmSampler, outside_sampler
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
            rows.append(replace(row, bucket=trace.facts.bucket))
    require_exact_masks(len(rows) + len(defects), defects, recipe.guards)
    return TokenRows(rows=tuple(rows), dropped={"unfit": unfit, "mask": len(defects)})


def rows_of_rollouts(rollouts: Sequence[Rollout], codec: Qwen3Codec, recipe: Recipe) -> TokenRows:
    """The tokens of rollouts as rows. Raises GuardStopError when too many masks are inexact."""
    rows: list[TokenRow] = []
    dropped: Counter[str] = Counter()
    for rollout in rollouts:
        length = len(rollout.prompt_ids) + len(rollout.completion_ids)
        runs = masked_runs(rollout.completion_ids, rollout.mask)
        if length > recipe.data.tokens_max:
            dropped["unfit"] += 1
        elif not runs or any(run_defect(run, codec) for run in runs):
            dropped["mask"] += 1
        else:
            rows.append(
                TokenRow(
                    trace_id=rollout_id(rollout),
                    token_ids=rollout.prompt_ids + rollout.completion_ids,
                    mask=(0,) * len(rollout.prompt_ids) + rollout.mask,
                    prompt_length=len(rollout.prompt_ids),
                    bucket=rollout.result.bucket,
                )
            )
    require_exact_masks(len(rollouts), ["a turn holds the template's tokens"] * dropped["mask"], recipe.guards)
    return TokenRows(rows=tuple(rows), dropped=dict(dropped))


def rollout_id(rollout: Rollout) -> str:
    """Identity of a rollout's row: its recorded episode, and which sample of its problem it is."""
    return text_hash(f"{rollout.result.body_sha256}/{rollout.result.sample}")


def by_step(rows: TokenRows) -> TokenRows:
    """One row an assistant turn: everything before it as prompt, that turn alone to learn (paper B.4)."""
    steps: list[TokenRow] = []
    for row in rows.rows:
        last = 0
        for number, run in enumerate(masked_runs(row.token_ids, row.mask)):
            first = row.mask.index(1, last)
            last = first + len(run)
            steps.append(
                TokenRow(
                    trace_id=f"{row.trace_id}/{number}",
                    token_ids=row.token_ids[:last],
                    mask=(0,) * first + (1,) * len(run),
                    prompt_length=first,
                    bucket=row.bucket,
                )
            )
    return TokenRows(rows=tuple(steps), dropped=rows.dropped)


def blend(corpus: TokenRows, rollouts: TokenRows, recipe: Mix) -> TokenRows:
    """Rows of both parts in the recipe's shares and order (`training.corpus.building`; paper B.3 and B.4).

    Raises ValueError when a part that is to have a share has no rows.
    """
    first, second = (
        [MixRow(key=f"{row.trace_id}/{place}", bucket=row.bucket) for place, row in enumerate(part.rows)]
        for part in (corpus, rollouts)
    )
    parts = {True: corpus.rows, False: rollouts.rows}
    return TokenRows(
        rows=tuple(parts[one.is_corpus][one.index] for one in mix(first, second, recipe)),
        dropped=dict(Counter(corpus.dropped) + Counter(rollouts.dropped)),
    )


def make_episodes(recipe: Recipe, file: EpisodeFile, run: RunJobs, bench: RunContext) -> None:
    """A rejection's samples of each problem, else one episode a problem, by `run`; those in the file are not run again.

    Raises GuardStopError for a problem outside the train pool, ArenaError U3001..U3004 when the teacher is away.
    """
    phase, samples = ("sample", recipe.samples) if recipe.stage == "rejection" else ("teacher", 1)
    jobs = jobs_of(bench.problems, samples, recipe.seed)
    bench.require_train(jobs)
    report = bench.progress
    collect(jobs, file, run, None if report is None else lambda done, of: report(phase, done, of))


def stepwise_rows(lines: Sequence[EpisodeLine], codec: Qwen3Codec, recipe: Recipe) -> TokenRows:
    """One row a step of every full success. Raises GuardStopError when too many masks are inexact."""
    return by_step(rows_of_traces([trace_of(line) for line in lines if line.result.is_success], codec, recipe))


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
    """Rows of the rollouts with full reward.

    Raises ArenaError V2124 when there is none to learn from, GuardStopError when too many masks are inexact or too many
    conversations outgrew the context.
    """
    require_context(sum(line.result.is_overflow for line in lines), len(lines))
    kept = [line.rollout for line in lines if line.rollout is not None and line.result.reward == 1.0]
    rows = rows_of_rollouts(kept, codec, recipe)
    if not rows.rows:
        best = max((line.result.reward or 0.0 for line in lines), default=0.0)
        raise ArenaError(
            "V2124",
            f"none of {len(lines)} rollouts can be learnt from: {len(kept)} have full reward, the best has {best:.2f}, "
            f"{rows.dropped.get('unfit', 0)} are over {recipe.data.tokens_max} tokens; train the parent further, or "
            "raise `samples`",
        )
    return rows


PARENTS: dict[Stage, tuple[Stage | None, ...]] = {
    "sft": (None, "sft"),  # from itself: the control of a stage that takes more compute
    "rejection": ("sft",),
    "teacher": ("rejection", "sft"),
    "kto": ("teacher",),
    "grpo": ("teacher", "sft"),  # the paper's starts from teacher
}

OpenTeacher = Callable[[Recipe], AbstractContextManager[Upstream]]


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
    stage = _StageRun(recipe, run, bench, codec, open_teacher, run_jobs)
    outcome = stage.train()
    named = {
        Path(name).name: file_sha256(Path(name)) for name in (recipe.data.problems, recipe.data.dev_problems) if name
    }
    return run.finish(
        outcome,
        codec_sha256=codec.identity_sha256,
        partition_sha256=partition_sha256,
        code_commit=bench.code_commit,
        device=find_device().name,
        corpus_sha256s=tuple(content_hash(read_lineage(Path(name))) for name in recipe.data.corpus),
        dev_sha256s=tuple(content_hash(read_lineage(Path(name))) for name in recipe.data.dev),
        problem_files=named,  # what it sampled on or was watched on
    )


def require_parent(recipe: Recipe) -> str:
    """What the run starts from: the lineage hash of its parent checkpoint, "" for the base model.

    Raises ArenaError V2124 when the parent is not of a stage this one starts from, V2166 when its weights were changed.
    """
    allowed = PARENTS[recipe.stage]
    parent = open_checkpoint(Path(recipe.parent)) if recipe.parent else None
    stage = parent.stage if parent else None
    if stage not in allowed:
        wanted = " or ".join(str(name) if name else "the base model" for name in allowed)
        raise ArenaError("V2124", f"{recipe.stage} starts from {wanted}, not from {stage or 'the base model'}")
    return parent.sha256 if parent else ""


class _StageRun:
    """One run of one stage."""

    def __init__(
        self,
        recipe: Recipe,
        run: RunFolder,
        bench: RunContext,
        codec: Qwen3Codec,
        open_teacher: OpenTeacher,
        run_jobs: RunJobs | None,
    ) -> None:
        self._recipe, self._run, self._bench, self._codec = recipe, run, bench, codec
        self._open_teacher, self._run_jobs = open_teacher, run_jobs

    def train(self) -> Outcome:
        """Make what the stage learns, and learn it."""
        match self._recipe.stage:
            case "sft":
                return self._sft(self._corpus(self._recipe.data.corpus))
            case "rejection":
                successes = keep_successes(self._made(), self._codec, self._recipe)
                return self._sft(self._blended(successes))
            case "teacher":
                lines = self._teacher_lines()
                rows = stepwise_rows(lines, self._codec, self._recipe)
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
        self._bench.require_clean(traces, pool)
        return rows_of_traces(traces, self._codec, self._recipe)

    def _blended(self, rows: TokenRows) -> TokenRows:
        """With the corpus in the recipe's shares; alone where the recipe names no corpus."""
        data = self._recipe.data
        share_e4 = round(10_000 * (1 - data.rollout_share)) if data.corpus else 0
        mix = Mix(corpus_share_e4=share_e4, voucher_times=data.voucher_times, seed=self._recipe.seed)
        corpus = self._corpus(data.corpus)
        if share_e4 and not corpus.rows:
            raise ArenaError("V2124", f"no row of {', '.join(data.corpus)} can be learnt from: {corpus.dropped}")
        return blend(corpus, rows, mix)

    def _made(self) -> tuple[EpisodeLine, ...]:
        """The run's own episodes, of its parent for a rejection, else of the teacher: made by the first process, read
        by all when they are whole."""
        path, recipe = self._run.path / EPISODES, self._recipe
        if self._run.processes.is_first:
            with contextlib.ExitStack() as stack:
                decoding: dict[str, Any] = {"decode": recipe.decode, "parallel": recipe.parallel}
                run = self._run_jobs
                if run is None and recipe.stage == "rejection":
                    sampler = outside_sampler(recipe, self._codec)
                    if sampler is None:
                        model, version = open_parent(recipe)
                        sampler = self._local(placed(model), version)
                    run = functools.partial(self._bench.sample, sampler=sampler, codec=self._codec, **decoding)
                elif run is None:
                    upstream = stack.enter_context(self._open_teacher(recipe))
                    asked: dict[str, Any] = {"upstream": upstream, "model": recipe.teacher_model}
                    run = functools.partial(self._bench.ask_all, **asked, **decoding)
                make_episodes(recipe, EpisodeFile(path), run, self._bench)
        self._run.processes.wait()
        return EpisodeFile(path).lines()

    def _teacher_lines(self) -> tuple[EpisodeLine, ...]:
        """The teacher's episodes: those of the folders the recipe names, else asked for here.

        Raises ArenaError V2124 for a folder without any: silence would train on fewer, or on none.
        """
        named = self._recipe.data.rollouts
        if named:
            bare = [name for name in named if not (Path(name) / EPISODES).exists()]
            if bare:
                raise ArenaError("V2124", f"{bare[0]} of data.rollouts holds no {EPISODES}: name a run that sampled")
            lines = tuple(line for name in named for line in EpisodeFile(Path(name) / EPISODES).lines())
            require_train_pool((line.result.problem_id for line in lines), self._bench.train_ids)
            return lines
        return self._made()

    # -- training
    def _sft(self, rows: TokenRows) -> Outcome:
        dev = self._corpus(self._recipe.data.dev, "dev")
        pad_id = self._codec.tokenizer.pad_token_id
        done = train_sft(self._recipe, self._run, rows.rows, dev.rows, pad_id)
        return replace(done, dropped=rows.dropped)

    def _kto(self) -> Outcome:
        from training.stages.kto import labelled_rows, train_kto

        labelled, dropped = labelled_rows(self._teacher_lines(), self._codec, self._recipe)
        jobs = jobs_of(self._bench.dev, 1, self._recipe.seed)

        def emission(model: Any) -> float:
            sampler = self._local(model, "dev")
            lines = self._bench.sample(jobs, sampler, self._codec, self._recipe.decode, self._recipe.parallel)
            return emission_rate([line.result for line in lines])

        tokenizer, watched = self._codec.tokenizer, emission if jobs else None
        done = train_kto(self._recipe, self._run, labelled, tokenizer, watched)
        return replace(done, dropped=dropped)

    def _grpo(self) -> Outcome:
        from training.stages.grpo import GrpoPorts, train_grpo

        recipe = self._recipe
        teachers = reference_steps(self._teacher_lines()) if recipe.grpo.tool_weight else {}

        def run_jobs(jobs: Sequence[Job], sampler: Sampler) -> list[Any]:
            self._bench.require_train(jobs)
            lines = self._bench.sample(jobs, sampler, self._codec, recipe.decode, recipe.parallel)
            return [line.rollout for line in lines]

        server = outside_sampler(recipe, self._codec)
        if server is not None and not isinstance(server, VllmSampler):
            raise ArenaError("V2124", f"grpo samples from its own policy, or a server of it, not from {server.version}")
        ports = GrpoPorts(
            problems=self._bench.problems, codec=self._codec, run_jobs=run_jobs, teachers=teachers, server=server
        )
        return train_grpo(recipe, self._run, ports)

    def _local(self, model: Any, version: str) -> LocalSampler:
        return LocalSampler(
            model,
            stop_id=self._codec.stop_id,
            suppressed_ids=self._codec.template_only_ids,
            version=version,
            batch_rows=self._recipe.sample_rows,
        )
