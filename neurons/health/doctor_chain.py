"""Is the network ready for this validator? Looks at the chain through the port, and changes nothing on it.

Promise: one row. `fail` where a validator would not start (the chain is away, the hotkey is not registered or holds no
permit), `warn` where it would run with less (a head that stands still, a node that forgets the last day).
"""

from __future__ import annotations

import asyncio

from arena.chain.opening import LOCAL_NETWORK, open_signer, open_subtensor
from arena.chain.port import Subtensor
from foundation.codes import lookup
from foundation.errors import ArenaError
from neurons.health.examination import DoctorCheck
from neurons.node.settings import Settings
from neurons.node.wiring import unix_ms

NAME = "network"
BEHIND_MS = 180_000
DAY_BLOCKS = 7_200  # what a node has to keep that goes on with a race after a day's outage
_PRUNED, _STALE, _NO_PLACE = "U3033", "U3034", "U3035"


def check_network(settings: Settings) -> DoctorCheck:
    """The row for the network and hotkey of the settings."""
    if settings.network == LOCAL_NETWORK:
        return DoctorCheck(name=NAME, status="ok", found="local twin, in the state folder")
    signer = open_signer(
        settings.network, name=settings.wallet_name, hotkey=settings.wallet_hotkey, path=settings.wallet_path
    )
    chain = open_subtensor(settings.network, netuid=settings.netuid, state_dir=settings.state_dir, now_ms=unix_ms)
    return asyncio.run(examine_network(chain, signer.hotkey, unix_ms()))


async def examine_network(chain: Subtensor, hotkey: str, now_ms: int) -> DoctorCheck:
    """The row for a chain as this hotkey finds it. Raises ArenaError U3030 when the chain is away."""
    metagraph = await chain.metagraph()
    own = next((neuron for neuron in metagraph.neurons if neuron.hotkey == hotkey), None)
    if own is None or not own.has_validator_permit:
        found = f"{hotkey} {'has no permit' if own else 'is not registered'} on netuid {chain.netuid}"
        return DoctorCheck(name=NAME, status="fail", found=found, fix=lookup(_NO_PLACE).remedy)
    found = f"netuid {chain.netuid}, block {metagraph.block}, uid {own.uid} with a permit"
    if await chain.block_at(now_ms - BEHIND_MS) is None:
        found += f"; no final block of the last {BEHIND_MS // 60_000} minutes"
        return DoctorCheck(name=NAME, status="warn", found=found, fix=lookup(_STALE).remedy)
    try:
        await chain.commitment(hotkey, max(1, metagraph.block - DAY_BLOCKS))
    except ArenaError as error:
        if error.failure.code != _PRUNED:
            raise
        found += "; it has forgotten yesterday's state"
        return DoctorCheck(name=NAME, status="warn", found=found, fix=error.entry.remedy)
    return DoctorCheck(name=NAME, status="ok", found=found)
