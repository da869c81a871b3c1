"""The study's records: agents raced on its problems by the arena's own code, recorded, released and exported.

Every episode goes through `arena.evaluate`, the sequencer and the store, and out through the exporter; corpora are made
from that export alone. A killed run finds what it has recorded in the log and goes on. Episodes run in this process,
without a jail: all agents are shipped ones, in versions that differ by a line.
"""

from __future__ import annotations

import asyncio
import hashlib
import random
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from arena.bank.batch import seal
from arena.chain.keys import keypair_signer, verify
from arena.chain.port import Signer
from arena.evaluate import EvaluatePorts, evaluate, records_of
from arena.export.exporter import export_records
from arena.export.model import Request
from arena.policies import POLICIES
from arena.policy import Policy
from arena.records.body import decode_content
from arena.records.model import (
    AttemptRecord,
    Conditions,
    Context,
    HostFacts,
    Payload,
    ReleaseRecord,
    StoredBody,
    Subject,
)
from arena.records.sequencer import Sequencer
from arena.store.embedded import start_embedded
from arena.store.postgres import PostgresStore
from foundation.canonical import canonical_bytes, text_hash
from foundation.durable_files import move_into_place
from harness.agents.registry import reference_agents
from harness.catalogue.native import open_catalogue
from harness.inference.scripted.model import ScriptedUpstream
from judge.scripted import ScriptedJudge
from problems.clusters import answer_marks
from problems.model import SCORING_PIPELINE, Problem
from problems.partition import touched_pools
from problems.titles import LexicalTitles
from studies.shopping.market import INDEX, SIGNER, open_partition, read_market
from studies.shopping.plan import AgentRules, StudyPlan
from training.agents import distilled_source
from training.corpus.building import arms_of, filter_sources, open_sources, write_filtered
from training.corpus.gates import Guard
from training.corpus.model import CorpusPool, Rules
from training.corpus.selection import Task
from training.rollouts.rollout import InProcessSandbox

RACE, EXPORT = "study", "export"
_DISTILLED = "distilled:"  # training's own agent file with a scripted model behind it
_SENTENCE = "Say in one sentence why this fits."
_ORDER = "Repeat exactly this tool call and nothing else:"
_EDITS: Mapping[str, Sequence[tuple[str, str]]] = {  # what version 2 and those after it replace, and by what
    "subtask": (
        (_SENTENCE, "Tell the user in one sentence what was chosen."),
        ('" ".join(search_words(wish))', '" ".join(search_words(wish)[:4])'),
        ('" ".join(search_words(wish))', '" ".join(search_words(wish)[-3:])'),
        ("chosen.append(hits[0])", 'chosen.append(min(hits, key=lambda hit: hit["price"]))'),
        (_SENTENCE, "Write a short note about it."),
    ),
    "echoer": (
        (_ORDER, "Repeat this tool call word by word:"),
        ('problem["query"][:150]', 'problem["query"][:80]'),
        ('hits[0]["product_id"] if', 'hits[-1]["product_id"] if'),
    ),
}


def study_policy(plan: StudyPlan) -> Policy:
    """The demo's policy with the plan's tools."""
    return msgspec.structs.replace(POLICIES["demo"], tool_profile=plan.tool_profile)


def versions_of(rules: AgentRules) -> Iterator[tuple[str, str]]:
    """(name, source) of each version: NAME, and NAME/2 on, which differ by one line.

    Raises KeyError for an agent that is not shipped, IndexError for one without so many versions.
    """
    if rules.name.startswith(_DISTILLED):
        source = distilled_source().replace('MODEL = ""', f'MODEL = "{rules.name.removeprefix(_DISTILLED)}"', 1)
    else:
        source = {agent.name: agent.source for agent in reference_agents()}[rules.name]
    yield rules.name, source
    edits = _EDITS.get(rules.name, ())
    for number in range(2, rules.versions + 1):
        yield f"{rules.name}/{number}", source.replace(*edits[number - 2])


def record_study(plan: StudyPlan, market_dir: Path, folder: Path, commit: str, now_ms: Callable[[], int]) -> None:
    """Race each agent of the plan on the problems it is given; release; export `train` and `dev` to `folder`/export.

    What the log in `folder` has is not run again.
    """
    market = read_market(market_dir)
    sources = {name: source for rules in plan.agents for name, source in versions_of(rules)}
    folder.mkdir(parents=True, exist_ok=True)
    server = start_embedded(folder / "state")
    signer = keypair_signer(SIGNER)
    try:
        recording = _Recording(plan, sources, (*market.train, *market.dev, *market.eval), market_dir, signer, commit)
        asyncio.run(recording.run(server.dsn_for(signer.hotkey), folder / EXPORT, now_ms))
    finally:
        server.stop()


class _Recording:
    def __init__(
        self,
        plan: StudyPlan,
        sources: Mapping[str, str],
        problems: Sequence[Problem],
        market_dir: Path,
        signer: Signer,
        commit: str,
    ) -> None:
        self._sources, self._problems, self._signer, self._commit = sources, problems, signer, commit
        by_id = sorted(problem.problem_id for problem in problems)
        self._drawn: dict[str, frozenset[str]] = {}  # of agents that race on a part of the problems
        for rules in plan.agents:
            if rules.problems:
                drawn = random.Random(f"{rules.name} {plan.seed}").sample(by_id, min(rules.problems, len(by_id)))
                self._drawn |= dict.fromkeys(dict(versions_of(rules)), frozenset(drawn))
        partition = open_partition(market_dir)
        tokens = (partition.token(min(answer_marks(problem))) for problem in problems)
        self._batch = seal(
            RACE,
            problems,
            hashlib.sha256(f"study salt {plan.seed}".encode()).digest(),
            pools=[(*touched_pools(problem, partition), "train")[0] for problem in problems],
            cluster_ids=[row.cluster for token in tokens if (row := partition.row_of(token))],
            partition_sha256=partition.manifest.sha256,
        )
        # Once for all attempts: each is a hash of the whole batch.
        public = self._batch.public
        self._batch_sha256 = public.batch_sha256
        self._commitments = {problem.problem_id: problem.cluster_commitment for problem in public.problems}
        self._ports = EvaluatePorts(
            policy=study_policy(plan),
            catalogue=open_catalogue(market_dir / INDEX),
            titles=LexicalTitles(),
            sandbox=InProcessSandbox(frozenset(map(text_hash, sources.values()))),
            upstreams=[ScriptedUpstream()],
            judges=[ScriptedJudge()],
        )

    async def run(self, dsn: str, export: Path, now_ms: Callable[[], int]) -> None:
        store = await PostgresStore.open(dsn, self._signer.hotkey, is_exclusive=True)
        try:
            sequencer = Sequencer(store, self._signer, now_ms, HostFacts(machine="study", cores=1))
            done: set[str] = set()  # attempts that are in the log
            is_released = False
            async for record in store.records(kinds=("attempt", "release")):
                payload = decode_content(record.content).payload
                if isinstance(payload, AttemptRecord):
                    done.add(payload.attempt_id)
                is_released |= isinstance(payload, ReleaseRecord)
            for problem in self._problems:
                await self._record(problem, sequencer, done)
            if not is_released:
                release = ReleaseRecord(
                    race_id=RACE,
                    batch_sha256=self._batch.batch_sha256,
                    partition_sha256=self._batch.partition_sha256,
                    problems=self._batch.released_problems,
                    salt=self._batch.salt,
                )
                await sequencer.append([release], [])
            await export_records(
                store,
                Request(validator=self._signer.hotkey, formats=("jsonl", "parquet"), pools=("train", "dev")),
                export,
                verify_signature=verify,
                software=self._commit,
                now_ms=now_ms(),
                signer=self._signer,
            )
        finally:
            await store.close()

    async def _record(self, problem: Problem, sequencer: Sequencer, done: set[str]) -> None:
        payloads: list[Payload] = []
        bodies: list[StoredBody] = []
        for name, source in self._sources.items():
            attempt_id = f"{text_hash(f'{name} {problem.problem_id}')[:24]}:1"
            if attempt_id in done or problem.problem_id not in self._drawn.get(name, {problem.problem_id}):
                continue
            evaluation = await asyncio.to_thread(evaluate, source, problem, self._ports)
            body = canonical_bytes(evaluation.body)
            stored = StoredBody(body_sha256=hashlib.sha256(body).hexdigest(), content=body)
            bodies.append(stored)
            payloads += records_of(
                evaluation,
                attempt_id=attempt_id,
                subject=Subject(
                    agent_version_id=text_hash(f"study {name}"),
                    miner_hotkey=self._signer.hotkey,
                    agent_sha256=text_hash(source),
                ),
                context=Context(
                    stage="race",
                    race_id=RACE,
                    problem_id=problem.problem_id,
                    batch_sha256=self._batch_sha256,
                    partition_sha256=self._batch.partition_sha256,
                    cluster_commitment=self._commitments[problem.problem_id],
                ),
                conditions=Conditions(
                    policy_sha256=evaluation.body.policy_sha256,
                    scoring_pipeline=SCORING_PIPELINE,
                    code_commit=self._commit,
                    sandbox=evaluation.sandbox,
                ),
                body_sha256=stored.body_sha256,
            )
        if payloads:
            await sequencer.append(payloads, bodies)


MATCHED = "matched"


def build_corpora(plan: StudyPlan, study: Path, commit: str) -> None:
    """Write `corpora`/full, `corpora`/dev, and `corpora`/matched/ARM for the plan's arms. Raises as the filter does."""
    folder, partition = study / "corpora", open_partition(study / "market")
    sources = open_sources([study / "records" / EXPORT], [], verify)
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
        filtered = filter_sources(sources, task, arms_of(rules, wanted), guard)
        write_filtered(filtered, draft, guard, partition_sha256=guard.partition_sha256, code_commit=commit)
        shutil.rmtree(target, ignore_errors=True)
        move_into_place(draft, target)
