"""What a race reads from the chain, and what this validator states there.

Promise: each may be done twice, and none is half done. What is read is read at final blocks.
"""

from __future__ import annotations

from collections.abc import Sequence

from arena.chain.keys import verify
from arena.exchange.log_digest import add_tally, read_tally, take_tally
from arena.race.state.events import AnchorLog, ChainRead, Commit, Committed, ReadChain
from arena.race.state.machine import RaceState
from arena.race.state.timeline import Moment
from arena.records.log.anchors import note_sha256
from arena.records.log.checkpoint import read_checkpoint
from foundation.errors import ArenaError
from neurons.loops.checkpoints import CheckpointLoop
from neurons.node.node import Node, Sharing
from neurons.race.peers import race_of


async def read_chain(node: Node, effect: ReadChain) -> ChainRead | None:
    """What the block of that moment holds, once it is final. Raises ArenaError U3033 where it was forgotten."""
    block = await node.chain.block_at(effect.at_ms)
    if block is None:
        return None
    is_whole = effect.moment in ("closing", "settling")
    metagraph = await node.chain.metagraph(block) if is_whole else None
    hotkeys: Sequence[str] = effect.hotkeys or ()
    if effect.hotkeys is None and metagraph is not None:
        hotkeys = [neuron.hotkey for neuron in metagraph.neurons]
    found = await node.chain.commitments(hotkeys, block)
    commitments = tuple(found[hotkey] for hotkey in sorted(found))
    return ChainRead(moment=effect.moment, block=block, commitments=commitments, metagraph=metagraph)


async def anchor_log(
    node: Node, sharing: Sharing, checkpoints: CheckpointLoop, effect: AnchorLog, state: RaceState
) -> Committed | None:
    """Commit a note with this roll's tally; after a crash in between, the note that already stands. None for an empty
    log: there is nothing to say. Raises ArenaError U3031 where the chain refuses."""
    held, race_id = sharing.held, race_of(effect.roll, state)
    slot, before = await node.chain.commitment(node.signer.hotkey), state.read("closing")
    note = held.note(node.signer.hotkey, slot.sha256) if slot else None
    is_of_roll = slot is not None and before is not None and slot.block > before.block
    if note is None or not is_of_roll or not _is_tallied(note, node.signer.hotkey, race_id):
        point = await checkpoints.newest()
        if point is None:
            return None
        note = add_tally(point.note, await take_tally(node.store, race_id, point.size), node.signer)
        held.keep_note(note)  # first: what the chain holds must be served
        await _put(node, note_sha256(note), effect.moment)
    checkpoint = read_checkpoint(note, verify)
    return Committed(moment=effect.moment, sha256=note_sha256(note), size=checkpoint.size, root=checkpoint.root)


async def commit(node: Node, effect: Commit) -> Committed:
    """Fill this validator's slot unless it holds the value. Raises ArenaError U3031 where the chain refuses."""
    slot = await node.chain.commitment(node.signer.hotkey)
    if slot is None or slot.sha256 != effect.sha256:
        await _put(node, effect.sha256, effect.moment)
    return Committed(moment=effect.moment, sha256=effect.sha256)


async def _put(node: Node, sha256: str, moment: Moment) -> None:
    answer = await node.chain.commit(node.signer, sha256)
    if answer.status != "ok":
        raise ArenaError("U3031", f"{moment}: {answer.status} {answer.detail}")


def _is_tallied(note: str, validator: str, race_id: str) -> bool:
    try:
        read_tally(note, validator, race_id, verify)
    except ArenaError:
        return False
    return True
