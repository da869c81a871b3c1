"""What this release asks of a runtime and a subnet, and the sentences for what it finds instead."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import websockets
from structlog.testing import capture_logs

from arena.chain.keys import keypair_signer
from arena.chain.real import WEIGHTS_VERSION_KEY, BittensorSubtensor
from arena.chain.sender import TurnTakenError, held_as_validator, turn_of
from foundation.errors import ArenaError
from neurons.node.doctor import examine_network
from tests.arena.chain_stands import NETUID, NodeStand, make_client, make_node, node_stand

COMMITS = 3


async def commit_some(url: str, locks: Path, first: int) -> list[str]:
    """The statuses, with their details, of `COMMITS` commitments one after the other."""
    chain = BittensorSubtensor(url, netuid=NETUID, make_client=make_client, lock_folder=locks)
    signer = keypair_signer("//Alice")
    results = [await chain.commit(signer, f"{first + number:02x}" * 32) for number in range(COMMITS)]
    await chain.close()
    return [f"{result.status} {result.detail}".strip() for result in results]


ALICE = keypair_signer("//Alice")
VECTOR = ((0,), (65_535,))


@pytest.fixture
async def stand() -> AsyncIterator[NodeStand]:
    async with node_stand(make_node()) as made:
        await made.people(ALICE)
        yield made


def write(stand: NodeStand, item: str, value: object) -> None:
    stand.node.write("SubtensorModule", item, [NETUID], value)
    stand.node.advance()


async def test_weights_carry_the_releases_version_key_and_a_subnet_that_asks_for_a_newer_one_gets_none(
    stand: NodeStand,
) -> None:
    write(stand, "WeightsVersionKey", WEIGHTS_VERSION_KEY)
    await stand.chain.check()
    assert (await stand.chain.set_weights(ALICE, *VECTOR)).status == "ok"
    (sent,) = stand.node.extrinsics
    assert {each["name"]: each["value"] for each in sent["call"]["call_args"]}["version_key"] == WEIGHTS_VERSION_KEY
    stand.node.advance(200)
    write(stand, "WeightsVersionKey", WEIGHTS_VERSION_KEY + 1)
    words = f"asks for weights version key {WEIGHTS_VERSION_KEY + 1}, this release sends {WEIGHTS_VERSION_KEY}"
    for asked in (stand.chain.check(), examine_network(stand.chain, ALICE.hotkey, 0)):
        with pytest.raises(ArenaError, match="U3037") as caught:
            await asked
        assert words in caught.value.failure.detail and caught.value.entry.is_retryable
    result = await stand.chain.set_weights(ALICE, *VECTOR)
    assert result.status == "failed" and words in result.detail and stand.node.extrinsics == [sent]


@pytest.mark.parametrize(
    ("old", "new", "spec"),
    [("TotalHotkeyAlpha", "TotalHotkeyBetas", 901), ("serve_axon", "serve_node", 902)],
)
async def test_what_a_runtime_lacks_is_named_with_its_spec(old: str, new: str, spec: int) -> None:
    node = make_node(spec_version=spec, renamed=((old, new),))
    node.enrol(ALICE.hotkey)
    async with node_stand(node) as stand:
        for asked in (stand.chain.check(), examine_network(stand.chain, ALICE.hotkey, 0)):
            with pytest.raises(ArenaError, match="U3037") as caught:
                await asked
            detail = caught.value.failure.detail
            assert detail == f"this release does not know this runtime: spec {spec}, missing SubtensorModule.{old}"
        used = stand.chain.metagraph() if spec == 901 else stand.chain.publish(ALICE, "http://203.0.113.7:8750")
        with pytest.raises(ArenaError, match=f"U3037.*spec {spec}.*{old}"):
            await used
        assert (await stand.chain.commit(ALICE, "ab" * 32)).status == "ok", "what is not missing goes on"


async def test_a_subnet_that_is_not_there_is_said(stand: NodeStand) -> None:
    chain = BittensorSubtensor(stand.url, netuid=99, make_client=make_client, lock_folder=stand.lock_folder)
    asked = (chain.check(), chain.metagraph(), chain.commit(ALICE, "ab" * 32), chain.set_weights(ALICE, *VECTOR))
    for one in asked:
        with pytest.raises(ArenaError, match=r"U3039.*has no subnet 99"):
            await one
    await chain.close()


async def test_first_weights_say_what_they_wait_for(stand: NodeStand) -> None:
    at = stand.node.block
    stand.node.write("SubtensorModule", "BlockAtRegistration", [NETUID, 0], at)
    write(stand, "LastUpdate", [at])
    stand.node.advance(29)
    result = await stand.chain.set_weights(ALICE, *VECTOR)
    assert result.status == "rate_limited"
    assert result.detail == (
        f"first weights wait WeightsSetRateLimit (100 blocks) after the registration in block {at}: 70 blocks left"
    )
    stand.node.advance(70)
    assert (await stand.chain.set_weights(ALICE, *VECTOR)).status == "ok"
    again = await stand.chain.set_weights(ALICE, *VECTOR)
    assert again.status == "rate_limited" and "last set" in again.detail


async def test_a_refusal_of_the_pool_means_what_the_dispatch_error_means(stand: NodeStand) -> None:
    for number, status, words in (
        (1, "failed", "too little stake to set weights"),
        (3, "failed", "no such subnet"),
        (6, "rate_limited", "RateLimitExceeded"),
        (10, "not_registered", "HotKeyNotRegisteredInNetwork"),
        (12, "rate_limited", "ServingRateLimitExceeded"),
        (15, "failed", "reveal round lies in the past"),
        (19, "not_registered", "HotKeyNotRegisteredInSubNet"),
        (255, "failed", "give no reason"),
        ("Inability to pay some fees (e.g. account balance too low)", "failed", "can't pay the chain's fee"),
    ):
        for data in (f"Custom error: {number}", {"Custom": number}) if isinstance(number, int) else (number,):
            stand.node.pool_refusal = {"code": 1010, "message": "Invalid Transaction", "data": data}
            result = await stand.chain.set_weights(ALICE, *VECTOR)
            assert (result.status, stand.node.extrinsics) == (status, []) and words in result.detail
    stand.node.pallets.stake_threshold = 10**15
    result = await stand.chain.set_weights(ALICE, *VECTOR)
    assert result.status == "failed" and result.detail.startswith("too little stake to set weights")


async def test_weights_of_another_mechanism_are_set_and_read_under_its_own_key(stand: NodeStand) -> None:
    chain = BittensorSubtensor(
        stand.url, netuid=NETUID, mechanism=2, make_client=make_client, lock_folder=stand.lock_folder
    )
    with pytest.raises(ArenaError, match=f"U3039.*subnet {NETUID} has 1 mechanisms, counted from 0: none is 2"):
        await chain.check()
    write(stand, "MechanismCountCurrent", 3)
    await chain.check()
    assert (await chain.metagraph()).uid_of(ALICE.hotkey) == 0
    for sealed in (False, True):
        stand.node.advance(100)  # updates are counted for each mechanism
        write(stand, "CommitRevealWeightsEnabled", sealed)
        assert (await chain.set_weights(ALICE, *VECTOR)).status == "ok"
        sent = {argument["name"]: argument["value"] for argument in stand.node.extrinsics[-1]["call"]["call_args"]}
        assert (sent["netuid"], sent["mecid"]) == (NETUID, 2)
    stand.node.write("SubtensorModule", "Weights", [2 * 4096 + NETUID, 0], [(0, 7)])
    stand.node.advance()
    assert await chain.weights(ALICE.hotkey) == ((0, 7),)
    await chain.close()


# -- one sender per hotkey: nothing is lost at a hand-over, and what became stale elsewhere is sent once more


HASH = "ab" * 32


async def test_processes_threads_and_tasks_of_one_hotkey_lose_nothing(stand: NodeStand) -> None:
    async def elsewhere(first: int) -> list[str]:
        command = (sys.executable, "-m", "tests.arena.test_chain_runtime", stand.url, str(stand.lock_folder))
        process = await asyncio.create_subprocess_exec(*command, str(first), stdout=asyncio.subprocess.PIPE)
        said, _ = await process.communicate()
        return said.decode().splitlines()

    async def here(first: int) -> list[str]:
        results = [await stand.chain.commit(ALICE, f"{first + number:02x}" * 32) for number in range(COMMITS)]
        return [result.status for result in results]

    thread = asyncio.to_thread(lambda: asyncio.run(commit_some(stand.url, stand.lock_folder, 40)))
    told = await asyncio.gather(elsewhere(0), elsewhere(20), thread, here(60), here(80))
    assert told == [["ok"] * COMMITS] * 5
    assert stand.node.nonce_refusals == 0 and len(stand.node.extrinsics) == 5 * COMMITS


@pytest.mark.parametrize(
    ("kind", "about"),
    [("commit", (HASH,)), ("publish", ("http://203.0.113.7:8750",)), ("set_weights", VECTOR)],
    ids=["commit", "publish", "set_weights"],
)
async def test_what_another_machine_made_stale_is_sent_once_more(stand: NodeStand, kind: str, about: tuple) -> None:
    stand.node.is_overtaken = True
    result = await getattr(stand.chain, kind)(ALICE, *about)
    assert (result.status, stand.node.nonce_refusals, len(stand.node.extrinsics)) == ("ok", 1, 1)


async def test_what_was_signed_for_the_runtime_before_an_upgrade_is_signed_once_more(
    stand: NodeStand, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("arena.chain.real.UPGRADE_S", 0.0)
    stand.node.bad_proofs = 1
    assert (await stand.chain.commit(ALICE, HASH)).status == "ok"
    stand.node.bad_proofs = 2
    refused = await stand.chain.commit(ALICE, "cd" * 32)
    assert refused.status == "failed" and "BadProof" in refused.detail
    assert len(stand.node.extrinsics) == 1


async def test_weights_go_before_what_else_waits_for_an_extrinsic_that_is_never_included_and_are_made_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def renew() -> tuple[tuple[int, ...], tuple[int, ...]]:
        return (1,), (65_535,)

    monkeypatch.setattr("arena.chain.sender._LONG_S", 0.2)
    async with node_stand(make_node(), timeout_s=2.0) as stand:
        await stand.people(ALICE, keypair_signer("//Bob"))
        stand.node.swallowed = 1
        stuck = asyncio.create_task(stand.chain.commit(ALICE, HASH))
        while stand.node.swallowed:
            await asyncio.sleep(0.01)
        with capture_logs() as logs:
            later = asyncio.create_task(stand.chain.commit(ALICE, "cd" * 32))
            assert (await stand.chain.set_weights(ALICE, (0,), (65_535,), renew=renew)).status == "ok"
            assert (await later).status == "ok"
        with pytest.raises(ArenaError, match="U3030"):
            await stuck
        calls = [each["call"] for each in stand.node.extrinsics]
        assert [call["call_function"] for call in calls] == ["set_mechanism_weights", "set_commitment"]
        assert next(each["value"] for each in calls[0]["call_args"] if each["name"] == "dests") == [1]
        assert [line["event"] for line in logs] == ["sender waited"] * 2


async def test_a_stale_answer_to_what_has_landed_sends_nothing_again(stand: NodeStand) -> None:
    stand.node.is_handed_in_twice = True
    result = await stand.chain.commit(ALICE, HASH)
    assert (result.status, len(stand.node.extrinsics)) == ("ok", 1)
    held = await stand.chain.commitment(ALICE.hotkey)
    assert held is not None and held.block == result.block


async def test_without_a_folder_to_write_in_the_lock_is_held_in_the_spare_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    blocked = tmp_path / "file"
    blocked.write_text("")
    async with turn_of("0x11", "someone", folder=blocked / "locks", wait_s=1):
        with pytest.raises(TurnTakenError):
            async with turn_of("0x11", "someone", folder=blocked / "locks", wait_s=0.1):
                pass
    assert (tmp_path / f"arena-senders-{os.getuid()}").is_dir()


def test_a_hotkey_validates_a_subnet_in_one_process_and_another_subnet_beside_it(tmp_path: Path) -> None:
    with held_as_validator("5A", "finney", 15, tmp_path):
        with held_as_validator("5A", "finney", 16, tmp_path), held_as_validator("5B", "finney", 15, tmp_path):
            pass
        with pytest.raises(ArenaError, match="V2024"), held_as_validator("5A", "finney", 15, tmp_path):
            pass
    with held_as_validator("5A", "finney", 15, tmp_path):
        pass


# -- the adapter's one connection: who closes it and when, and that one which can't be opened leaves nothing open


async def test_a_read_that_runs_out_of_time_does_not_cut_off_an_extrinsic() -> None:
    node = make_node()
    node.enrol(ALICE.hotkey)
    serve, watch = node._serve, node._submit_and_watch
    connections: list[Any] = []
    held_back: list[dict[str, Any]] = []

    async def serve_and_keep(connection: Any) -> None:
        connections.append(connection)
        await serve(connection)

    def without_the_last_notice(raw: str, decoded: dict[str, Any]) -> Any:
        subscription, notices = watch(raw, decoded)
        held_back.append(notices.pop())  # the block is not final yet
        return subscription, notices

    node._serve, node._submit_and_watch = serve_and_keep, without_the_last_notice
    async with node_stand(node, timeout_s=20.0) as stand:
        sending = asyncio.create_task(stand.chain.commit(ALICE, HASH))
        while not held_back:
            await asyncio.sleep(0.01)
        with pytest.raises(ArenaError, match="U3030"):
            async with stand.chain._connected(timeout_s=0.05):  # type: ignore[attr-defined]
                await asyncio.sleep(10)
        await connections[1].send(json.dumps(held_back[0]))  # of the extrinsic alone
        assert (await sending).status == "ok"
        assert await stand.chain.block() == node.block and len(connections) == 3


@pytest.mark.parametrize("ends", ["its own time limit", "a cancelled caller", "a close that waits"])
async def test_a_node_that_shakes_hands_and_then_says_nothing_leaves_nothing_open(ends: str, monkeypatch: Any) -> None:
    from bittensor._transport.rpc import RpcSession

    open_now, close = set[Any](), RpcSession.close
    monkeypatch.setattr("arena.chain.sdk_client.CLOSE_S", 0.1)

    async def waiting(session: RpcSession) -> None:  # as for its reader, where a frame comes as that is cancelled
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(60 if ends == "a close that waits" else 0)
        await close(session)

    monkeypatch.setattr(RpcSession, "close", waiting)

    async def mute(connection: Any) -> None:
        open_now.add(connection)
        with suppress(websockets.ConnectionClosedError):  # a caller cancelled in the handshake says no goodbye
            async for _ in connection:
                pass
        open_now.discard(connection)

    async with asyncio.timeout(20), websockets.serve(mute, "127.0.0.1", 0) as server:
        url = f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        chain = BittensorSubtensor(url, netuid=NETUID, timeout_s=30.0 if ends == "a cancelled caller" else 0.3)
        before = len(asyncio.all_tasks())
        asked = asyncio.create_task(chain.block())
        while not open_now and not asked.done():
            await asyncio.sleep(0.01)
        if ends == "a cancelled caller":
            asked.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asked
        else:
            with pytest.raises(ArenaError, match="U3030"):
                await asked
        while open_now or len(asyncio.all_tasks()) > before:
            await asyncio.sleep(0.01)


if __name__ == "__main__":
    print("\n".join(asyncio.run(commit_some(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])))))
