"""What only the local chain promises: one file for many processes, a clock that is given, controls of its own."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import httpx2
import pytest
from bittensor import settings

from arena.chain.keys import keypair_signer
from arena.chain.local import ROUTE, LocalRules, LocalSubtensor, RemoteSubtensor
from arena.chain.opening import NETWORKS, open_subtensor
from arena.chain.real import BittensorSubtensor
from foundation.errors import ArenaError
from tests.arena.chain_faults import deregister
from tests.arena.chain_stands import BLOCK_MS, NETUID, Clock, served_stand

ROOT = Path(__file__).parents[2]
ALICE, BOB, EVE, DAVE = (keypair_signer(f"//{name}") for name in ("Alice", "Bob", "Eve", "Dave"))

_WRITER = """
import asyncio, sys, time
from pathlib import Path
from arena.chain.keys import keypair_signer
from arena.chain.local import LocalSubtensor

async def main(path, uri, count):
    chain = LocalSubtensor(Path(path), now_ms=lambda: time.time_ns() // 1_000_000)
    signer = keypair_signer(uri)
    await chain.register(signer)
    for index in range(int(count)):
        result = await chain.commit(signer, f"{index:064x}")
        assert result.status == "ok", result
        print(index, flush=True)

asyncio.run(main(*sys.argv[1:]))
"""


async def test_blocks_follow_the_clock_and_a_clock_that_steps_back_takes_none_back(tmp_path: Path) -> None:
    clock = Clock()
    chain = LocalSubtensor(tmp_path / "chain.sqlite", now_ms=clock, rules=LocalRules(block_ms=BLOCK_MS))
    assert (await chain.block(), await chain.finalized_block()) == (1, 0)
    clock.now_ms += 10 * BLOCK_MS - 1
    assert await chain.block() == 10
    clock.now_ms += 1
    assert (await chain.block(), await chain.finalized_block()) == (11, 9)
    result = await chain.register(ALICE)
    assert result.block == 12 and (await chain.metagraph(11)).neurons == (), "an extrinsic stands in the next block"
    clock.now_ms -= 9 * BLOCK_MS
    assert await chain.block() == 11 and (await chain.commit(ALICE, "ab" * 32)).block == 12


async def test_a_chain_keeps_the_rules_and_the_owner_it_was_made_with(tmp_path: Path) -> None:
    path = tmp_path / "chain.sqlite"
    chain = LocalSubtensor(path, now_ms=Clock(), rules=LocalRules(tempo=20))
    await chain.register(ALICE)
    for arguments in ({"netuid": 16}, {"rules": LocalRules(tempo=21)}):
        with pytest.raises(ArenaError, match="V2030"):
            LocalSubtensor(path, now_ms=Clock(), **arguments)
    again = LocalSubtensor(path, now_ms=Clock(), owner=EVE.hotkey)
    assert again.rules.tempo == 20 and (await again.metagraph()).uid_of(ALICE.hotkey) == 0


async def test_uids_go_to_the_lowest_free_and_uid_0_to_the_owner(tmp_path: Path) -> None:
    clock = Clock()
    chain = LocalSubtensor(tmp_path / "chain.sqlite", now_ms=clock, rules=LocalRules(max_uids=3), owner=EVE.hotkey)
    for signer in (ALICE, BOB, ALICE, EVE):
        assert (await chain.register(signer)).status == "ok"
    assert [one.hotkey for one in (await chain.metagraph()).neurons] == [EVE.hotkey, ALICE.hotkey, BOB.hotkey]
    assert (await chain.register(DAVE)).status == "failed", "the subnet is full"
    clock.now_ms += 5 * 12_000
    before = await chain.block()
    await deregister(chain, ALICE.hotkey)
    await chain.register(DAVE)
    clock.now_ms += 5 * 12_000
    assert (await chain.metagraph(before)).uid_of(ALICE.hotkey) == 1
    now = await chain.metagraph()
    assert (now.uid_of(ALICE.hotkey), now.uid_of(DAVE.hotkey), now.uid_of(BOB.hotkey)) == (None, 1, 2)


async def test_a_write_that_was_answered_survives_kill_9(tmp_path: Path) -> None:
    path = tmp_path / "chain.sqlite"
    command = [sys.executable, "-c", _WRITER, str(path), "//Alice", "100000"]
    writer = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    answered = [int(writer.stdout.readline()) for _ in range(10)][-1]
    writer.send_signal(signal.SIGKILL)
    answered = max([answered, *(int(line) for line in await asyncio.to_thread(writer.stdout.readlines))])
    writer.wait(10)
    chain = LocalSubtensor(path, now_ms=lambda: time.time_ns() // 1_000_000)
    last = await chain.commitment(ALICE.hotkey)
    assert int(last.sha256, 16) in (answered, answered + 1)
    assert (await chain.commit(ALICE, "ff" * 32)).status == "ok"


# -- served to other machines


async def test_a_served_chain_refuses_a_malformed_question_and_takes_no_word_of_another_hotkey(tmp_path: Path) -> None:
    bodies = ["", "{}", '{"call":"block"}', '{"call":"set_stake","netuid":15}', '{"call":"block","netuid":15,"x":1}']
    async with served_stand(tmp_path / "chain.sqlite") as stand, httpx2.AsyncClient() as client:
        network = stand.chain._url  # type: ignore[attr-defined]
        answers = [await client.post(f"{network}{ROUTE}", content=body.encode()) for body in bodies]
        assert {(one.status_code, one.json()["failure"]["code"]) for one in answers} == {(400, "V2081")}
        await stand.enrol(ALICE)
        forger = SimpleNamespace(hotkey=ALICE.hotkey, sign=BOB.sign)
        assert (await stand.chain.commit(forger, "ab" * 32)).status == "failed"
        assert await stand.chain.commitment(ALICE.hotkey) is None
        with pytest.raises(ArenaError, match="V2030"):
            await RemoteSubtensor(network, netuid=16).block()
    with pytest.raises(ArenaError, match="U3030"):
        await stand.chain.block()


# -- what a network has to look like

WRONG = ("finny", "Finney", "https://203.0.113.7", "wss:/host", "ws://", "ws://:9944", "ws://host:70000", "", "ws")
WRONG = (*WRONG, "ws://ho st:9944", "ws://host:0", " wss://host", "wss://[::1")


def test_a_network_is_opened_without_being_asked_and_anything_else_is_a_wrong_setting(tmp_path: Path) -> None:
    named = {"netuid": NETUID, "state_dir": tmp_path, "now_ms": Clock()}
    for network in WRONG:
        with pytest.raises(ArenaError, match="V2030") as caught:
            open_subtensor(network, **named)
        assert repr(network) in caught.value.failure.detail and not caught.value.entry.is_retryable
        assert network != "finny" or caught.value.fix == "did you mean `finney`?"
    for network in (*NETWORKS, "ws://127.0.0.1:9944", "wss://node.example", "wss://[::1]:443/path"):
        assert isinstance(open_subtensor(network, **named), BittensorSubtensor)
    assert set(NETWORKS) | {"local"} == set(settings.NETWORKS)
