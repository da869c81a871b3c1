"""One sender per hotkey: nothing is lost at a hand-over, and what became stale elsewhere is sent once more."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from arena.chain.keys import keypair_signer
from arena.chain.sender import TurnTakenError, held_as_validator, turn_of
from foundation.errors import ArenaError
from tests.arena.chain_stands import NodeStand, make_node, node_stand
from tests.arena.commit_from_elsewhere import COMMITS, commit_some

ALICE = keypair_signer("//Alice")
HASH = "ab" * 32


async def test_processes_threads_and_tasks_of_one_hotkey_lose_nothing(chain_stand: NodeStand) -> None:
    async def elsewhere(first: int) -> list[str]:
        command = (
            sys.executable,
            "-m",
            "tests.arena.commit_from_elsewhere",
            chain_stand.url,
            str(chain_stand.lock_folder),
        )
        process = await asyncio.create_subprocess_exec(*command, str(first), stdout=asyncio.subprocess.PIPE)
        said, _ = await process.communicate()
        return said.decode().splitlines()

    async def here(first: int) -> list[str]:
        results = [await chain_stand.chain.commit(ALICE, f"{first + number:02x}" * 32) for number in range(COMMITS)]
        return [result.status for result in results]

    thread = asyncio.to_thread(lambda: asyncio.run(commit_some(chain_stand.url, chain_stand.lock_folder, 40)))
    told = await asyncio.gather(elsewhere(0), elsewhere(20), thread, here(60), here(80))
    assert told == [["ok"] * COMMITS] * 5
    assert chain_stand.node.nonce_refusals == 0 and len(chain_stand.node.extrinsics) == 5 * COMMITS


@pytest.mark.parametrize("kind", ["commit", "publish", "set_weights"])
async def test_what_another_machine_made_stale_is_sent_once_more(chain_stand: NodeStand, kind: str) -> None:
    await chain_stand.make_validator(ALICE, 10**12)
    chain_stand.node.is_overtaken = True
    match kind:
        case "commit":
            result = await chain_stand.chain.commit(ALICE, HASH)
        case "publish":
            result = await chain_stand.chain.publish(ALICE, "http://203.0.113.7:8750")
        case _:
            result = await chain_stand.chain.set_weights(ALICE, (0,), (65_535,))
    assert (result.status, chain_stand.node.nonce_refusals, len(chain_stand.node.extrinsics)) == ("ok", 1, 1)


async def test_what_was_signed_for_the_runtime_before_an_upgrade_is_signed_once_more(
    chain_stand: NodeStand, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("arena.chain.real.UPGRADE_S", 0.0)
    chain_stand.node.bad_proofs = 1
    assert (await chain_stand.chain.commit(ALICE, HASH)).status == "ok"
    chain_stand.node.bad_proofs = 2
    refused = await chain_stand.chain.commit(ALICE, "cd" * 32)
    assert refused.status == "failed" and "BadProof" in refused.detail
    assert len(chain_stand.node.extrinsics) == 1


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


async def test_a_stale_answer_to_what_has_landed_sends_nothing_again(chain_stand: NodeStand) -> None:
    chain_stand.node.is_handed_in_twice = True
    result = await chain_stand.chain.commit(ALICE, HASH)
    assert (result.status, len(chain_stand.node.extrinsics)) == ("ok", 1)
    held = await chain_stand.chain.commitment(ALICE.hotkey)
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
