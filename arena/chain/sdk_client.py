"""The SDK's client as this release uses it. Imports the SDK: import it when the first connection opens.

Two things are its own. A connection that fails or is ended while it opens is closed: the SDK knows it only once it is
open, and closes it after some failures and after no cancellation. And one storage item that a runtime may have done
away with reads as unset.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

import bittensor
from bittensor._transport.errors import StorageFunctionNotFound
from bittensor.settings import default_archive_endpoints, default_fallback_endpoints, resolve_endpoint

from foundation.errors import ArenaError

if TYPE_CHECKING:
    import bittensor


# By it the SDK asks whether a subnet runs Null consensus, before it sets weights. A runtime without it has no such
# consensus; unset, the SDK goes its ordinary way, and what it does there the chain checks.
CONSENSUS = ("SubtensorModule", "SubnetEpochConsensus")


class NodeSubstrate(bittensor.RpcSubstrate):
    """The SDK's backend over one endpoint and its spares."""

    def _interface(self, endpoint: str, fallbacks: list[str]) -> Any:
        made: Any = super()._interface(endpoint, fallbacks)
        initialize = made.initialize

        async def initialize_or_close() -> None:
            try:
                await initialize()
            except BaseException:
                with suppress(OSError, TimeoutError, AssertionError):  # as in `arena.chain.sdk_client`
                    await made.close()
                raise

        made.initialize = initialize_or_close
        return made

    async def query(
        self, module: str, storage_function: str, params: list[Any] | None = None, block_hash: str | None = None
    ) -> Any:
        """A storage item's value; None for `CONSENSUS` where the runtime lacks it. Raises as the SDK does."""
        try:
            return await super().query(module, storage_function, params, block_hash)
        except StorageFunctionNotFound:
            if (module, storage_function) != CONSENSUS:
                raise
            return None


def make_client(network: str) -> bittensor.Client:
    """The client of a network's name or a node's URL, with the SDK's spares for it. Raises ValueError for neither."""
    label, endpoint = resolve_endpoint(network)
    substrate = NodeSubstrate(
        endpoint,
        fallback_endpoints=[url for url in default_fallback_endpoints(label) if url != endpoint],
        archive_endpoints=default_archive_endpoints(label),
    )
    return bittensor.Client(network, substrate=substrate)


class HeldClient:
    """An open client, and how many calls use it."""

    def __init__(self, client: bittensor.Client) -> None:
        self.client = client
        self.calls = 0
        self.is_given_up = False


class Connection:
    """The client of one network, shared by the calls of one process."""

    def __init__(self, network: str, make_client: Callable[[str], bittensor.Client] | None = None) -> None:
        """`make_client` replaces `arena.chain.sdk_client.make_client`."""
        self._network = network
        self._make_client = make_client
        self._held: HeldClient | None = None
        self._opening = asyncio.Lock()

    @asynccontextmanager
    async def held(self) -> AsyncIterator[HeldClient]:
        """The open client, for one call. Raises ArenaError V2030 where the network can't be one, and the SDK's errors
        where it can't be reached."""
        async with self._opening:
            if self._held is None:
                self._held = HeldClient(await self._open())
            held = self._held
        held.calls += 1
        try:
            yield held
        finally:
            held.calls -= 1
            await _close_unused(held)

    async def give_up(self, held: HeldClient) -> None:
        """Open another client for the next call: this one failed."""
        held.is_given_up = True
        if self._held is held:
            self._held = None
        await _close_unused(held)

    async def close(self) -> None:
        """Close the client, whoever uses it; the next call opens another."""
        held, self._held = self._held, None
        if held is not None:
            held.is_given_up = True
            await _close(held.client)

    async def _open(self) -> bittensor.Client:
        try:
            client = (self._make_client or _make_client)(self._network)
        except ValueError as error:
            raise ArenaError("V2030", f"network {self._network!r}: {error}") from error
        try:
            await client.connect()
        except BaseException:
            await _close(client)
            raise
        return client


def _make_client(network: str) -> bittensor.Client:
    from arena.chain.sdk_client import make_client

    return make_client(network)


async def _close_unused(held: HeldClient) -> None:
    if held.is_given_up and not held.calls:
        await _close(held.client)


async def _close(client: bittensor.Client) -> None:
    from bittensor.result import BittensorError

    # The state it is in is unknown. Where the node hung up politely, the SDK's reader dies of an assertion of
    # websockets, and closing raises it again.
    with suppress(BittensorError, OSError, TimeoutError, AssertionError):
        await client.close()
