"""One whole race by `arena validator`, with its real Postgres, on a real runtime: its weights are read back from there.

The miners commit on the chain and their files wait. Where the node makes blocks on demand, one is made for
every second that its clock is behind this host's.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import bittensor

from arena.chain.keys import keypair_signer
from arena.chain.real import BittensorSubtensor
from arena.submissions.submission import commit, waiting_row
from neurons.demo.demo import VALIDATOR, DemoRun, DemoView, stop_process, watch
from neurons.settings.settings import Settings, environment_of
from tests.neurons.arena_stand import build_small_catalogue, lay_run, opened_store, short_folder
from tests.prove.localnet import STAKE_RAO, TEMPO, Impossible, Localnet
from tests.prove.older_runtime import make_client

AGENTS = ("expert", "careful", "hasty")
END_S = 400.0


async def tick(net: Localnet) -> None:
    """Keep the chain's clock with this host's, for ever; a node that makes blocks by itself needs none of it."""
    with contextlib.suppress(Impossible):
        await net.rpc("dev_timeTravel", [int(time.time() * 1_000)])
        async with make_client(net.url) as client:
            while True:
                behind_ms = time.time() * 1_000 - int(await client.query(("Timestamp", "Now")))
                if behind_ms > 1_000:
                    await net.rpc("dev_newBlock", [{"count": 1}])
                else:
                    await asyncio.sleep(0.2)


async def enrol(net: Localnet, settings: Settings, agents: tuple) -> None:  # type: ignore[type-arg]
    """Validator with a permit, miners, and their commitments."""
    module = bittensor.calls.SubtensorModule
    validator = keypair_signer(VALIDATOR)
    await net.admin("sudo_set_tempo", tempo=TEMPO)
    await net.admin("sudo_set_weights_set_rate_limit", weights_set_rate_limit=0)
    await net.admin("sudo_set_target_registrations_per_interval", target_registrations_per_interval=100)
    known = {neuron.hotkey for neuron in (await net.chain.metagraph()).neurons}
    for signer in (validator, *(keypair_signer(agent.uri) for agent in agents)):
        if signer.hotkey not in known:
            await net.call(module.burned_register(netuid=net.netuid, hotkey=signer.hotkey))
    await net.call(module.add_stake(hotkey=validator.hotkey, netuid=net.netuid, amount_staked=10 * STAKE_RAO))
    async with opened_store(settings) as store:
        for agent in agents:
            miner, now_ms = keypair_signer(agent.uri), int(time.time() * 1_000)
            submission, block = await commit(
                miner, agent.name, agent.source, subtensor=net.chain, now_ms=now_ms, is_anew=True
            )
            await store.put_submission(waiting_row(submission, block), submission.source)
    while True:
        neurons = (await net.chain.metagraph()).neurons
        if any(neuron.hotkey == validator.hotkey and neuron.has_validator_permit for neuron in neurons):
            return
        await asyncio.sleep(1)


async def race(net: Localnet, base: Path) -> str:
    """The race's end in words. Raises AssertionError where the chain doesn't hold the settlement's weights."""
    catalogue = await asyncio.to_thread(build_small_catalogue, base)
    run = await asyncio.to_thread(lay_run, base, catalogue, names=AGENTS, netuid=net.netuid)
    ticking = asyncio.create_task(tick(net))
    try:
        await enrol(net, run.settings, run.agents)
        settlement = (await _run(net, run)).race.settlement
        assert settlement is not None and settlement.state == "settled", settlement
        held = await net.chain.weights(keypair_signer(VALIDATOR).hotkey)
        assert held == tuple(sorted(zip(settlement.uids, settlement.weights_u16, strict=True))), held
    finally:
        ticking.cancel()
    return f"settled, weights on chain {held}"


async def _run(net: Localnet, run: DemoRun) -> DemoView:
    environment = {**os.environ, **environment_of(run.settings), "ARENA_PARENT_PID": str(os.getpid())}
    command = [sys.executable, "-m", "tests.prove.race_on_chain", net.url]
    with (run.folder / "validator.log").open("wb") as log:
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True)
    try:
        async with asyncio.timeout(END_S):
            views = [view async for view in watch(run, process)]
        return views[-1]
    finally:
        await asyncio.to_thread(stop_process, process)


async def race_step(net: Localnet) -> str:
    """The last step of the proof."""
    with short_folder() as base:
        try:
            return await race(net, base)
        except BaseException:
            log = base / "run0" / "validator.log"
            print(log.read_text()[-3_000:] if log.is_file() else "no validator log", file=sys.stderr)
            raise


def main(url: str) -> None:
    """`arena validator` with its chain on a real runtime, and all else local: where the local twin would be opened,
    the real adapter is."""
    from arena.chain import opening
    from neurons.cli.app import main as arena

    def open_real(path: Path, *, netuid: int, **of_the_twin: Any) -> BittensorSubtensor:
        return BittensorSubtensor(url, netuid=netuid, make_client=make_client)

    opening.LocalSubtensor = open_real  # type: ignore[assignment,misc]
    arena(["validator"])


if __name__ == "__main__":
    main(sys.argv[1])
