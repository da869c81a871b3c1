"""From the study's export to its corpora: the filter's own, that of `dev`, and the arms' of one size.

The export is verified before a row is read, the leak guard is on in every arm, and what a kill left unfinished is made
anew.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from arena.chain.keys import verify
from foundation.durable_files import move_into_place
from studies.shopping.market import open_partition
from studies.shopping.plan import StudyPlan
from studies.shopping.records import EXPORT
from training.corpus.appraisal import Task
from training.corpus.building import Origin, arms_of, filter_sources, open_sources, write_filtered
from training.corpus.leak_guard import Guard
from training.corpus.model import CorpusPool, Rules

MATCHED = "matched"


def build_corpora(plan: StudyPlan, study: Path, commit: str) -> None:
    """Write `corpora`/full, `corpora`/dev, and `corpora`/matched/ARM for the plan's arms. Raises as the filter does."""
    folder, partition = study / "corpora", open_partition(study / "market")
    origin = Origin(partition_sha256=partition.manifest.sha256, code_commit=commit)
    sources = open_sources([study / "records" / EXPORT], [], verify, seals=folder / "seals")
    asked: tuple[tuple[str, CorpusPool, tuple[str, ...]], ...] = (
        ("full", "train", ()),
        ("dev", "dev", ()),
        (MATCHED, "train", plan.arms),
    )
    for name, pool, wanted in asked:
        target, draft = folder / name, folder / f"{name}.draft"
        if (target.exists() and all((target / arm).exists() for arm in wanted)) or (name == MATCHED and not wanted):
            continue
        shutil.rmtree(draft, ignore_errors=True)
        guard = Guard(partition.manifest, partition=partition, admits=pool)
        rules = Rules(
            coefficient_e4_min=plan.coefficient_e4_min, tokens_max=plan.corpus_tokens_max, seed=plan.seed, pool=pool
        )
        task = Task(arms=(rules,), tokenizer=study / "tokenizer" / "tokenizer.json")
        write_filtered(filter_sources(sources, task, arms_of(rules, wanted), guard), draft, guard, origin)
        shutil.rmtree(target, ignore_errors=True)
        move_into_place(draft, target)
