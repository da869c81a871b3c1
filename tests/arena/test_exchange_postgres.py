"""The exchange over real stores: one Postgres shared by validators under their own roles, or one each, is the same."""

from __future__ import annotations

import asyncio
from pathlib import Path

from arena.chain.keys import generate_signer, verify
from arena.exchange.log_digest import take_tally
from arena.exchange.port import Peer
from arena.records.verification import verify_store
from tests.arena.conftest import OpenStore
from tests.arena.exchange_stand import FAST, RACE, HttpNet, LocalNet, Node


async def exchange(net, nodes: list[Node]) -> None:
    """Each evaluates, anchors, and pulls what the others anchored; then all hold the same."""
    peers: list[Peer] = [await net.join(node) for node in nodes]
    for number, node in enumerate(nodes):
        await node.evaluate([number, number + 1], "")
        await node.evaluate([number, number + 1])
        await node.evaluate([7], "r2")
    for race_id, rows in ((RACE, 6), ("", 6)):
        wanted = [await node.anchor(race_id) for node in nodes]
        for node in nodes:
            others = [one for one in wanted if one.validator != node.hotkey]
            puller = node.puller(net.peers(node), pace=FAST)
            pulled = await asyncio.gather(*(puller.pull(one, peers) for one in others))
            assert [(one.log.validator, one.log.due.count.rows) for one in pulled] == [
                (one.validator, rows) for one in others
            ]
        for author in nodes:
            own = [
                (record.seq, record.content) async for record in author.store.records(author.hotkey, race_id=race_id)
            ]
            for reader in nodes:
                if reader is not author:
                    found = reader.held.rows(race_id, author.hotkey)
                    assert [(row.seq, bytes(row.content)) for row in found] == own
    await net.close()


async def test_validators_on_one_server_exchange_what_their_roles_hide(open_store: OpenStore, tmp_path: Path) -> None:
    permits: set[str] = set()
    signers = [generate_signer() for _ in range(3)]
    stores = [await open_store(signer.hotkey) for signer in signers]
    nodes = [Node(tmp_path, permits, store, signer) for store, signer in zip(stores, signers, strict=True)]
    await exchange(HttpNet(), nodes)
    for node in nodes:
        others = [other.hotkey for other in nodes if other is not node]
        assert [record for other in others async for record in node.store.records(other)] == []
        assert (await verify_store(node.store, verify_signature=verify)).is_ok


async def test_a_store_shared_with_others_and_one_of_its_own_tell_the_same(
    open_store: OpenStore, tmp_path: Path
) -> None:
    permits: set[str] = set()
    signer = generate_signer()
    shared = Node(tmp_path, permits, await open_store(signer.hotkey), signer)
    await exchange(LocalNet(), [shared, Node(tmp_path, permits)])
    for race_id in (RACE, "", "r2", "r9"):
        size = (await shared.store.head()).seq
        tally = await take_tally(shared.store, race_id, size)
        known = tally.start if tally.start.after_seq else None
        assert await take_tally(shared.store, race_id, size, known) == tally
