"""A network of validators in virtual time: real clocks, stores, chain, exchange and settlements, and stub episodes.

Each has a log of its own on one Postgres; they have nothing else in common but the chain, the beacon, the operator's
batches and their doors. What an agent does is drawn from its skill once for each problem; what a validator records of
it is that, or with a few per cent the opposite, each validator for itself. Liars, deaths and absences are set from
outside (`tests.simulation.run`).
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import random
from collections import Counter
from pathlib import Path

import msgspec
from msgspec.structs import replace

from arena.chain.beacon import LocalBeacon
from arena.chain.keys import keypair_signer, verify
from arena.chain.local import LocalRules, LocalSubtensor
from arena.chain.port import ChainResult, Signer
from arena.exchange.peer_logs import PeerLogStore
from arena.exchange.peer_service import PeerService, ShareRules
from arena.exchange.port import Progress
from arena.exchange.pull import Puller
from arena.policies import PAPER
from arena.policy import Policy
from arena.race.decider import qualifying_items
from arena.race.machine import race_name
from arena.race.schedule import Timeline, race_number, timeline
from arena.records.model import Subject
from arena.records.port import Lease, LeaseLostError, StoredSubmission
from arena.store.postgres import PostgresStore
from arena.submissions.submission import SignedSubmission, make_submission
from foundation.errors import Failure
from neurons.loops.checkpoints import AnchorLoop
from neurons.loops.node import Sharing
from neurons.loops.run_loop import StopSignal
from neurons.race.episodes import EpisodeLoop, sweep
from problems.model import Product
from tests.arena import log_stand
from tests.arena.bank_stand import open_bank, problems_of, put_sealed, sealed_file
from tests.arena.chain_faults import deregister
from tests.arena.exchange_stand import LocalPeers
from tests.neurons.clock_stand import POLICY, START_MS, SUITE, Desk, Time
from tests.problems.stand import make_catalogue
from tests.simulation.faults import Crash, FaultyStore

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
CLOSES_MS = START_MS + 12 * HOUR_MS  # noon of the first day, in Los Angeles
LEASE_MS = 1_000  # by the server's clock, which nothing here moves
CHAIN = LocalRules(  # with the real one's limit of commitments
    block_ms=12_000, finality_blocks=3, tempo=360, weights_rate_limit_blocks=100, commitment_rate_limit_blocks=100
)
SHARES = ShareRules(
    requests_per_s=1e6, requests_burst=1_000_000, bytes_per_s=float(1 << 40), bytes_burst=1 << 40
)  # days pass in seconds: a caller's share of a second means nothing


class Size(msgspec.Struct, frozen=True, kw_only=True):
    """How large a simulation is."""

    stakes: tuple[int, ...]  # thousands of TAO, one each validator
    miners: int
    races: int
    problems: int = 10
    step_ms: int = HOUR_MS // 2  # between two turns; a window in which something is to be said on chain is an hour long

    @property
    def policy(self) -> Policy:
        """Daily races, shared by all validators."""
        copies = min(3, len(self.stakes))
        race = replace(
            POLICY.race,
            closes_after_ms=None,
            problems=self.problems,
            batch_problems=self.problems + 2,
            validators_per_problem=copies,
            results_required=min(2, copies),
            qualifying_grace_ms=HOUR_MS,
            beacon_grace_ms=8 * HOUR_MS,
            run_ms=10 * HOUR_MS,
            reveal_ms=3 * HOUR_MS,
            agree_ms=HOUR_MS,
            stand_in_ms=HOUR_MS,
            retry_ms=1,
            retry_max_ms=1,
        )
        return replace(POLICY, name="simulated", admission=PAPER.admission, race=race)


class Miner(msgspec.Struct, frozen=True, kw_only=True):
    """An agent and what it is worth: how often it solves a problem, and how well it reasons then."""

    signer: Signer
    agent_version_id: str
    skill: float
    quality_e4: int


LIE = "ab" * 32


class LyingChain(LocalSubtensor):
    """Says on chain that its validator settled something else."""

    lies_from_ms = 0

    async def commit(self, signer: Signer, sha256: str) -> ChainResult:
        """Nonsense in place of a countersignature."""
        is_lie = 0 < self.lies_from_ms <= self._now_ms()
        return await super().commit(signer, LIE if is_lie else sha256)


class World:
    """Everything the validators of one simulation have in common."""

    def __init__(self, size: Size, seed: int, folder: Path) -> None:
        self.size, self.seed, self.folder = size, seed, folder
        self.policy = size.policy
        self.time = Time()
        self.counts: Counter[str] = Counter()
        self.desks: list[SimulatedDesk] = []
        self.miners: list[Miner] = []  # those that are registered
        self.known: dict[str, Miner] = {}  # everybody ever, by agent
        self.sybils: frozenset[str] = frozenset()  # agents that fault at every validator on half of the problems
        self.dice = random.Random(f"world {seed}")
        self.chain = LyingChain(folder / "chain.sqlite", now_ms=self.time, rules=CHAIN)

    def plan(self, number: int) -> Timeline:
        """The moments of a race, counted from 0. Clocks do not change within the days that are simulated."""
        return timeline(CLOSES_MS + number * DAY_MS, self.policy.race)

    def signer(self, name: str) -> Signer:
        """The same at every run of a seed."""
        return keypair_signer(f"//simulated//{self.seed}//{name}")

    async def open(self, dsn_for) -> None:
        """Register validators and miners, open the logs and fill the operator's bank."""
        await self.chain.register(self.signer("owner"))  # uid 0 burns
        for number, stake in enumerate(self.size.stakes):
            signer = self.signer(f"validator{number}")
            store = await PostgresStore.open(dsn_for(signer.hotkey), signer.hotkey)
            self.desks.append(SimulatedDesk(number, store, signer, self))
            await self.enrol(number, stake)
        self.introduce()
        for desk in self.desks:
            await desk.checkpoints.open()
        products = make_catalogue(400 + 40 * self.size.races)
        for number in range(self.size.races + 2):
            self.seal(number, products)
        for _ in range(self.size.miners):
            await self.join()

    def seal(self, number: int, products: tuple[Product, ...]) -> None:
        """The batch of a race, sealed before anybody asks for it: its salt, too, follows from the seed."""
        problems = problems_of(products, number, self.policy.race.batch_problems)
        opens_with = LocalBeacon(self.time).round_after(self.plan(number).closing_ms)
        salts = random.Random(f"bank {self.seed} {number}")
        put_sealed(self.folder / "bank", sealed_file(self.race_id(number), problems, opens_with, salts))

    def race_id(self, number: int) -> str:
        """The name of a race, counted from 0."""
        return race_name(race_number(self.plan(number).closing_ms, self.policy.race))

    async def enrol(self, number: int, stake: int) -> None:
        """Register a validator, and put its stake behind it."""
        hotkey = self.desks[number].signer.hotkey
        await self.chain.register(self.desks[number].signer)
        await self.chain.set_stake(hotkey, stake * 1_000_000_000_000)

    def introduce(self) -> None:
        """Let every validator reach every other."""
        for desk in self.desks:
            desk.peers.services = {other.signer.hotkey: other.door for other in self.desks}

    async def join(self) -> None:
        """A new miner whose agent is committed on chain and accepted everywhere."""
        number = len(self.known)
        name, signer = f"agent-{number}", self.signer(f"miner{number}")
        await self.chain.register(signer)
        made = make_submission(signer, name, f"def agent_main(problem):\n    return '{name}'\n", self.time.ms)
        await self.chain.commit(signer, made.commitment_sha256)
        for desk in self.desks:
            await desk.take(made)
        miner = Miner(
            signer=signer,
            agent_version_id=made.agent_version_id,
            skill=0.3 + 0.65 * self.dice.random(),
            quality_e4=self.dice.randrange(8_000, 10_001),
        )
        self.miners.append(miner)
        self.known[miner.agent_version_id] = miner

    def is_provoked(self, agent: str, problem_id: str) -> bool:
        """Whether an episode ends in a fault of the validator, whoever runs it."""
        return agent in self.sybils and random.Random(f"{self.seed} provoked {agent} {problem_id}").random() < 0.5

    async def leave(self) -> None:
        """A miner's uid is bought by a newcomer."""
        gone = self.miners.pop(self.dice.randrange(len(self.miners)))
        await deregister(self.chain, gone.signer.hotkey)
        await self.join()

    def happened(self, agent: str, problem_id: str) -> tuple[bool, int, bool]:
        """What an agent really does on a problem: solved, how well it reasons, whether the model drives."""
        dice, miner = random.Random(f"{self.seed}/{agent}/{problem_id}"), self.known.get(agent)
        if miner is None:  # the control agent
            return dice.random() < 0.5, 9_000, True
        is_solved = dice.random() < miner.skill
        return is_solved, miner.quality_e4 - dice.randrange(0, 1_000), dice.random() < 0.9


class SimulatedDesk(Desk):
    """One validator: its honest machine, its noise, and the faults that are set on it."""

    def __init__(self, number: int, store: PostgresStore, signer: Signer, world: World) -> None:
        self.number, self.world, self.real_store = number, world, store
        self.flip_rate = 0.05 + 0.05 * random.Random(f"{world.seed} noise {number}").random()
        self.is_absent = self.is_liar = self.is_boasting = self.has_copied = False
        self.peers = LocalPeers(signer.hotkey)
        (folder := world.folder / signer.hotkey).mkdir()
        chain = LyingChain(world.folder / "chain.sqlite", now_ms=world.time)
        faulty = FaultyStore(store, world.counts)
        super().__init__(faulty, signer, folder, world.time, world.policy, chain)  # type: ignore[arg-type]

    def start(self, policy: Policy = POLICY) -> None:
        """A new process over the same folders; how others treat it stays as it was."""
        self.bank = open_bank(self.world.folder / "bank", self.beacon)
        super().start(self.world.policy)
        self.held = PeerLogStore(self.folder / "held")
        sharing = Sharing(
            listener=None,  # type: ignore[arg-type]  # nobody answers over a socket here
            store=self.store,
            auth=None,  # type: ignore[arg-type]
            peers=self.peers,
            peer_logs=self.held,
            puller=Puller(self.peers, self.held, verify),
            endpoint="",
        )
        self.node = dataclasses.replace(self.node, sharing=sharing)
        self.node.committed.add(LIE)  # a liar knows of it
        self.begin()
        self.anchors = AnchorLoop(self.node, is_quiet=self.clock.is_quiet)
        self.door = PeerService(
            self.store,
            self.held,
            has_permit=lambda _: True,
            gate=self.clock.reveal_gate,
            progress=self.progress,
            settled=self.clock.settlement,
            rules=SHARES,
        )

    def progress(self, race_id: str) -> Progress | None:
        """As `RaceClock.progress`; one that boasts says that it has done every pair there is."""
        told, state = self.clock.progress(race_id), self.clock.current()
        if not self.is_boasting or told is None or state is None or not (state.field and state.draw):
            return told
        agents = [each.subject.agent_version_id for each in state.field.field]
        return replace(told, done=tuple((agent, problem) for agent in agents for problem in state.draw.drawn))

    async def take(self, made: SignedSubmission) -> None:
        """An agent that the gate accepted, with this validator's qualifying results, whatever it takes."""
        slot = await self.chain.commitment(made.hotkey)
        assert slot is not None
        subject = Subject(
            agent_version_id=made.agent_version_id,
            miner_hotkey=made.hotkey,
            agent_sha256=made.agent_sha256,
            commitment_block=slot.block,
            commitment_sha256=made.commitment_sha256,
        )
        try:
            await self._accept(subject, made)
        except Crash:
            await self.restart()
            await self._accept(subject, made)

    async def _accept(self, subject: Subject, made: SignedSubmission) -> None:
        agent = subject.agent_version_id
        await self.store.put_submission(
            StoredSubmission(subject=subject, name=made.name, state="accepted"), made.source
        )
        await self.store.enqueue(qualifying_items(subject, [problem.problem_id for problem in SUITE], self.policy))
        await self.work(stages=("qualifying",))
        await self.store.set_submission_state(agent, "qualified")
        await self.node.sequencer.append([log_stand.gate_word(subject, self.policy.policy_sha256)])

    async def turn(self) -> None:
        """One turn of every loop; a death in it is followed by a new start."""
        for _ in range(0 if self.is_absent else 2):
            try:
                for _ in range(6):  # what follows at once from what was done
                    before = await self.clock.turn()
                    await self.clock.peers.rest()
                    await self.work()
                    if before == await self.clock.turn():
                        break
                await self.checkpoints.turn()
                await self.anchors.turn()
                await self.weights.turn()
                await self.end_pull()
                return
            except Crash:
                await self.restart()

    async def end_pull(self) -> None:
        """What was asked for comes within the turn: nothing depends on how fast this machine is."""
        peers = self.clock.peers  # of the driver under test: time may only pass when nothing is under way
        if await peers.rest():
            await self.clock.turn()

    async def restart(self) -> None:
        """Die, and start again once the leases that were held have run out."""
        await self.clock.peers.close()
        self.start()
        self.world.introduce()
        await self.checkpoints.open()
        await asyncio.sleep(LEASE_MS / 1_000)
        await sweep(self.node)

    async def work(self, solves=None, stages=("race",)) -> int:
        """Evaluate what can be claimed; one that boasts does no race's work."""
        done = 0
        while not ("race" in stages and self.is_boasting):
            leases = await self.store.claim(10, LEASE_MS, stages)
            for lease in leases:
                with contextlib.suppress(LeaseLostError):
                    await self._finish(lease, True)
                    done += 1
            if not leases and not await self.swept():
                break
        return done

    async def swept(self) -> bool:
        """Record what ran out; whether anything did."""
        if not await self.store.expired():
            return False
        await sweep(self.node)
        return True

    async def _finish(self, lease: Lease, is_success: bool) -> None:
        """Record what this validator saw of an episode."""
        subject, context = lease.item.subject, lease.item.context
        agent, problem_id = subject.agent_version_id, context.problem_id
        if context.stage == "race" and self.world.is_provoked(agent, problem_id):
            self.world.counts["faults provoked"] += 1
            await EpisodeLoop(self.node, StopSignal(self.node.now_ms))._fault(
                lease, Failure(code="V2004", detail="provoked")
            )
            return
        is_solved, quality_e4, is_agentic = self.world.happened(agent, problem_id)
        noise = random.Random(f"{self.world.seed}/{self.number}/{agent}/{problem_id}")
        if context.stage == "race":
            if noise.random() < self.flip_rate:
                is_solved = not is_solved
                self.world.counts["outcomes flipped"] += 1
            if noise.random() < self.flip_rate:
                quality_e4 = 5_000
                self.world.counts["verdicts flipped"] += 1
            if self.is_liar:
                is_solved = not is_solved
                self.world.counts["results lied about"] += 1
        shown = log_stand.body(noise.randrange(1 << 40), 60)
        shown = replace(
            shown,
            agent_sha256=subject.agent_sha256,
            problem_id=problem_id,
            policy_sha256=self.policy.policy_sha256,
            is_agentic=is_agentic,
        )
        is_success = is_solved or context.stage == "qualifying"
        await super()._finish(lease, is_success, shown=shown, quality_e4=quality_e4)
