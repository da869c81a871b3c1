"""Who is registered, by the chain as it was seen last, and for how long that may be believed.

Fails closed. Where the newest final block has stood still, or could not be asked for, longer than `stale_s`,
nobody counts as registered and everybody is told so (V2201).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from arena.chain.port import Metagraph, Subtensor
from foundation.errors import ArenaError

_STRANGERS_S = 1.0  # how often the chain is asked again for hotkeys that are not known


class Registration:
    """The metagraph of the newest final block, asked for at most every `refresh_s`."""

    def __init__(
        self, chain: Subtensor, monotonic: Callable[[], float], *, refresh_s: float = 6.0, stale_s: float = 180.0
    ) -> None:
        """`monotonic` is a clock in seconds."""
        self._chain, self._monotonic = chain, monotonic
        self._refresh_s, self._stale_s = refresh_s, stale_s
        self._metagraph: Metagraph | None = None
        self._grew_s = self._asked_s = float("-inf")
        self._turn = asyncio.Lock()

    async def metagraph(self) -> Metagraph:
        """The subnet. Raises ArenaError V2201 while it is not known well enough."""
        return await self._known(self._refresh_s)

    async def require(self, hotkey: str) -> None:
        """Return for a registered hotkey; one that is not may just have been. Raises ArenaError A1008, V2201."""
        metagraph = await self.metagraph()
        if metagraph.uid_of(hotkey) is None:
            metagraph = await self._known(min(_STRANGERS_S, self._refresh_s))
        if metagraph.uid_of(hotkey) is None:
            raise ArenaError("A1008", f"{hotkey} on netuid {metagraph.netuid} at block {metagraph.block}")

    async def _known(self, refresh_s: float) -> Metagraph:
        async with self._turn:
            if self._monotonic() - self._asked_s >= refresh_s:
                self._asked_s = self._monotonic()
                try:
                    finalized = await self._chain.finalized_block()
                    if self._metagraph is None or finalized > self._metagraph.block:
                        self._metagraph = await self._chain.metagraph(finalized)
                        self._grew_s = self._monotonic()
                except ArenaError as error:  # the chain is away: what was seen last counts until it is stale
                    if not error.entry.is_retryable:
                        raise
        if self._metagraph is None or self._monotonic() - self._grew_s > self._stale_s:
            raise ArenaError("V2201", f"no new final block within {self._stale_s:g} s")
        return self._metagraph
