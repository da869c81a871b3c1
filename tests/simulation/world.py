"""A network of validators in virtual time: real clocks, stores, chain, exchange and settlements, and stub episodes.

What an agent does is drawn from its skill once for each problem; what a validator records of it is that, or with a few
per cent the opposite, each validator for itself. Liars, deaths and absences are set from outside (`race_day`).
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import Counter
from pathlib import Path

import msgspec
from msgspec.structs import replace

from arena.chain.beacon import LocalBeacon
from arena.chain.keys import keypair_signer
from arena.chain.port import Signer
from arena.exchange.peer_service import PeerService, ShareRules
from arena.exchange.port import Progress
from arena.policy import Policy
from arena.race.machine import race_name
from arena.race.schedule import Timeline, race_number, timeline
from arena.records.model import Subject
from arena.records.port import Lease, LeaseLostError
from arena.store.postgres import PostgresStore
from foundation.errors import Failure
from neurons.loops.run_loop import StopSignal
from neurons.race.episodes import EpisodeLoop, sweep
from problems.model import Product
from tests.arena import log_stand
from tests.arena.bank_stand import problems_of, put_sealed, sealed_file
from tests.arena.chain_faults import deregister
from tests.neurons.clock_stand import Time
from tests.neurons.shared_stand import CLOSES_MS, DAILY, HOUR_MS, LyingChain, SharedDesk, chain_at, submit
from tests.problems.stand import make_catalogue
from tests.simulation.faults import Crash, FaultyStore

DAY_MS = 24 * HOUR_MS
LEASE_MS = 1_000  # by the server's clock, which nothing here moves
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
            DAILY.race,
            problems=self.problems,
            batch_problems=self.problems + 2,
            validators_per_problem=copies,
            results_required=min(2, copies),
            retry_ms=1,
            retry_max_ms=1,
        )
        return replace(DAILY, name="simulated", race=race)


class Miner(msgspec.Struct, frozen=True, kw_only=True):
    """An agent and what it is worth: how often it solves a problem, and how well it reasons then."""

    signer: Signer
    agent_version_id: str
    subject: Subject
    skill: float
    quality_e4: int


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
        self.chain = chain_at(folder, self.time, LyingChain)

    def plan(self, number: int) -> Timeline:
        """The moments of a race, counted from 0. Clocks do not change within the days that are simulated."""
        return timeline(CLOSES_MS + number * DAY_MS, self.policy.race)

    async def open(self, dsn_for) -> None:
        """Register validators and miners, open the logs and fill the operator's bank."""
        await self.chain.register(keypair_signer(f"//simulated//{self.seed}//owner"))  # uid 0 burns
        for number, stake in enumerate(self.size.stakes):
            signer = keypair_signer(f"//simulated//{self.seed}//validator{number}")
            store = await PostgresStore.open(dsn_for(signer.hotkey), signer.hotkey)
            chain = LyingChain(self.folder / "chain.sqlite", now_ms=self.time)
            self.desks.append(SimulatedDesk(number, store, signer, chain, self))
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

    async def join(self) -> Miner:
        """A new miner whose agent is accepted everywhere."""
        number = len(self.known)
        signer = keypair_signer(f"//simulated//{self.seed}//miner{number}")
        subject = await submit(self.desks, f"agent-{number}", signer)
        miner = Miner(
            signer=signer,
            agent_version_id=subject.agent_version_id,
            subject=subject,
            skill=0.3 + 0.65 * self.dice.random(),
            quality_e4=self.dice.randrange(8_000, 10_001),
        )
        self.miners.append(miner)
        self.known[subject.agent_version_id] = miner
        return miner

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


class Door(PeerService):
    """What a validator answers others; one that boasts says that it has done every pair there is."""

    def __init__(self, owner: SimulatedDesk, *ports, **options) -> None:
        super().__init__(*ports, **options)
        self._owner = owner

    async def progress(self, race_id: str) -> Progress | None:
        """As `PeerService.progress`."""
        told, state = await super().progress(race_id), self._owner.clock.current()
        if not self._owner.is_boasting or told is None or state is None or not (state.field and state.draw):
            return told
        agents = [each.subject.agent_version_id for each in state.field.field]
        return replace(told, done=tuple((agent, problem) for agent in agents for problem in state.draw.drawn))


class SimulatedDesk(SharedDesk):
    """One validator: its honest machine, its noise, and the faults that are set on it."""

    def __init__(self, number: int, store: PostgresStore, signer: Signer, chain: LyingChain, world: World) -> None:
        self.number, self.world = number, world
        self.flip_rate = 0.05 + 0.05 * random.Random(f"{world.seed} noise {number}").random()
        self.is_liar = self.is_boasting = self.has_copied = False
        self.real_store = store
        faulty = FaultyStore(store, world.counts)
        super().__init__(faulty, signer, world.folder, world.time, chain)  # type: ignore[arg-type]

    def start(self, policy: Policy) -> None:
        """A new process over the same folders; how others treat it stays as it was."""
        before = getattr(self, "peers", None)
        super().start(self.world.policy)
        self.peers.faults = before.faults if before else {}
        self.door = Door(
            self,
            self.store,
            self.held,
            has_permit=lambda _: True,
            gate=lambda: self.clock.reveal_gate(),
            terms=lambda _: Progress(policy_sha256=self.policy.policy_sha256, guest_sha256=""),
            settled=lambda race_id: self.clock.settlement(race_id),
            rules=SHARES,
        )

    async def take(self, subject: Subject, name: str, source: str) -> None:
        """An agent that the gate accepted, whatever it takes."""
        try:
            await super().take(subject, name, source)
        except Crash:
            await self.restart()
            await super().take(subject, name, source)

    async def turn(self) -> None:
        """One turn of every loop; a death in it is followed by a new start."""
        for _ in range(2):
            try:
                await super().turn()
                await self.end_pull()
                return
            except Crash:
                await self.restart()

    async def end_pull(self) -> None:
        """What was asked for comes within the turn: nothing depends on how fast this machine is."""
        peers = self.clock.peers  # of the driver under test: time may only pass when nothing is under way
        if peers._pulling:
            await peers.rest()
            await self.clock.turn()

    async def restart(self) -> None:
        """Die, and start again once the leases that were held have run out."""
        await self.clock.peers.close()
        self.start(self.policy)
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
        await super()._finish(lease, is_success, shown=shown, quality_e4=quality_e4, coefficient_e4=quality_e4)
