"""One client of a chain at a time: opened by the first call, given up after a failure, then opened anew.

A client that was given up is handed to nobody else, and closed when the last call that uses it is done: a read that
runs out of time doesn't cut off an extrinsic that waits for its block to be final, and a late failure touches no client
but its own. What fails or is ended while it opens leaves nothing open.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

from foundation.errors import ArenaError

if TYPE_CHECKING:
    import bittensor


class HeldClient:
    """An open client, and how many calls use it."""

    def __init__(self, client: bittensor.Client) -> None:
        self.client = client
        self.calls = 0
        self.is_given_up = False


class Connection:
    """The client of one network, shared by the calls of one process."""

    def __init__(self, network: str, make_client: Callable[[str], bittensor.Client] | None = None) -> None:
        """`make_client` replaces `arena.chain.sdk.client.make_client`."""
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
    from arena.chain.sdk.client import make_client

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
