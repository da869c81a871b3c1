"""The study's records: agents raced on its problems, recorded, released and exported, by the arena's own code.

Every episode goes through `arena.evaluate`, the sequencer and the store, and out through the exporter; the
corpora are made from that export alone. The 75 are raced too, and stay behind: the request does not name their pool.
A killed run finds what it has recorded in the log and goes on; nothing is recorded twice. Episodes run in this process,
without a jail (`reference-agents-only`): all agents are shipped ones. The gate is asked about each of them first.
"""

from __future__ import annotations

import asyncio
import hashlib
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from arena.bank.batches.batch import SealedBatch, seal
from arena.chain.keys import keypair_signer, verify
from arena.chain.port import Signer
from arena.evaluate import EvaluatePorts, Evaluation, evaluate
from arena.evaluate.records import records_of
from arena.export.model import Request
from arena.export.writing.exporter import export_records
from arena.gate.report import GateReport
from arena.policy import Policy
from arena.records.body import decode_content
from arena.records.log.sequencer import Sequencer
from arena.records.model import (
    AttemptRecord,
    Conditions,
    Context,
    HostFacts,
    Payload,
    ReleaseRecord,
    Subject,
)
from arena.store.embedded.server import start_embedded
from arena.store.port import StoredBody
from arena.store.postgres.store import PostgresStore
from foundation.canonical import canonical_bytes, text_hash
from foundation.durable_files import write_whole
from foundation.progress import Progress
from harness.catalogue.engines.native import open_catalogue
from harness.inference.port import Upstream
from judge.scripted import ScriptedJudge
from problems.model import Pool, Problem
from problems.pools.clusters import answer_marks
from problems.pools.partition import OpenPartition, pool_of
from problems.scoring.outcome import SCORING_PIPELINE
from problems.scoring.title_matching import LexicalTitles
from training.rollouts.in_process_sandbox import InProcessSandbox
from training.study.agent_versions import require_admitted, versions_of
from training.study.market import INDEX, SIGNER, open_partition, read_market
from training.study.plan import StudyPlan
from training.study.policies import ScriptedUpstream

RACE = "study"
POLICY = Path(__file__).with_name("policy.json")
EXPORT, GATE = "export", "gate.json"
POOLS: tuple[Pool, ...] = ("train", "dev")  # what the export is asked for


def study_policy(plan: StudyPlan) -> Policy:
    """The policy of every study, with the plan's tools: a file, so that rows of one study are compared under one
    policy however long it takes, whatever the demo's becomes."""
    fixed = msgspec.json.decode(POLICY.read_bytes(), type=Policy)
    return msgspec.structs.replace(fixed, tool_profile=plan.tool_profile)


@dataclass(frozen=True, kw_only=True)
class Field:
    """Who races on what: sources by name, each on all `problems` but those in `drawn`, which race on theirs alone.

    `admitted` is what the gate said of each source. Raises ValueError for a source that it was not asked about.
    """

    race_id: str
    problems: tuple[Problem, ...]
    sources: Mapping[str, str]
    admitted: Mapping[str, GateReport]
    drawn: Mapping[str, frozenset[str]] = field(default_factory=dict)
    policy: Policy
    upstream: Upstream

    def __post_init__(self) -> None:
        """Refuse a source without a report of its own."""
        for name, source in self.sources.items():
            if name not in self.admitted or self.admitted[name].source_sha256 != text_hash(source):
                raise ValueError(f"the gate was not asked about {name}")


def record_study(
    plan: StudyPlan,
    market_dir: Path,
    folder: Path,
    *,
    code_commit: str,
    now_ms: Callable[[], int],
    progress: Progress | None,
) -> None:
    """Race each agent on the problems it is given, none of them the suite's; release; export `train` and `dev`.

    The export lies in `folder`/export. Raises GuardStopError, before anything is recorded, for an agent that the gate
    refuses, ArenaError V2020 when no server can be started, and what `evaluate` and the exporter raise.
    """
    market = read_market(market_dir)
    problems = (*market.train, *market.dev, *market.eval)
    by_id = sorted(problem.problem_id for problem in problems)
    sources: dict[str, str] = {}
    limited: dict[str, frozenset[str]] = {}
    for rules in plan.agents:
        versions = dict(versions_of(rules))
        sources |= versions
        if rules.problems:
            drawn = random.Random(f"{rules.name} {plan.seed}").sample(by_id, min(rules.problems, len(by_id)))
            limited |= dict.fromkeys(versions, frozenset(drawn))
    policy = study_policy(plan)
    raced = Field(
        race_id=RACE,
        problems=problems,
        sources=sources,
        admitted=require_admitted(sources, policy.gate, market.train),
        drawn=limited,
        policy=policy,
        upstream=ScriptedUpstream(),
    )
    record_field(raced, plan, market_dir, folder, code_commit=code_commit, now_ms=now_ms, progress=progress)


def record_field(
    raced: Field,
    plan: StudyPlan,
    market_dir: Path,
    folder: Path,
    *,
    code_commit: str,
    now_ms: Callable[[], int],
    progress: Progress | None,
) -> None:
    """As `record_study`, of any field: run what `folder`'s log lacks, release, and export. What the gate said of each
    source stands in `folder`/gate.json."""
    folder.mkdir(parents=True, exist_ok=True)
    write_whole(folder / GATE, msgspec.json.format(msgspec.json.encode(raced.admitted), indent=1))
    server = start_embedded(folder / "state")
    signer = keypair_signer(SIGNER)
    try:
        dsn = server.dsn_for(signer.hotkey)
        asyncio.run(_Recording(raced, plan, market_dir, folder, signer, code_commit, progress).run(dsn, now_ms))
    finally:
        server.stop()


class _Recording:
    def __init__(
        self,
        raced: Field,
        plan: StudyPlan,
        market_dir: Path,
        folder: Path,
        signer: Signer,
        code_commit: str,
        progress: Progress | None,
    ) -> None:
        self._raced, self._folder, self._signer, self._progress = raced, folder, signer, progress
        self._commit = code_commit
        self._batch = seal_study(plan, raced.problems, open_partition(market_dir), raced.race_id)
        # Once for all attempts: each is a hash of the whole batch.
        self._batch_sha256, self._commitments = self._batch.batch_sha256, self._batch.cluster_commitments
        self._ports = EvaluatePorts(
            policy=raced.policy,
            catalogue=open_catalogue(market_dir / INDEX),
            titles=LexicalTitles(),
            sandbox=InProcessSandbox(frozenset(map(text_hash, raced.sources.values()))),
            upstreams=[raced.upstream],
            judges=[ScriptedJudge()],
        )

    async def run(self, dsn: str, now_ms: Callable[[], int]) -> None:
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
            for number, problem in enumerate(self._raced.problems, 1):
                await self._record(problem, sequencer, done)
                if self._progress:
                    self._progress("race", number, len(self._raced.problems))
            if not is_released:
                release = ReleaseRecord(
                    race_id=self._raced.race_id,
                    batch_sha256=self._batch.batch_sha256,
                    partition_sha256=self._batch.partition_sha256,
                    problems=self._batch.released_problems,
                    salt=self._batch.salt,
                )
                await sequencer.append([release], [])
            request = Request(validator=self._signer.hotkey, formats=("jsonl", "parquet"), pools=POOLS)
            await export_records(
                store,
                request,
                self._folder / EXPORT,
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
        for name, source in self._raced.sources.items():
            if name in self._raced.drawn and problem.problem_id not in self._raced.drawn[name]:
                continue
            attempt_id = f"{text_hash(f'{name} {problem.problem_id}')[:24]}:1"
            if attempt_id not in done:
                evaluation = await asyncio.to_thread(evaluate, source, problem, self._ports)
                body = canonical_bytes(evaluation.body)
                stored = StoredBody(body_sha256=hashlib.sha256(body).hexdigest(), content=body)
                payloads += self._payloads(name, source, problem, attempt_id, evaluation, stored.body_sha256)
                bodies.append(stored)
        if payloads:
            await sequencer.append(payloads, bodies)

    def _payloads(
        self, name: str, source: str, problem: Problem, attempt_id: str, evaluation: Evaluation, body_sha256: str
    ) -> list[Payload]:
        subject = Subject(
            agent_version_id=agent_version_of(name),
            miner_hotkey=self._signer.hotkey,
            agent_sha256=text_hash(source),
        )
        context = Context(
            stage="race",
            race_id=self._raced.race_id,
            problem_id=problem.problem_id,
            batch_sha256=self._batch_sha256,
            partition_sha256=self._batch.partition_sha256,
            cluster_commitment=self._commitments[problem.problem_id],
        )
        conditions = Conditions(
            policy_sha256=evaluation.body.policy_sha256,
            scoring_pipeline=SCORING_PIPELINE,
            code_commit=self._commit,
            sandbox=evaluation.sandbox,
        )
        return records_of(
            evaluation,
            attempt_id=attempt_id,
            subject=subject,
            context=context,
            conditions=conditions,
            body_sha256=body_sha256,
        )


def agent_version_of(name: str) -> str:
    """The version id that an agent of this name has in a study's records."""
    return text_hash(f"study {name}")


def seal_study(
    plan: StudyPlan, problems: Sequence[Problem], partition: OpenPartition, race_id: str = RACE
) -> SealedBatch:
    """All raced problems as one sealed batch, with their pools and clusters under the partition."""
    return seal(
        race_id,
        problems,
        hashlib.sha256(f"study salt {plan.seed}".encode()).digest(),
        pools=[pool_of(problem, partition) for problem in problems],
        cluster_ids=[cluster_of(problem, partition) for problem in problems],
        partition_sha256=partition.manifest.sha256,
    )


def cluster_of(problem: Problem, partition: OpenPartition) -> str:
    """The frozen cluster of a problem that is in the partition. Raises ValueError for one that is not."""
    name = partition.row_name(partition.token(min(answer_marks(problem))))
    if name is None:
        raise ValueError(f"problem {problem.problem_id} stands in no cluster of the partition")
    return name
