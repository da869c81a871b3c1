"""A node without workers for tests of its clocks: real store, chain, beacon and bank; the test moves the time."""

from __future__ import annotations

import io
import itertools
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import structlog
from msgspec.structs import replace

from arena.chain.beacon import LocalBeacon
from arena.chain.local import LocalRules, LocalSubtensor
from arena.chain.port import ChainResult, Signer
from arena.evaluate import EpisodeCost, Evaluation, records_of
from arena.gate.knowledge import make_knowledge
from arena.policies import CONTROL_SHA256, DEMO
from arena.policy import Policy, PromotionRules
from arena.race.decider import qualifying_items
from arena.race.forecast import Cost
from arena.race.machine import RaceState
from arena.records.body import encode_body
from arena.records.model import Conditions, StoredCheckpoint, Subject
from arena.records.port import Lease, StoredSubmission
from arena.records.sequencer import Sequencer
from arena.store.embedded import EmbeddedServer
from arena.store.postgres import PostgresStore
from arena.submissions.submission import SignedSubmission, make_submission, waiting_row
from foundation.errors import ArenaError, Failure
from harness.trace import EvaluationBody
from judge.verdict import UnscoredVerdict
from neurons.health.metrics import Metrics
from neurons.loops.checkpoints import AnchorLoop, CheckpointLoop
from neurons.loops.node import Node
from neurons.loops.purse import Purse
from neurons.race.clock import RaceClock
from neurons.race.log import QUALIFYING, RaceLog
from neurons.race.weights import WeightsLoop
from neurons.settings.settings import Budget
from neurons.worker.pool import WorkerPool
from problems.synthesis import synthesize
from tests.arena import log_stand
from tests.arena.bank_stand import SeededMaker, open_bank
from tests.arena.log_stand import attempt
from tests.arena.race_stand import judged
from tests.keys import generate_signer
from tests.problems.stand import make_catalogue

CATALOGUE = make_catalogue(200)
SOURCE = "def agent_main(problem): pass"  # of every agent: nothing here runs it
SUITE = synthesize(CATALOGUE, seed=99, counts={"product": 2})
POLICY = replace(
    DEMO,
    name="short",
    version=1,
    # as the kept ends of races have them: the policy's hash stands in them
    gate=replace(DEMO.gate, version="gate/2", similarity_review_e4=6_000, class_e4=0),
    admission=replace(DEMO.admission, is_commitment_enough=False),
    limits=replace(DEMO.limits, agent_time_ms=300_000),
    qualifying=replace(DEMO.qualifying, problems=2, variant_blocks=0, worker_ms=0),  # its time stands still
    race=replace(
        DEMO.race,
        closes_after_ms=10_000,
        problems=2,
        batch_problems=3,
        qualifying_grace_ms=40_000,
        run_ms=100_000,
        worker_ms=0,
        seats=0,
        control_sha256=CONTROL_SHA256,
    ),
    promotion=PromotionRules(),
)
LOG = structlog.wrap_logger(  # its own: what other tests configure, or close, does not matter here
    structlog.PrintLogger(io.StringIO()),
    processors=[structlog.processors.JSONRenderer()],
    wrapper_class=structlog.make_filtering_bound_logger(0),
)
CHECKPOINT_EVERY_S = 1_800
START_MS = 1_800_000_000_000
BLOCK_MS = 1_000

Outcome = Callable[[Lease], bool]  # did the agent solve the problem?


class Time:
    """Unix milliseconds that pass when the test says so."""

    def __init__(self) -> None:
        self.ms = START_MS

    def __call__(self) -> int:
        return self.ms

    def pass_s(self, seconds: float) -> None:
        self.ms += round(seconds * 1_000)


@asynccontextmanager
async def open_desk(server: EmbeddedServer, folder: Path) -> AsyncIterator[Desk]:
    """The node of a new validator on a running server. Its bank makes its batches; the chain does not know it."""
    signer = generate_signer()
    store = await PostgresStore.open(server.dsn_for(signer.hotkey), signer.hotkey)
    try:
        yield Desk(store, signer, folder, Time())
    finally:
        await store.close()


class Desk:
    """One validator's node, with the loops under test, and what surrounds it."""

    budget = Budget()

    def __init__(
        self,
        store: PostgresStore,
        signer: Signer,
        folder: Path,
        time: Time,
        policy: Policy = POLICY,
        chain: LocalSubtensor | None = None,
    ) -> None:
        self.store, self.signer, self.folder, self.time = store, signer, folder, time
        rules = LocalRules(block_ms=BLOCK_MS, finality_blocks=0, tempo=50, weights_rate_limit_blocks=5)
        self.chain = chain or LocalSubtensor(folder / "chain.sqlite", now_ms=time, rules=rules)
        self.beacon = LocalBeacon(time)
        self.bank = open_bank(folder / "bank", self.beacon, SeededMaker(CATALOGUE))
        self._bodies = itertools.count(1)
        self.names: dict[str, str] = {}  # of agents, by version
        self.unjudged: Failure | None = None  # why the judge gives no verdict now
        self.start(policy)

    def start(self, policy: Policy = POLICY) -> None:
        """A new process over the same folders: nothing is remembered."""
        self.policy = policy
        self.node = Node(
            policy=policy,
            signer=self.signer,
            chain=self.chain,
            beacon=self.beacon,
            store=self.store,
            sequencer=Sequencer(self.store, self.signer, self.time, log_stand.HOST),
            pool=WorkerPool((), 0.0),  # no loop under test runs episodes
            bank=self.bank,
            suite=SUITE,
            knowledge=make_knowledge([], [], [], policy.gate),
            conditions=Conditions(
                policy_sha256=policy.policy_sha256,
                scoring_pipeline="scoring/1",
                code_commit="c",
                sandbox=log_stand.LEVEL,
            ),
            host=log_stand.HOST,
            state_dir=self.folder,
            now_ms=self.time,
            metrics=Metrics(),
            log=LOG,
            purse=Purse(self.store, self.budget, (Cost(micro_usd=1_000), Cost()), (Cost(), Cost()), self.time),
        )
        self.begin()

    def begin(self) -> None:
        """The loops of a new process."""
        self.checkpoints = CheckpointLoop(self.node, every_s=CHECKPOINT_EVERY_S)
        self.clock = RaceClock(self.node, RaceLog(self.store, QUALIFYING, is_lasting=True), self.checkpoints)
        self.weights = WeightsLoop(self.node, self.clock)

    async def settle_in(self) -> None:
        """Register the validator."""
        await self.chain.register(generate_signer())  # uid 0 burns
        await self.chain.register(self.signer)
        await self.chain.set_stake(self.signer.hotkey, 2_000_000_000_000)

    async def hand_in(self, submission: SignedSubmission) -> None:
        """A submission waits from now on, as a door that saw its commitment would have it."""
        slot = await self.chain.commitment(submission.hotkey)
        assert slot is not None and slot.sha256 == submission.commitment_sha256
        await self.store.put_submission(waiting_row(submission, slot.block), submission.source)

    async def submit(
        self, name: str, *, state: str = "qualified", block: int | None = None, kept: str = SOURCE
    ) -> Subject:
        """A registered miner's agent, committed on chain, that the gate accepted and that is in `state`; qualified ones
        have results. `kept`: what is stored."""
        miner = generate_signer()
        await self.chain.register(miner)
        made = make_submission(miner, name, SOURCE, self.time.ms)
        await self.chain.commit(miner, made.commitment_sha256)
        subject = Subject(
            agent_version_id=made.agent_version_id,
            miner_hotkey=miner.hotkey,
            agent_sha256=made.agent_sha256,
            commitment_block=await self.chain.block() if block is None else block,
            commitment_sha256=made.commitment_sha256,
        )
        submission = StoredSubmission(subject=subject, name=name, state="accepted")
        await self.store.put_submission(submission, kept)
        self.names[subject.agent_version_id] = name
        if state == "qualified":
            await self.qualify(subject)
        await self.store.set_submission_state(subject.agent_version_id, state)
        return subject

    async def qualify(self, subject: Subject) -> None:
        """Give an agent the gate's word and its qualifying results under the current policy."""
        await self.node.sequencer.append([log_stand.gate_word(subject, self.policy.policy_sha256)])
        suite = [problem.problem_id for problem in SUITE]
        await self.store.enqueue(qualifying_items(subject, suite, self.policy))
        await self.work(stages=("qualifying",))

    async def work(self, solves: Outcome = lambda _: True, stages: Sequence[str] = ("race",)) -> int:
        """Evaluate everything that can be claimed; returns how many evaluations that made."""
        done = 0
        while leases := await self.store.claim(50, 60_000, stages):
            for lease in leases:
                await self._finish(lease, solves(lease))
                done += 1
        return done

    async def _finish(
        self, lease: Lease, is_success: bool, *, shown: EvaluationBody | None = None, quality_e4: int = 9_000
    ) -> None:
        """Record an episode: what it came to, and the judge's verdict unless there is none now."""
        shown, item, conditions = shown or log_stand.body(next(self._bodies)), lease.item, self.node.conditions
        body = encode_body(shown)
        sha256, rubric_id, why = body.body_sha256, self.policy.rubric.rubric_id, self.unjudged
        evaluation = Evaluation(
            body=shown,
            outcome=log_stand.outcome(is_success),
            verdict=UnscoredVerdict(body_sha256=sha256, rubric_id=rubric_id, failure=why)
            if why is not None
            else judged(self.policy, sha256, quality_e4),
            status="scored",
            failure=None,
            sandbox=conditions.sandbox,
            cost=EpisodeCost(),
        )
        about = {"subject": item.subject, "context": item.context, "conditions": conditions, "body_sha256": sha256}
        records = records_of(evaluation, attempt_id=lease.attempt_id, **about)
        await self.node.sequencer.append(records, (body,), lease)

    async def turn_until(self, *stages: str, race: int = 1, turns: int = 40, seconds: float = 1.0) -> RaceState:
        """Turn, with time passing between turns, until a race is in one of the stages; returns its state."""
        for _ in range(turns):
            await self.clock.turn()
            states = await self.clock.states()
            if len(states) >= race and states[race - 1].stage in stages:
                return states[race - 1]
            self.time.pass_s(seconds)
        raise AssertionError(f"after {turns} turns: {[state.stage for state in await self.clock.states()]}")


# -- a node whose log is signed and anchored, on real Postgres, with a chain and a clock the test moves


class UnsureChain(LocalSubtensor):
    """The local twin, which can lose the reply to a commitment."""

    is_reply_lost = False
    commits: list[str]

    async def commit(self, signer: Signer, sha256: str) -> ChainResult:
        self.commits.append(sha256)
        result = await super().commit(signer, sha256)
        if self.is_reply_lost:
            raise ArenaError("U3030", "the reply was lost")
        return result


class UnsureStore(PostgresStore):
    """A store that can lose the reply to a checkpoint it has stored."""

    is_reply_lost = False

    async def put_checkpoint(self, checkpoint: StoredCheckpoint) -> None:
        await super().put_checkpoint(checkpoint)
        if self.is_reply_lost:
            raise ArenaError("V2021", "the reply was lost")


@asynccontextmanager
async def open_log_desk(server: EmbeddedServer, folder: Path) -> AsyncIterator[LogDesk]:
    """A registered validator of its own on a running server."""
    signer, time = generate_signer(), Time()
    rules = LocalRules(block_ms=BLOCK_MS, finality_blocks=3)
    chain = UnsureChain(folder / "twin.sqlite", now_ms=time, rules=rules)
    chain.commits = []
    store = await UnsureStore.open(server.dsn_for(signer.hotkey), signer.hotkey)
    for each in (generate_signer(), signer):
        await chain.register(each)
    try:
        yield LogDesk(store, signer, folder, time, chain=chain)
    finally:
        await store.close()


class LogDesk(Desk):
    """One validator's log with its checkpoint and anchor loops. `start` is a new process over the same folders."""

    store: UnsureStore
    chain: UnsureChain
    _attempts = 0

    def begin(self) -> None:
        self.checkpoints = CheckpointLoop(self.node)
        self.anchors = AnchorLoop(self.node)

    async def append(self, count: int = 1) -> int:
        """Append some records; returns the log's size."""
        first, self._attempts = self._attempts, self._attempts + count
        return (await self.node.sequencer.append([attempt(first + number) for number in range(count)])).seq

    async def signed(self, count: int = 1) -> StoredCheckpoint | None:
        """Append, and sign."""
        await self.append(count)
        return await self.checkpoints.sign()

    async def stored(self) -> list[StoredCheckpoint]:
        return await self.store.checkpoints()

    def metric(self, name: str) -> float | None:
        return self.node.metrics.registry.get_sample_value(f"arena_{name}")
