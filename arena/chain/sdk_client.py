"""The SDK's client as this release uses it. Imports the SDK: import it when the first connection opens.

Three things are its own. A connection that fails or is ended while it opens is closed: the SDK knows it only once it is
open, and closes it after some failures and after no cancellation. Closing has an end: the SDK's waits for ever where a
frame comes at that moment. And one storage item that a runtime may have done away with reads as unset.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import bittensor
from bittensor._transport.errors import StorageFunctionNotFound
from bittensor.settings import default_archive_endpoints, default_fallback_endpoints, resolve_endpoint

# By it the SDK asks whether a subnet runs Null consensus, before it sets weights. A runtime without it has no such
# consensus; unset, the SDK goes its ordinary way, and what it does there the chain checks.
CONSENSUS = ("SubtensorModule", "SubnetEpochConsensus")
CLOSE_S = 10.0


class NodeSubstrate(bittensor.RpcSubstrate):
    """The SDK's backend over one endpoint and its spares."""

    def _interface(self, endpoint: str, fallbacks: list[str]) -> Any:
        made: Any = super()._interface(endpoint, fallbacks)
        initialize, close = made.initialize, made.close

        async def initialize_or_close() -> None:
            try:
                await initialize()
            except BaseException:
                with suppress(OSError, TimeoutError, AssertionError):  # as in `arena.chain.real`
                    await made.close()
                raise

        async def close_in_time() -> None:
            async with asyncio.timeout(CLOSE_S):
                await close()

        made.initialize, made.close = initialize_or_close, close_in_time
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
