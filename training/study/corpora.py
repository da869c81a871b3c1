"""From the study's export to its corpora: the filter's own, that of `dev`, and the arms' of one size.

The export is verified before a row is read, the leak guard is on in every arm, and a corpus that stands is not
made again. What a kill left unfinished is thrown away and made anew.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from arena.chain.keys import verify
from foundation.durable_files import move_into_place
from foundation.progress import Progress
from training.corpus.appraisal import Task
from training.corpus.building import FULL, Origin, arms_of, filter_sources, open_sources, write_filtered
from training.corpus.corpus_files import read_lineage
from training.corpus.leak_guard import Guard
from training.corpus.model import CorpusPool, Rules
from training.study.market import open_partition
from training.study.mixed import build_mixed
from training.study.plan import MIXED, StudyPlan

FULL_CORPUS, DEV_CORPUS, MATCHED = "full", "dev", "matched"


def build_corpora(
    plan: StudyPlan,
    market_dir: Path,
    export: Path,
    folder: Path,
    tokenizer: Path,
    *,
    code_commit: str,
    progress: Progress | None,
) -> None:
    """Write `folder`/full, `folder`/dev, and `folder`/matched/ARM for the plan's arms; thoughts of `mixed` to
    `folder`/thoughts, where there are none. Where an arm is new, those whose rows stay the same keep their bytes.

    Raises ArenaError V2095, V2096 for an export that does not verify, V2146 for an unknown arm, V2147 when an arm keeps
    nothing, V2149 for thoughts that can't be read.
    """
    partition = open_partition(market_dir)
    origin = Origin(partition_sha256=partition.manifest.sha256, code_commit=code_commit)
    sources = open_sources([export], [], verify, seals=folder / "seals", progress=progress)
    asked: tuple[tuple[str, CorpusPool, tuple[str, ...]], ...] = (
        (FULL_CORPUS, "train", ()),
        (DEV_CORPUS, "dev", ()),
        (MATCHED, "train", plan.arms),
    )
    for name, pool, wanted in asked:
        target = folder / name
        if (target.exists() and all((target / arm).exists() for arm in wanted)) or (name == MATCHED and not wanted):
            continue
        draft = folder / f"{name}.draft"
        shutil.rmtree(draft, ignore_errors=True)
        guard = Guard(partition.manifest, partition=partition, admits=pool)
        rules = full_rules(plan, pool)
        task = Task(arms=(rules,), tokenizer=tokenizer / "tokenizer.json")
        arms = arms_of(rules, [arm for arm in wanted if arm != MIXED])
        filtered = filter_sources(sources, task, arms, guard, progress=progress)
        out = draft / FULL if MIXED in wanted and len(arms) == 1 else draft
        built = write_filtered(filtered, out, guard, origin, progress=progress)
        kept = [
            one.name
            for one in built
            if (target / one.name).exists() and read_lineage(target / one.name).rows_sha256 == one.lineage.rows_sha256
        ]
        if MIXED in wanted and FULL in kept and (target / MIXED).exists():
            kept.append(MIXED)
        elif MIXED in wanted:
            rows, share = built[0].funnel.kept, plan.mixed_agentic_e4
            build_mixed(sources, task, rows, share, guard, origin, draft / MIXED, folder / "thoughts")
        for arm in kept:
            shutil.rmtree(draft / arm, ignore_errors=True)
            shutil.copytree(target / arm, draft / arm)
        shutil.rmtree(target, ignore_errors=True)
        move_into_place(draft, target)


def full_rules(plan: StudyPlan, pool: CorpusPool) -> Rules:
    """The filter of the corpus `full`, and of every arm that changes nothing of it."""
    return Rules(
        coefficient_e4_min=plan.coefficient_e4_min, tokens_max=plan.corpus_tokens_max, seed=plan.seed, pool=pool
    )
