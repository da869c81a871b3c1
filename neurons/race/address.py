"""A node's address on chain: written where the chain names another, told where the chain refuses it."""

from __future__ import annotations

from arena.chain.port import Metagraph
from foundation.backoff import Backoff, NextTry
from neurons.node.node import Node

PAUSES = Backoff(first_ms=60_000, most_ms=1_200_000)  # up to a hundred blocks of the real chain, twice its limit


class AddressOnChain:
    """Keeps one address of a node's hotkey on chain."""

    def __init__(self, node: Node, endpoint: str, *, whose: str, told: str = "") -> None:
        """`whose` begins the log lines; `told` is the sentence of one that went well, before the address."""
        self._node, self._endpoint, self._whose, self._told = node, endpoint, whose, told
        self._retry = NextTry()

    @property
    def is_refused(self) -> bool:
        """Whether the last try failed, so that another one follows."""
        return bool(self._retry.failures)

    def may_try(self) -> bool:
        """Whether the pause after the last try is over."""
        return self._node.now_ms() >= self._retry.not_before_ms

    async def keep(self, metagraph: Metagraph) -> None:
        """Publish the address unless the chain names it, this hotkey is not on it, or a pause is running. Pauses are
        longer after each failure. Raises ArenaError U3030."""
        node, now_ms = self._node, self._node.now_ms()
        published = next((each.endpoint for each in metagraph.neurons if each.hotkey == node.signer.hotkey), None)
        if published == self._endpoint:
            self._retry = NextTry()
        if published in (None, self._endpoint) or not self.may_try():
            return
        self._retry = PAUSES.after(self._retry, now_ms)  # also when no answer comes: it may stand on chain all the same
        result = await node.chain.publish(node.signer, self._endpoint)
        told = {"endpoint": self._endpoint, "status": result.status, "detail": result.detail}
        if result.status == "ok":
            self._retry = NextTry(not_before_ms=now_ms + PAUSES.most_ms)  # until it is read back from there
            node.log.info(
                f"{self._whose} published", **told, text=f"{self._told} {self._endpoint}" if self._told else ""
            )
            return
        seconds = self._retry.pause_ms // 1_000
        text = f"{self._whose} is not on chain: {result.status} {result.detail}; tried again in {seconds} s"
        node.log.warning(f"{self._whose} not published", **told, seconds=seconds, text=text)
