"""What a race asks of the others: one that stalls costs its own answer, never another's, nor a moment of the race."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import aclosing
from pathlib import Path
from types import SimpleNamespace

import pytest
from msgspec.structs import replace

from arena.chain.port import Metagraph, Neuron
from arena.exchange.port import Peer, RowsQuestion
from arena.exchange.pull import PullJob, PullPace
from arena.race.agreement import countersign_value
from arena.race.machine import AdoptSettlement, AnchoredLog, ChainRead, PullLogs, RaceState
from arena.race.settle import settlement_sha256
from arena.records.model import PastSettlement
from foundation.errors import ArenaError
from neurons.race.peers import PULL_PAUSES, RacePeers
from tests.arena.exchange_stand import RACE, LocalNet, LocalPeers, Node, PeerFault
from tests.arena.log_stand import settlement
from tests.arena.race_stand import inputs, solves

LONG_MS = 3_600_000
PATIENCE_S = 30.0  # of a test with what would wait for ever


class Stalling(LocalPeers):
    """Peers of which some send a row, and then nothing for ever; those that are slow wait as `wait` does."""

    def __init__(self, caller: str) -> None:
        super().__init__(caller, sleep=lambda _: self.wait())
        self.wait = asyncio.Event().wait
        self.stalled: set[str] = set()
        self.stuck, self.ended = list[str](), list[str]()  # whose rows were waited for, and are not any more

    async def rows(self, peer: Peer, question: RowsQuestion):
        async with aclosing(super().rows(peer, question)) as rows:
            async for row in rows:
                yield row
                if peer.hotkey in self.stalled:
                    self.stuck.append(question.validator)
                    try:
                        await asyncio.Event().wait()
                    finally:
                        self.ended.append(question.validator)


class Others:
    """This node and two more validators of a race, by hotkey; time is a number."""

    def __init__(self, folder: Path) -> None:
        permits: set[str] = set()
        self.me, *others = (Node(folder, permits) for _ in range(3))
        self.first, self.second = sorted(others, key=lambda node: node.hotkey)
        self.net, self.now_ms, self.warned = LocalNet(), 1_000_000, list[str]()
        self.net.nodes = [self.first, self.second]
        self.ask = Stalling(self.me.hotkey)
        self.ask.services = self.net.peers(self.me).services
        puller = self.me.puller(self.ask, pace=PullPace(window_s=1_000, most_s=2_000))
        neurons = [
            Neuron(uid=uid, hotkey=node.hotkey, has_validator_permit=True)
            for uid, node in enumerate((self.me, self.first, self.second))
        ]
        metagraph = Metagraph(netuid=1, block=1, tempo=360, neurons=tuple(neurons))
        closing = ChainRead(moment="closing", block=1, commitments=(), metagraph=metagraph)
        self.state = RaceState(race_id=RACE, reads=(closing,))
        self.peers = RacePeers(
            SimpleNamespace(
                sharing=SimpleNamespace(puller=puller, peer_logs=self.me.held, peers=self.ask),
                chain=SimpleNamespace(metagraph=lambda: asyncio.sleep(0, metagraph)),
                now_ms=lambda: self.now_ms,
                signer=self.me.signer,
                log=SimpleNamespace(
                    warning=lambda *_, code, **about: self.warned.append(f"{about.get('peer')} {code}"),
                    info=lambda *_, **about: None,
                ),
            )  # type: ignore[arg-type]  # what a race asks with, and nothing more
        )

    async def anchor(self, node: Node, race_id: str = RACE) -> AnchoredLog:
        """What the chain holds of a validator that evaluated and anchored."""
        await node.evaluate([1], race_id)
        wanted = await node.anchor(race_id)
        return AnchoredLog(validator=wanted.validator, note_sha256=wanted.note_sha256)

    async def pull(self, *logs: AnchoredLog, left_ms: int = LONG_MS, roll: str = "results") -> None:
        until_ms = self.now_ms + left_ms
        await self.peers.pull(PullLogs(roll=roll, logs=logs, until_ms=until_ms), self.state)

    def held(self, race_id: str = RACE) -> list[str]:
        return [log.validator for log in self.me.held.held(race_id)]


@pytest.fixture
async def others(tmp_path: Path):
    made = Others(tmp_path)
    yield made
    await made.peers.close()


async def until(is_so: Callable[[], object]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not is_so():
            await asyncio.sleep(0.005)


async def test_a_log_that_is_stuck_delays_no_retry_of_another(others: Others) -> None:
    stuck, honest = await others.anchor(others.first), await others.anchor(others.second)
    others.ask.stalled = {others.first.hotkey}
    others.ask.faults[others.second.hotkey] = PeerFault(is_away=True)
    await others.pull(stuck, honest)
    await until(lambda: others.ask.stuck and f"{others.second.hotkey} U3040" in others.warned)
    del others.ask.faults[others.second.hotkey]
    others.now_ms += PULL_PAUSES.first_ms
    await others.pull(stuck, honest)
    await until(others.held)
    assert others.held() == [others.second.hotkey]
    assert (others.ask.stuck, others.ask.ended) == ([others.first.hotkey], [])  # it goes on, and was not begun again


async def test_an_ignored_peer_is_asked_nothing_and_its_log_comes_from_others_once_it_counts(others: Others) -> None:
    log = await others.anchor(others.first)
    (others.me.folder / "held" / "ignored.txt").write_text(f"{others.first.hotkey}\n")
    await others.pull(log)
    await asyncio.wait_for(others.peers.rest(), PATIENCE_S)
    assert (others.held(), others.warned) == ([], [])
    wanted = PullJob(validator=log.validator, note_sha256=log.note_sha256, race_id=RACE)
    await others.second.puller(others.net.peers(others.second)).pull(wanted, [Peer(hotkey=log.validator, endpoint="")])
    others.second.reveal()
    counted = ChainRead(moment="results_receipt", block=2, commitments=())
    others.state = replace(others.state, reads=(*others.state.reads, counted))
    del others.ask.services[others.first.hotkey]
    await others.pull(log)
    await until(others.held)
    assert others.warned == []


async def test_a_folder_that_cannot_be_written_is_said_at_the_next_turn_and_asked_again(
    others: Others, monkeypatch
) -> None:
    log = await others.anchor(others.first)

    def full(race_id: str) -> None:
        raise ArenaError("V2064", "no room")

    with monkeypatch.context() as patched:
        patched.setattr(others.me.held, "writer", full)
        await others.pull(log)
        await asyncio.wait_for(others.peers.rest(), PATIENCE_S)
    others.now_ms += PULL_PAUSES.first_ms
    with pytest.raises(ArenaError, match="V2064"):
        await others.pull(log)
    await asyncio.wait_for(others.peers.rest(), PATIENCE_S)
    assert others.held() == [others.first.hotkey]


@pytest.mark.parametrize("fault", [PeerFault(slow_s=1), PeerFault(is_lying=True), PeerFault(is_away=True)])
async def test_a_settlement_and_its_history_are_adopted_from_whoever_shows_them(
    others: Others, fault: PeerFault, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("neurons.race.peers.ANSWER_MS_MAX", 500)
    past = settlement("r0")
    named = PastSettlement(race_id="r0", settlement_sha256=settlement_sha256(past))
    found = replace(settlement(RACE), inputs=replace(inputs((), solves({})).stated, history=(named,)))
    for node in (others.first, others.second):
        node.settlements = {RACE: found, "r0": past}
        node.desk = node.make_desk()
    others.ask.services = {node.hotkey: node.desk for node in (others.first, others.second)}
    others.ask.faults[others.first.hotkey] = fault
    effect = AdoptSettlement(value=countersign_value(RACE, settlement_sha256(found)))
    event = await asyncio.wait_for(others.peers.adopt(effect, others.state, []), PATIENCE_S)
    assert (event.settlement, event.history, event.is_adopted) == (found, (past,), True)
    for node in (others.first, others.second):
        del node.settlements["r0"]
    others.ask.faults = {}
    with pytest.raises(ArenaError, match="U3040"):
        await others.peers.adopt(effect, others.state, [])


async def test_a_silent_peer_holds_up_no_turn_and_costs_its_own_answer(others: Others, monkeypatch) -> None:
    monkeypatch.setattr("neurons.race.peers.ANSWER_MS_MAX", 50)
    others.ask.faults[others.first.hotkey] = PeerFault(slow_s=1)

    def heard() -> object:
        return others.peers.hear("progress", RACE, lambda: others.peers.done(others.state, []))

    assert heard() is None  # it is under way
    await until(lambda: heard() is not None)
    assert others.warned == [f"{others.first.hotkey} U3040"]
    assert others.peers.said_of(RACE) == {others.second.hotkey: set()}
