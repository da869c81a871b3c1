"""Measuring a study's policies: checkpoints and controls, under the same conditions on the same frozen sets.

Promise: all of them are examined by `training.evaluation.run_eval`, which goes on where a killed one was. Both controls
are given the jobs a model is given. A checkpoint whose lineage touches the set is refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from foundation.durable_files import write_whole
from problems.model import Problem
from training.evaluation.report import EvalReport, name_set
from training.evaluation.run_eval import EvaluationPlan, RunJobs, by_tokens, episodes_path, examine
from training.model import Decode
from training.models.render import Qwen3Codec
from training.rollouts.episode_file import EpisodeFile, EpisodeLine
from training.rollouts.rollout import Job
from training.run_context import RunContext
from training.samplers.scripted import ScriptedSampler
from training.study.plan import DecodeRules, StudyPlan
from training.study.policies import RANDOM, RandomCaller

EXPERT_LABEL, RANDOM_LABEL = "scripted expert", "random tool-caller"
SET_NAMES = {"eval": "frozen eval", "second": "second set"}
_NEVER_LEARNT = "a control: it learns nothing"
_NEVER_CUT = "a turn of it may fill the context"


class Measurement(msgspec.Struct, frozen=True, kw_only=True):
    """One policy on one set. `run` is the folder of a checkpoint, None for a control, which its label names."""

    label: str
    run: str | None
    set: str
    decode: DecodeRules

    @property
    def file_name(self) -> str:
        """Of its report."""
        return "-".join(word.replace(" ", "_") for word in (self.label, self.set, self.decode.name))


def measure(
    measurement: Measurement,
    problems: Sequence[Problem],
    plan: StudyPlan,
    tokenizer: Path,
    bench: RunContext,
    folder: Path,
) -> EvalReport:
    """Run what is missing, and write the report to `folder`/NAME.json.

    Raises GuardStopError for a checkpoint that learnt from the set, ArenaError V2124 when no episode was scored.
    """
    rules = measurement.decode
    examination = EvaluationPlan(
        label=measurement.label,
        set=name_set(SET_NAMES[measurement.set], problems),
        decode=Decode(
            temperature=rules.temperature,
            top_p=rules.top_p,
            turn_tokens_max=plan.turn_tokens_max,
            turns_max=plan.turns_max,
            context_tokens_max=plan.base.context,
        ),
        samples=rules.samples,
        seeds=rules.seeds,
        parallel=plan.parallel,
    )
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{measurement.file_name}.json"
    lineage_sha256, contamination, run = _examined(measurement, examination, problems, plan, tokenizer, bench)
    report = examine(
        examination,
        problems,
        EpisodeFile(episodes_path(path)),
        run,
        bench,
        lineage_sha256=lineage_sha256,
        contamination=contamination,
    )
    write_whole(path, msgspec.json.format(msgspec.json.encode(report), indent=1))
    return report


def _examined(
    measurement: Measurement,
    examination: EvaluationPlan,
    problems: Sequence[Problem],
    plan: StudyPlan,
    tokenizer: Path,
    bench: RunContext,
) -> tuple[str, str, RunJobs]:
    """Lineage, what is known of contamination, and what runs the jobs."""
    if measurement.run is not None:
        from training.evaluation.model_loader import open_candidate

        found = open_candidate(Path(measurement.run), problems, sample_rows=plan.parallel)
        return found.version, found.contamination, by_tokens(examination, found.sampler, found.codec, bench)
    if measurement.label == EXPERT_LABEL:
        codec = Qwen3Codec(tokenizer)
        whole = msgspec.structs.replace(examination.decode, turn_tokens_max=plan.base.context)  # a control is not cut
        uncut = msgspec.structs.replace(examination, decode=whole)
        return "", f"{_NEVER_LEARNT}, and {_NEVER_CUT}", by_tokens(uncut, ScriptedSampler(codec), codec, bench)

    def random_jobs(jobs: Sequence[Job]) -> Iterator[EpisodeLine]:
        for job in jobs:
            yield bench.ask(job, RandomCaller(job.seed), RANDOM, examination.decode)

    return "", _NEVER_LEARNT, random_jobs
