"""Extrinsics of one hotkey: one after the other, and what became stale elsewhere is sent once more."""

from __future__ import annotations

import asyncio

import pytest

from arena.chain.keys import keypair_signer
from tests.arena.chain_stands import NodeStand

ALICE = keypair_signer("//Alice")
HASH = "ab" * 32


async def test_extrinsics_of_one_process_wait_for_each_other(chain_stand: NodeStand) -> None:
    done = await asyncio.gather(*(chain_stand.chain.commit(ALICE, f"{number:02x}" * 32) for number in range(6)))
    assert [result.status for result in done] == ["ok"] * 6
    assert chain_stand.node.nonce_refusals == 0 and len(chain_stand.node.extrinsics) == 6


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


async def test_a_stale_answer_to_what_has_landed_sends_nothing_again(chain_stand: NodeStand) -> None:
    chain_stand.node.is_handed_in_twice = True
    result = await chain_stand.chain.commit(ALICE, HASH)
    assert (result.status, len(chain_stand.node.extrinsics)) == ("ok", 1)
    held = await chain_stand.chain.commitment(ALICE.hotkey)
    assert held is not None and held.block == result.block
