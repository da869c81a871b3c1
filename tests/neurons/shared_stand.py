"""Validators that share races in one process: real store, chain, exchange, checkpoints and clocks; the test moves time.

Each has a log of its own on one Postgres; they have nothing else in common but the chain, the beacon, the operator's
batches and their desks.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path

from msgspec.structs import replace

from arena.chain.keys import generate_signer, verify
from arena.chain.local import LocalRules, LocalSubtensor
from arena.chain.port import ChainResult, Signer
from arena.exchange.peer_logs import PeerLogStore
from arena.exchange.peer_service import PeerService
from arena.exchange.port import Progress
from arena.exchange.pull import Puller
from arena.policies import PAPER
from arena.race.decider import qualifying_items
from arena.race.machine import RaceState
from arena.race.schedule import race_number
from arena.records.model import Subject
from arena.records.port import StoredSubmission
from arena.submissions.model import make_submission
from neurons.loops.checkpoints import AnchorLoop
from neurons.loops.node import Permits, Sharing
from tests.arena import log_stand
from tests.arena.bank_stand import SeededMaker, open_bank
from tests.arena.local_peers import LocalPeers
from tests.neurons.clock_stand import CATALOGUE, POLICY, START_MS, SUITE, Desk, Outcome, Time

HOUR_MS = 3_600_000
DAILY = replace(
    POLICY,
    name="daily",
    admission=PAPER.admission,
    race=replace(
        POLICY.race,
        closes_after_ms=None,
        validators_per_problem=2,
        qualifying_grace_ms=HOUR_MS,
        beacon_grace_ms=8 * HOUR_MS,
        run_ms=10 * HOUR_MS,
        reveal_ms=3 * HOUR_MS,
        agree_ms=HOUR_MS,
        stand_in_ms=HOUR_MS,
    ),
)
CLOSES_MS = START_MS + 12 * HOUR_MS  # noon of the first day, in Los Angeles


class LyingChain(LocalSubtensor):
    """Says on chain that its validator settled something else."""

    lies_from_ms = 0

    async def commit(self, signer: Signer, sha256: str) -> ChainResult:
        """Nonsense in place of a countersignature."""
        is_lie = 0 < self.lies_from_ms <= self._now_ms()
        return await super().commit(signer, "ab" * 32 if is_lie else sha256)


class SharedDesk(Desk):
    """One validator of several."""

    def __init__(self, store, signer: Signer, folder: Path, time: Time, chain: LocalSubtensor) -> None:
        self.is_absent = False
        self.solves: Outcome = lambda lease: "good" in self.names.get(lease.item.subject.agent_version_id, "")
        self.gate: Callable[[str], str] = lambda name: "accept"
        self._own = folder / signer.hotkey
        self._own.mkdir()
        self._given = (folder, chain)
        super().__init__(store, signer, self._own, time, DAILY)

    def start(self, policy) -> None:
        folder, self.chain = self._given
        first = race_number(CLOSES_MS, DAILY.race)
        self.stock = open_bank(folder / "bank", self.beacon, SeededMaker(CATALOGUE, first))
        super().start(policy)
        self.held = PeerLogStore(self._own / "held")
        self.peers = LocalPeers(self.signer.hotkey)
        sharing = Sharing(
            listener=None,  # type: ignore[arg-type]  # nobody answers over a socket here
            store=self.store,
            auth=None,  # type: ignore[arg-type]
            peers=self.peers,
            peer_logs=self.held,
            puller=Puller(self.peers, self.held, verify),
            endpoint="",
            permits=Permits(),
        )
        self.node = dataclasses.replace(self.node, sharing=sharing)
        self.begin()
        self.anchors = AnchorLoop(self.node, is_quiet=self.clock.is_quiet)
        self.door = PeerService(
            self.store,
            self.held,
            has_permit=lambda _: True,
            gate=self.clock.reveal_gate,
            terms=lambda _: Progress(policy_sha256=policy.policy_sha256, guest_sha256=""),
            settled=self.clock.settlement,
        )

    async def take(self, subject: Subject, name: str, source: str) -> None:
        """An agent that the gate accepted, with this validator's qualifying results."""
        agent = subject.agent_version_id
        self.names[agent] = name
        await self.store.put_submission(StoredSubmission(subject=subject, name=name, state="accepted"), source)
        await self.store.enqueue(qualifying_items(subject, [problem.problem_id for problem in SUITE], self.policy))
        await self.work(lambda _: True, stages=("qualifying",))
        await self.store.set_submission_state(agent, "qualified")
        said = log_stand.gate_word(subject, self.policy.policy_sha256, self.gate(name))
        await self.node.sequencer.append([said])

    async def turn(self) -> None:
        """One turn of every loop."""
        if self.is_absent:
            return
        for _ in range(6):  # what follows at once from what was done
            before = await self.clock.turn()
            await self.clock.peers.rest()
            await self.work(self.solves)
            if before == await self.clock.turn():
                break
        await self.checkpoints.turn()
        await self.anchors.turn()
        await self.weights.turn()

    async def race(self, number: int) -> RaceState:
        return (await self.clock.states())[number - 1]


def chain_at(folder: Path, time: Time, kind: type[LocalSubtensor] = LocalSubtensor) -> LocalSubtensor:
    """The one chain of all validators, with the real one's limit of commitments."""
    rules = LocalRules(
        block_ms=12_000, finality_blocks=3, tempo=360, weights_rate_limit_blocks=100, commitment_rate_limit_blocks=100
    )
    return kind(folder / "chain.sqlite", now_ms=time, rules=rules)


async def enrol(desks: Sequence[SharedDesk], stakes: Sequence[int], folder: Path) -> None:
    """Register everybody, and introduce them to each other."""
    chain = desks[0].chain
    await chain.register(generate_signer())  # uid 0 burns
    for desk, stake in zip(desks, stakes, strict=True):
        await chain.register(desk.signer)
        await chain.set_stake(desk.signer.hotkey, stake * 1_000_000_000_000)
        await desk.checkpoints.open()
    for desk in desks:
        desk.peers.services = {other.signer.hotkey: other.door for other in desks}


async def submit(desks: Sequence[SharedDesk], name: str, miner: Signer | None = None) -> Subject:
    """A miner's agent, committed on chain and accepted everywhere."""
    miner, chain = miner or generate_signer(), desks[0].chain
    await chain.register(miner)
    made = make_submission(miner, name, f"def agent_main(problem):\n    return '{name}'\n", desks[0].time.ms)
    await chain.commit(miner, made.commitment_sha256)
    committed = await chain.commitment(miner.hotkey)
    assert committed is not None
    subject = Subject(
        agent_version_id=made.agent_version_id,
        miner_hotkey=miner.hotkey,
        agent_sha256=made.agent_sha256,
        commitment_block=committed.block,
        commitment_sha256=made.commitment_sha256,
    )
    for desk in desks:
        await desk.take(subject, name, made.source)
    return subject
