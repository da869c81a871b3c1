"""`make prove-localnet`: the chain adapter against a real runtime, step by step.

ARENA_PROVE_CHAIN names the node (`ws://...`), ARENA_PROVE_NETUID its subnet (1), ARENA_PROVE_COLDKEY a funded coldkey's
URI, which has to be the sudo key for the steps that change the subnet (//Alice). Prints a table: each step passed,
shimmed (something was stood in for: `older_runtime`), or impossible, with the runtime's own words.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

os.environ.setdefault("BITTENSOR_RUNTIME_CACHE_DIR", tempfile.mkdtemp(prefix="arena-runtime-"))

import bittensor
import websockets
from bittensor.sp_core import Keypair

from arena.chain.keys import keypair_signer
from arena.chain.port import ChainResult, Neuron, Signer
from arena.chain.real import WEIGHTS_VERSION_KEY, BittensorSubtensor
from foundation.errors import ArenaError
from tests.prove.older_runtime import OlderRuntime, make_client

HOW = """no chain to prove against: set ARENA_PROVE_CHAIN=ws://HOST:PORT
  a localnet:  docker run --rm -p 9944:9944 ghcr.io/opentensor/subtensor-localnet:main   (then ws://127.0.0.1:9944)
  a testnet:   ARENA_PROVE_CHAIN=wss://test.finney.opentensor.ai:443 with ARENA_PROVE_NETUID and ARENA_PROVE_COLDKEY
  an executor: any that runs a runtime's WASM over a genesis and answers JSON-RPC (npm's @acala-network/chopsticks)"""
TEMPO = 10
STAKE_RAO = 50_000_000_000


class Impossible(Exception):
    """The step can't be done on this chain; says why in the chain's words."""


def new_signer() -> Signer:
    """A key that no earlier proof has registered on the chain."""
    return keypair_signer(f"//{os.urandom(16).hex()}")


class Localnet:
    """One chain under proof."""

    def __init__(self, url: str, netuid: int, coldkey: str, folder: Path) -> None:
        """`folder` is for the senders' locks."""
        self.url, self.netuid, self._folder = url, netuid, folder
        key = Keypair.create_from_uri(coldkey)
        self.cold = SimpleNamespace(hotkey=key, coldkey=key, coldkeypub=key)
        self.validator, self.miner = new_signer(), new_signer()
        self.chain = self.another()
        self.past = 0
        self.hash = os.urandom(32).hex()

    def another(self, machine: str = "here") -> BittensorSubtensor:
        """A client of its own, as another process has; on another `machine`, it shares no lock."""
        locks = self._folder / machine
        return BittensorSubtensor(self.url, netuid=self.netuid, make_client=make_client, lock_folder=locks)

    async def rpc(self, method: str, params: list[Any]) -> Any:
        """A raw request. Raises Impossible with the node's words."""
        async with websockets.connect(self.url, max_size=2**27) as connection:
            await connection.send(json.dumps({"id": 1, "jsonrpc": "2.0", "method": method, "params": params}))
            answer = json.loads(await connection.recv())
        if "error" in answer:
            raise Impossible(f"{method}: {answer['error'].get('message')}")
        return answer["result"]

    async def advance(self, blocks: int) -> None:
        """Make blocks where the node makes them on demand; else wait for them."""
        try:
            for _ in range(blocks):
                await self.rpc("dev_newBlock", [{"count": 1}])
        except Impossible:
            wanted = await self.chain.block() + blocks
            while await self.chain.block() < wanted:
                await asyncio.sleep(0.5)

    async def call(self, call: Any, *, is_sudo: bool = False) -> None:
        """Send a coldkey's call. Raises Impossible with the chain's words."""
        async with make_client(self.url) as client:
            if is_sudo:
                call = bittensor.calls.Sudo.sudo(call={call[0]: {call[1]: call[2]}})
            result = await client.submit_call(call, self.cold, signer="coldkey")
        if not result.success:
            raise Impossible(f"{result.error.name or ''} {result.message}".strip())

    async def admin(self, name: str, **arguments: Any) -> None:
        """A hyperparameter, by sudo."""
        call = getattr(bittensor.calls.AdminUtils, name)(netuid=self.netuid, **arguments)
        await self.call(call, is_sudo=True)

    @contextlib.asynccontextmanager
    async def changed(self, name: str, **arguments: tuple[Any, Any]) -> AsyncIterator[None]:
        """A hyperparameter as the first value while the block runs, then as the second."""
        await self.admin(name, **{argument: during for argument, (during, _) in arguments.items()})
        try:
            yield
        finally:
            await self.admin(name, **{argument: after for argument, (_, after) in arguments.items()})

    async def neuron(self, signer: Signer) -> Neuron:
        """A hotkey's place on the subnet."""
        return next(one for one in (await self.chain.metagraph()).neurons if one.hotkey == signer.hotkey)

    async def read(self, item: str) -> Any:
        """A storage item of the subnet."""
        async with make_client(self.url) as client:
            return await client.query(("SubtensorModule", item), [self.netuid])


def expect(result: ChainResult, status: str, words: str = "") -> str:
    """The result's detail. Raises AssertionError for another status."""
    assert result.status == status and words in result.detail, f"{result.status}: {result.detail}"
    return result.detail


async def fits(net: Localnet) -> str:
    await net.chain.check()
    return f"spec {net.chain._known_spec}"


async def registers(net: Localnet) -> str:
    for signer in (net.validator, net.miner):
        await net.call(bittensor.calls.SubtensorModule.burned_register(netuid=net.netuid, hotkey=signer.hotkey))
    return f"uids {(await net.neuron(net.validator)).uid}, {(await net.neuron(net.miner)).uid}"


async def publishes(net: Localnet) -> str:
    expect(await net.chain.publish(net.validator, "http://8.8.4.4:9100"), "ok")
    assert (await net.neuron(net.validator)).endpoint == "http://8.8.4.4:9100"
    return "again at once: " + expect(await net.chain.publish(net.validator, "http://8.8.4.4:9101"), "rate_limited")


async def commits(net: Localnet) -> str:
    net.past = await net.chain.block()
    result = await net.chain.commit(net.miner, net.hash)
    expect(result, "ok")
    held = await net.chain.commitment(net.miner.hotkey)
    assert held is not None and (held.sha256, held.block) == (net.hash, result.block)
    return f"block {result.block}"


async def reads_the_past(net: Localnet) -> str:
    head = await net.chain.block()
    assert await net.chain.commitments([net.miner.hotkey], net.past) == {}
    assert net.miner.hotkey in await net.chain.commitments([net.miner.hotkey], head)
    assert (await net.chain.metagraph(net.past)).block == net.past
    return f"block {net.past} of {head}"


async def waits_at_first(net: Localnet) -> str:
    async with net.changed("sudo_set_weights_set_rate_limit", weights_set_rate_limit=(40, 0)):
        return expect(await net.chain.set_weights(net.validator, (0,), (65_535,)), "rate_limited")


async def stakes(net: Localnet) -> str:
    await net.admin("sudo_set_tempo", tempo=TEMPO)
    await net.admin("sudo_set_subtoken_enabled", subtoken_enabled=True)
    if await net.read("FirstEmissionBlockNumber") is None:
        entry = {"SubtensorModule": {"FirstEmissionBlockNumber": [[[net.netuid], 1]]}}
        await net.rpc("dev_setStorage", [entry])
        OlderRuntime.stood_in.add("start_call (a new subnet starts after days)")
    staked = {"hotkey": net.validator.hotkey, "netuid": net.netuid, "amount_staked": STAKE_RAO}
    await net.call(bittensor.calls.SubtensorModule.add_stake(**staked))
    own = await net.neuron(net.validator)
    assert own.stake_rao > 0
    return f"{own.stake_rao} rao of alpha"


async def gets_a_permit(net: Localnet) -> str:
    await net.advance(TEMPO + 4)
    own = await net.neuron(net.validator)
    assert own.has_validator_permit
    return f"uid {own.uid}"


async def sets_weights(net: Localnet) -> str:
    uid = (await net.neuron(net.miner)).uid
    expect(await net.chain.set_weights(net.validator, (0, uid), (100, 65_535)), "ok")
    held = await net.chain.weights(net.validator.hotkey)
    assert held == ((0, 100), (uid, 65_535))
    return f"{held}"


async def pays(net: Localnet) -> str:
    await net.advance(2 * TEMPO + 4)
    incentive = await net.read("Incentive")
    assert incentive[(await net.neuron(net.miner)).uid] > 60_000, incentive
    return f"incentive {list(incentive)}"


async def keeps_the_version_key(net: Localnet) -> str:
    async with net.changed("sudo_set_weights_version_key", weights_version_key=(WEIGHTS_VERSION_KEY, 0)):
        expect(await net.chain.set_weights(net.validator, (0,), (65_535,)), "ok")
        await net.admin("sudo_set_weights_version_key", weights_version_key=WEIGHTS_VERSION_KEY + 1)
        said = expect(await net.chain.set_weights(net.validator, (0,), (65_535,)), "failed", "version key")
        with contextlib.suppress(ArenaError):
            await net.chain.check()
            raise AssertionError("a subnet that asks for newer weights is taken for ours")
        return said


async def is_rate_limited(net: Localnet) -> str:
    async with net.changed("sudo_set_weights_set_rate_limit", weights_set_rate_limit=(50, 0)):
        return expect(await net.chain.set_weights(net.validator, (0,), (65_535,)), "rate_limited", "last set")


async def refuses_strangers(net: Localnet) -> str:
    return expect(await net.chain.set_weights(new_signer(), (0,), (65_535,)), "not_registered")


async def loses_no_extrinsic(net: Localnet) -> str:
    other = net.another()
    order = [net.chain, net.chain, other, net.chain, other, other]
    one_by_one = [await chain.commit(net.miner, os.urandom(32).hex()) for chain in order]
    at_once = await asyncio.gather(*(chain.commit(net.miner, os.urandom(32).hex()) for chain in (*order, net.chain)))
    await other.close()
    for result in (*one_by_one, *at_once):
        expect(result, "ok")
    return f"{len(one_by_one)} by turns and {len(at_once)} at once, of two clients: all landed"


async def lands_from_two_machines(net: Localnet) -> str:
    """They share no lock: both send at once, so that one sends with a nonce that the other has spent."""
    other = net.another("elsewhere")
    for result in await asyncio.gather(
        *(chain.commit(net.miner, os.urandom(32).hex()) for chain in (net.chain, other))
    ):
        expect(result, "ok")
    await other.close()
    return "both landed"


async def reveals(net: Localnet) -> str:
    """The node fetches the beacon's pulses itself, so it takes as long as the subnet says."""
    uid = (await net.neuron(net.miner)).uid
    vector = ((0, 21_845), (uid, 65_535))
    async with net.changed("sudo_set_commit_reveal_weights_enabled", enabled=(True, False)):
        expect(await net.chain.set_weights(net.validator, *zip(*vector, strict=True)), "ok", "sealed until round")
        assert await net.chain.weights(net.validator.hotkey) != vector
        for _ in range(2 * TEMPO + 4):
            await net.advance(1)
            if (held := await net.chain.weights(net.validator.hotkey)) == vector:
                break
        assert held == vector, held
    return f"{held}"


Step = Callable[[Localnet], Awaitable[str]]
STEPS: tuple[Step, ...] = (
    fits,
    registers,
    publishes,
    commits,
    reads_the_past,
    waits_at_first,
    stakes,
    gets_a_permit,
    sets_weights,
    pays,
    keeps_the_version_key,
    is_rate_limited,
    refuses_strangers,
    loses_no_extrinsic,
    lands_from_two_machines,
    reveals,
)


async def prove(net: Localnet, steps: Sequence[Step]) -> list[str]:
    """passed, shimmed, impossible or FAILED of every step, told with its words as it ends.

    Raises ArenaError U3030 for a node that doesn't answer at all.
    """
    await net.chain.block()
    print("| step | outcome | words | time |\n|---|---|---|---|")
    outcomes = []
    for step in steps:
        OlderRuntime.stood_in.clear()
        started = time.monotonic()
        try:
            words = await step(net)
            shims = sorted(OlderRuntime.stood_in)
            outcome = "shimmed" if shims else "passed"
            words += f" [for {', '.join(shims)}]" if shims else ""
        except Impossible as error:
            outcome, words = "impossible", str(error)
        except (ArenaError, AssertionError, OSError, bittensor.BittensorError) as error:
            outcome, words = "FAILED", f"{type(error).__name__}: {getattr(error, 'failure', error)}"
        outcomes.append(outcome)
        print(f"| {step.__name__} | {outcome} | {words} | {time.monotonic() - started:.1f} s |", flush=True)
    await net.chain.close()
    return outcomes


def main() -> int:
    """Prove; 0 where nothing failed, 1 where something did, 3 without a chain that answers."""
    url = os.environ.pop("ARENA_PROVE_CHAIN", "")  # taken out: to the validator it would be an unknown setting
    if not url:
        print(HOW, file=sys.stderr)
        return 3
    from tests.prove.race_on_chain import race_step

    netuid = int(os.environ.pop("ARENA_PROVE_NETUID", "1"))
    coldkey = os.environ.pop("ARENA_PROVE_COLDKEY", "//Alice")
    with tempfile.TemporaryDirectory(prefix="arena-localnet-") as folder:
        net = Localnet(url, netuid, coldkey, Path(folder))
        try:
            outcomes = asyncio.run(prove(net, (*STEPS, race_step)))
        except ArenaError as error:
            print(f"{error}\n{HOW}", file=sys.stderr)
            return 3
    return 1 if "FAILED" in outcomes else 0


if __name__ == "__main__":
    raise SystemExit(main())
