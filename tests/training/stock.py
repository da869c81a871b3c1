"""A small shop to train in: 50 synthetic documents, problems in three pools, a random Qwen3 of 0.2 M weights.

`open_stock(folder)` makes it once a session, in seconds; everything is seeded. `corpus_of` writes a corpus of the
scripted expert's episodes, as the filter would.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import torch

from arena.policies import DEMO
from harness.catalogue.build import build_index, write_documents
from harness.catalogue.native import open_catalogue
from harness.catalogue.synthetic import generate
from harness.inference.scripted.model import ScriptedUpstream
from problems.clusters import find_clusters
from problems.formats import read_problems, write_problems
from problems.model import Problem
from problems.synthesis import synthesize
from problems.titles import LexicalTitles
from tests.training.labelled import select
from training.corpus.building import write_corpus
from training.corpus.model import NEVER_OFF, CorpusPool, Lineage, Rules, Trace
from training.corpus.report import CODES
from training.corpus.selection import Task, kept_rows
from training.model import Decode
from training.models.render import Qwen3Codec
from training.models.tiny_model import TinyShape, build_tiny_model
from training.recipe import Recipe
from training.rollouts.rollout import jobs_of
from training.run_context import RunContext
from training.samplers.in_process import LocalSampler, sampler_of
from training.stages.pipeline import trace_of

TOKENIZER = Path(__file__).parents[2] / "training" / "recipes" / "smoke" / "tokenizer"
RECIPES = TOKENIZER.parent
POLICY = msgspec.structs.replace(DEMO, tool_profile="paper4")
DOCUMENTS, EXPERT = 50, "scripted-expert"
RULES = Rules(off=tuple(code for code in CODES if code not in NEVER_OFF))  # the filter has tests of its own
EPISODE = Decode(temperature=1.0, top_p=1.0, turn_tokens_max=2_048, turns_max=12, context_tokens_max=32_768)


@dataclass(frozen=True, kw_only=True)
class Stock:
    """What tests of training share. `bench` has train and dev problems; `held` are held out."""

    folder: Path
    model: Path
    codec: Qwen3Codec
    bench: RunContext
    held: tuple[Problem, ...]

    def load(self) -> Any:
        """The random model, fresh."""
        from transformers import AutoModelForCausalLM

        return AutoModelForCausalLM.from_pretrained(self.model, dtype=torch.float32)

    def sampler(self, model: Any, version: str = "tiny-0", batch_rows: int = 1) -> LocalSampler:
        """A sampler over a model."""
        return sampler_of(model, self.codec, version, batch_rows)

    def traces(self, pool: CorpusPool = "train") -> list[Trace]:
        """The scripted expert's successes on the problems of a pool, as traces of the arena."""
        problems = self.bench.problems if pool == "train" else self.bench.dev
        lines = [self.bench.ask(job, ScriptedUpstream(), EXPERT, EPISODE) for job in jobs_of(problems, 1, 0)]
        found = [trace_of(line) for line in lines if line.result.is_success]
        replace = msgspec.structs.replace
        return [replace(one, facts=replace(one.facts, pool=pool, cluster_id=one.facts.problem_id)) for one in found]

    def recipe(self, stage: str, more: str = "") -> Recipe:
        """A small recipe of one stage."""
        return msgspec.toml.decode(self.recipe_text(stage, more), type=Recipe)

    def recipe_text(self, stage: str, more: str = "") -> str:
        """Its TOML."""
        return f'name = "test"\nstage = "{stage}"\nmodel = "{self.model}"\nparallel = 2\n{more}\n'


def open_stock(folder: Path) -> Stock:
    """Make the shop, its problems and its model in `folder`."""
    torch.set_num_threads(1)
    products = list(generate(DOCUMENTS, 11))
    with (folder / "documents.jsonl").open("wb") as stream:
        write_documents(products, stream)
    build_index(folder / "documents.jsonl", folder / "index")
    pools = split(synthesize(products, seed=3, counts={"product": 12, "shop": 6, "voucher": 6}))
    for name, problems in pools.items():
        lines = "".join(f"{line}\n" for line in write_problems(problems))
        (folder / f"{name}.jsonl").write_text(lines, encoding="utf-8")
    build_tiny_model(TOKENIZER, folder / "model", TinyShape(), 0)
    return reopen_stock(folder)


def reopen_stock(folder: Path) -> Stock:
    """The shop that was made in `folder`."""
    pools = {
        name: tuple(read_problems((folder / f"{name}.jsonl").read_bytes().splitlines()))
        for name in ("train", "dev", "eval")
    }
    bench = RunContext(
        policy=POLICY,
        catalogue=open_catalogue(folder / "index"),
        titles=LexicalTitles(),
        problems=pools["train"],
        dev=pools["dev"],
        held_out=pools["eval"],
    )
    codec = Qwen3Codec(folder / "model")
    return Stock(folder=folder, model=folder / "model", codec=codec, bench=bench, held=pools["eval"])


def split(problems: Sequence[Problem]) -> dict[str, tuple[Problem, ...]]:
    """Whole leak clusters, dealt in turn to the pools: half of them to `train`."""
    pools: dict[str, list[Problem]] = {"train": [], "dev": [], "eval": []}
    by_id = {problem.problem_id: problem for problem in problems}
    clusters = find_clusters(problems)
    for place, name in enumerate(sorted(clusters)):
        pools[("train", "dev", "train", "eval")[place % 4]] += [by_id[one] for one in clusters[name]]
    return {name: tuple(members) for name, members in pools.items()}


def shortest(traces: Iterable[Trace], count: int) -> list[Trace]:
    """The traces with the least text: what is learnt of a row costs by its length."""
    return sorted(traces, key=lambda trace: len(msgspec.json.encode(trace.messages)))[:count]


def corpus_of(traces: Iterable[Trace], folder: Path, pool: CorpusPool = "train", partition_sha256: str = "") -> None:
    """Write a corpus of these traces."""
    rules = msgspec.structs.replace(RULES, pool=pool)
    traces = list(traces)
    found = select([lambda: traces], Task(arms=(rules,)), lambda _: ())
    lineage = Lineage(
        rules=rules,
        sources=(),
        is_trusted_unsigned=False,
        tokenizer_sha256="",
        partition_sha256=partition_sha256,
        code_commit="",
        rows_sha256="",
    )
    rows = kept_rows([lambda: traces], found.appraised, found.decisions[0])
    write_corpus(folder, rows, lineage=lineage, funnel=found.funnels[0], rejected=(), guard=lambda _: ())
