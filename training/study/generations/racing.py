"""A generation: a distilled checkpoint races, and its records join the corpus that the next row learns from.

It races as any agent does: the packaged file, past the gate, asks for its model by name at an endpoint, which is our
own server on loopback; validator's evaluation, judge, log, release and export are those of the study's other records.
The corpus is what the filter makes of the study's export and those of all generations so far. What is learnt from
itself may lift or collapse: how much was raced, solved and kept is counted. It races on train problems alone.

```
racer.txt      the model that began to race, by the hash of its weights
records/       the log of its episodes, and the export
corpus/        full corpus and generations together
counts.json    written last
```
"""

from __future__ import annotations

import contextlib
import random
import shutil
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec

from arena.chain.keys import verify
from foundation.durable_files import move_into_place, write_whole
from foundation.errors import ArenaError
from foundation.progress import Progress
from harness.inference.client import OpenAIUpstream
from training.corpus.appraisal import Task
from training.corpus.building import Origin, arms_of, filter_sources, open_sources, write_filtered
from training.corpus.funnel import Slice
from training.corpus.leak_guard import Guard
from training.corpus.model import Trace
from training.evaluation.model_loader import LoadedModel, open_candidate
from training.guards import GuardStopError
from training.model import Decode
from training.package_agent import make_reentry
from training.rollouts.model_server import ModelEndpoint, open_model_server
from training.study.agent_versions import require_admitted
from training.study.corpora import full_rules
from training.study.generations.counts import COUNTS, GenerationCounts, read_counts
from training.study.market import open_partition, read_market
from training.study.parts import GENERATIONS, run_folder
from training.study.plan import GenerationRules, StudyPlan, TrainedRow
from training.study.records import EXPORT, RACE, Field, agent_version_of, record_field, study_policy

RECORDS, CORPUS, RACER = "records", "corpus", "racer.txt"
_ENDPOINT = "own server"
_TIMEOUT_MS = 600_000  # of a turn: a processor's, with other work beside


def run_generation(
    row: TrainedRow,
    plan: StudyPlan,
    study: Path,
    market_dir: Path,
    tokenizer: Path,
    *,
    code_commit: str,
    now_ms: Callable[[], int],
    progress: Progress | None,
) -> GenerationCounts:
    """Race the checkpoint that `row` follows and build the row's corpus, in the folder of a study that has its records,
    that checkpoint and the generations before. A finished one is returned.

    Raises GuardStopError where the gate refuses the agent, or none of its records is kept: nothing would join the
    corpus; ArenaError V2166 where another checkpoint than stands there now began to race, what an endpoint that fails
    raises, and what racing, export and filter raise.
    """
    racer, folder = plan.racer_of(row), study / GENERATIONS / row.name
    done = read_counts(folder)
    if done is not None:
        return done
    found = open_candidate(run_folder(study, racer.name), ())
    name = f"generation-{row.generation}"
    entry = make_reentry(name, found.weights_sha256, found.version, study_policy(plan))
    begun = folder / RACER
    if begun.exists() and begun.read_text("utf-8") != entry.model_id:
        raise ArenaError("V2166", f"{begun.read_text('utf-8')} began to race in {folder}; it is {entry.model_id} now")
    market = read_market(market_dir)
    agent = f"{name} of {row.name}"
    sources = {agent: entry.source}
    admitted = require_admitted(sources, entry.policy.gate, market.train)
    rules = plan.generations or GenerationRules()
    by_id = sorted(market.train, key=lambda problem: problem.problem_id)
    drawn = random.Random(f"{name} {plan.seed} {row.seed}").sample(by_id, min(rules.problems, len(by_id)))
    folder.mkdir(parents=True, exist_ok=True)
    write_whole(begun, entry.model_id.encode())
    with _served(found, entry.model_id, plan) as upstream:
        raced = Field(
            race_id=f"{RACE}-{name}",
            problems=tuple(drawn),
            sources=sources,
            admitted=admitted,
            policy=entry.policy,
            upstream=upstream,
        )
        record_field(
            raced, plan, market_dir, folder / RECORDS, code_commit=code_commit, now_ms=now_ms, progress=progress
        )
    exports, before = [folder / RECORDS / EXPORT], racer
    while before.generation:
        exports.append(study / GENERATIONS / before.name / RECORDS / EXPORT)
        before = plan.racer_of(before)
    exports.append(study / RECORDS / EXPORT)
    own, rows = _build(plan, exports, market_dir, tokenizer, folder, agent, code_commit, progress)
    shards = open_sources(exports[:1], [], verify, seals=folder / "seals").shards
    counts = GenerationCounts(
        racer=racer.name,
        model_id=entry.model_id,
        raced=own.traces,
        solved=sum(isinstance(row, Trace) and row.facts.is_success is True for shard in shards for row in shard()),
        kept=own.kept,
        rows=rows,
    )
    write_whole(folder / COUNTS, msgspec.json.format(msgspec.json.encode(counts), indent=1))
    return counts


@contextlib.contextmanager
def _served(found: LoadedModel, model_id: str, plan: StudyPlan) -> Iterator[OpenAIUpstream]:
    """The checkpoint behind an endpoint on loopback while inside, under the bounds that measurements have."""
    decode = Decode(
        temperature=0.0,
        top_p=1.0,
        turn_tokens_max=plan.turn_tokens_max,
        turns_max=plan.turns_max,
        context_tokens_max=plan.base.context,
    )
    server = open_model_server(ModelEndpoint(found.sampler, found.codec, model_id, decode), 0)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield OpenAIUpstream(_ENDPOINT, f"http://127.0.0.1:{server.server_address[1]}/v1", "", _TIMEOUT_MS)
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _build(
    plan: StudyPlan,
    exports: Sequence[Path],
    market_dir: Path,
    tokenizer: Path,
    folder: Path,
    agent: str,
    code_commit: str,
    progress: Progress | None,
) -> tuple[Slice, int]:
    """Filter all exports as `full` and write the corpus: what became of `agent`'s traces, and the corpus' rows."""
    partition = open_partition(market_dir)
    guard = Guard(partition.manifest, partition=partition, admits="train")
    rules = full_rules(plan, "train")
    sources = open_sources(exports, [], verify, seals=folder / "seals", progress=progress)
    task = Task(arms=(rules,), tokenizer=tokenizer / "tokenizer.json")
    filtered = filter_sources(sources, task, arms_of(rules, ()), guard, progress=progress)
    (found,) = filtered.funnels
    own = next((one for one in found.agents if one.name == agent_version_of(agent)), None)
    if own is None or not own.kept:
        refused = ", ".join(f"{code} {count}" for code, count in own.codes) if own else "no trace"
        raise GuardStopError("generation", f"none of {own.traces if own else 0} episodes is kept: {refused}")
    draft = folder / f"{CORPUS}.draft"
    shutil.rmtree(draft, ignore_errors=True)
    shutil.rmtree(folder / CORPUS, ignore_errors=True)
    origin = Origin(partition_sha256=partition.manifest.sha256, code_commit=code_commit)
    write_filtered(filtered, draft, guard, origin, progress=progress)
    move_into_place(draft, folder / CORPUS)
    return own, found.kept
