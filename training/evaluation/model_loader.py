"""A model folder opened for evaluation: weights, tokenizer, and what of the set it may have been trained on.

A finished run is opened with the adapters of all its stages, and only after its lineage was held against the set: every
stage back to the first, its problem files, its corpora and the episodes it took over, by problem ids and by answers,
which paraphrase does not change. What can't be read any more, and a corpus or file that is another one than was
learnt, is named, never taken for clean. Of a plain model folder nothing is known. Where a server samples, no weights
are opened.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import torch

from foundation.canonical import content_hash, file_sha256
from foundation.errors import ArenaError
from problems.clusters import answer_marks
from problems.formats import read_problems
from problems.model import Problem
from training.corpus.building import read_lineage, read_rows
from training.corpus.gates import answered
from training.guards import GuardStopError
from training.model import Sampler
from training.models.opening import open_model, open_run, placed, require_candidate
from training.models.render import Qwen3Codec
from training.rollouts.rollout import EPISODES, EpisodeFile
from training.run import CHECKPOINT, LINEAGE, lineage_chain, open_checkpoint, weights_sha256
from training.samplers.in_process import sampler_of
from training.samplers.vllm import VllmSampler
from training.stages.engine import quiet_engine

_Read = Callable[[Path, str | None], tuple[set[str], set[str]]]  # problem ids, and marks of answers


class TrainingProblems(msgspec.Struct, frozen=True, kw_only=True):
    """What stages learnt from: problem ids, marks of answers (`answer_marks`), and what could not be read."""

    problem_ids: frozenset[str] = frozenset()
    marks: frozenset[str] = frozenset()
    unread: tuple[str, ...] = ()

    def describe(self) -> str:
        """One line for a report."""
        missing = f"; could not be read: {', '.join(self.unread)}" if self.unread else ""
        return f"contamination check: no overlap with the {len(self.problem_ids)} training problems{missing}"


def learnt_by(run: Path) -> TrainingProblems:
    """What a finished run and the runs it comes from learnt from. Raises ArenaError V2124 where a run is missing,
    V2166 for a broken chain."""
    ids: set[str] = set()
    marks: set[str] = set()
    unread: dict[str, None] = {}
    for folder, lineage in lineage_chain(run):
        data = lineage.recipe.data
        if lineage.recipe.stage in ("rejection", "grpo") and not data.problems:
            unread[f"the problems that {folder.name} was dealt"] = None
        # a base's run may name transcripts by a hash, which are no corpus
        corpora = dict(zip(data.corpus, lineage.corpus_sha256s, strict=False))
        sources: list[tuple[str, _Read, str | None]] = [(name, _of_corpus, corpora.get(name)) for name in data.corpus]
        sources += [(name, _of_episodes, None) for name in data.rollouts]
        if data.problems:
            sources.append((data.problems, _of_problems, lineage.problem_files.get(Path(data.problems).name)))
        for name, read, known in sources:
            try:
                found_ids, found_marks = read(Path(name), known)
            except _ChangedError as changed:
                unread[f"{name} (another {changed} stands there now)"] = None
            except (ArenaError, OSError):
                unread[name] = None
            else:
                ids |= found_ids
                marks |= found_marks
    return TrainingProblems(problem_ids=frozenset(ids), marks=frozenset(marks), unread=tuple(unread))


class _ChangedError(Exception):
    """Another corpus or file stands where the one stood that was learnt."""


def _of_problems(file: Path, known: str | None) -> tuple[set[str], set[str]]:
    if known and file_sha256(file) != known:
        raise _ChangedError("set of problems")
    problems = read_problems(file.read_bytes().splitlines())
    return {one.problem_id for one in problems}, {mark for one in problems for mark in answer_marks(one)}


def _of_corpus(folder: Path, known: str | None) -> tuple[set[str], set[str]]:
    if content_hash(read_lineage(folder)) != known:
        raise _ChangedError("corpus")
    traces = [row.trace for row in read_rows(folder)]
    marks = {f"id {product}" for trace in traces for product in answered(trace)}
    return {trace.facts.problem_id or "" for trace in traces} - {""}, marks


def _of_episodes(run: Path, known: str | None) -> tuple[set[str], set[str]]:
    if not (run / EPISODES).exists():
        raise FileNotFoundError(run / EPISODES)
    return {line.result.problem_id for line in EpisodeFile(run / EPISODES).lines()}, set()


def require_unseen(problems: Sequence[Problem], learnt: TrainingProblems) -> None:
    """No problem of the set, and no answer of one, was learnt. Raises GuardStopError with the first that was."""
    for problem in problems:
        if problem.problem_id in learnt.problem_ids:
            raise GuardStopError("contamination", f"problem {problem.problem_id} was trained on")
        shared = answer_marks(problem) & learnt.marks
        if shared:
            raise GuardStopError(
                "contamination", f"problem {problem.problem_id}: an answer was trained on, {min(shared)}"
            )


UNKNOWN = "nothing is known of its training"


class LoadedModel(msgspec.Struct, frozen=True, kw_only=True):
    """Who is examined. `version` is a run's lineage, or the hash of a base model's weights; `weights_sha256` is of the
    weights that sample, "" where a server does not tell."""

    sampler: Sampler
    codec: Qwen3Codec
    version: str
    weights_sha256: str
    contamination: str


def open_candidate(
    folder: Path,
    problems: Sequence[Problem],
    *,
    sample_rows: int = 1,
    open_sampler: Callable[[Qwen3Codec], VllmSampler] | None = None,
) -> LoadedModel:
    """The model in `folder`, on the GPU in bf16 where there is one, or behind `open_sampler`.

    Raises GuardStopError when it was trained on one of `problems`, ArenaError V2120 or V2124 for a folder that can't be
    opened, V2166 for a run whose lineage does not hold.
    """
    require_candidate(str(folder))
    is_run, words, contamination = (folder / LINEAGE).exists(), folder, UNKNOWN
    if is_run:
        lineage = open_checkpoint(folder)
        learnt = learnt_by(folder)
        require_unseen(problems, learnt)
        words, version, contamination = folder / CHECKPOINT, lineage.sha256, learnt.describe()
        weights = lineage.weights_sha256
    else:
        version = weights = weights_sha256(folder)
    codec = Qwen3Codec(words)
    if open_sampler is not None:
        sampler = open_sampler(codec)
        served = sampler.served_weights()
        held = "these weights" if served == weights else f"weights {served[:16]}: are they these, merged?"
        detail = f"it was asked, and holds {held}" if served else "that it holds these weights was not checked"
        contamination += f"; sampled by {sampler.version} at a server: {detail}"
        return LoadedModel(
            sampler=sampler, codec=codec, version=version, weights_sha256=served, contamination=contamination
        )
    quiet_engine()
    dtype = torch.bfloat16 if torch.cuda.is_available() else torch.float32
    model = open_run(folder, dtype) if is_run else open_model(str(folder), dtype)
    local = sampler_of(placed(model), codec, version, sample_rows)
    return LoadedModel(sampler=local, codec=codec, version=version, weights_sha256=weights, contamination=contamination)
