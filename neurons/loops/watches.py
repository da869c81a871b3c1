"""The watches of a node: over the chain, its embedded database, and its model endpoints.

They decide nothing. A chain that stopped growing, a lost registration or permit are logged once and kept for
the heartbeat; the embedded server of this state folder is started again when it dies; an endpoint that does not answer
is what the loop `models` or `judge` waits for.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Coroutine, Sequence

import msgspec

from arena.store.embedded import EmbeddedServer, is_running, start_embedded
from foundation.codes import JUDGE_FAILED, MODEL_FAILED
from foundation.errors import ArenaError
from neurons.health.status import ChainFacts
from neurons.loops.node import Node
from neurons.loops.run_loop import StopSignal, run_loop
from neurons.settings.endpoints import check_endpoints
from neurons.settings.settings import Endpoint

STALE_MS = 180_000  # fifteen blocks of the real chain
METAGRAPH_BLOCKS = 25  # between two looks at our own place on the subnet


class ChainWatch:
    """Looks at the chain for one node."""

    name, every_s = "chain", 12.0

    def __init__(self, node: Node) -> None:
        self._node = node
        self.facts = ChainFacts()

    def is_stale(self) -> bool:
        """Whether the newest block seen stands still: the subnet may look otherwise by now. False before any was seen.

        By this host's clock at this moment, so that a watch that hears nothing any more does not say that all is well.
        """
        return bool(self.facts.seen_ms) and self._node.now_ms() - self.facts.grew_ms > STALE_MS

    async def turn(self) -> ChainFacts:
        """Look once; the facts as they are now.

        Raises ArenaError U3030 while the chain is away; and, with the facts kept, U3037 and V2032 while
        this release can't do all its work on this chain: the status says so, and whatever doesn't need it goes on.
        """
        node, before, now_ms = self._node, self.facts, self._node.now_ms()
        block, finalized = await node.chain.block(), await node.chain.finalized_block()
        grew_ms = before.grew_ms if block == before.block and before.seen_ms else now_ms
        skew_ms = now_ms - await node.chain.head_ms() if grew_ms == now_ms else before.skew_ms
        is_stale = now_ms - grew_ms > STALE_MS
        if is_stale and not before.is_stale:
            node.log.error("chain stands still", code="U3034", block=block, seconds=(now_ms - grew_ms) // 1_000)
        facts = msgspec.structs.replace(
            before,
            seen_ms=now_ms,
            block=block,
            finalized_block=finalized,
            grew_ms=grew_ms,
            skew_ms=skew_ms,
            is_stale=is_stale,
        )
        self.facts = facts
        if not facts.placed_block or block - facts.placed_block >= METAGRAPH_BLOCKS:
            self.facts = facts = await self._placed(facts)
        metrics = node.metrics
        metrics.chain_block.set(facts.block)
        metrics.chain_finalized_block.set(facts.finalized_block)
        metrics.chain_is_stale.set(facts.is_stale)
        metrics.uid.set(-1 if facts.uid is None else facts.uid)
        metrics.permit.set(facts.has_permit)
        await node.chain.check(node.signer.hotkey)
        return facts

    async def _placed(self, before: ChainFacts) -> ChainFacts:
        """The facts with our own place on the subnet; a change of it is said."""
        metagraph = await self._node.chain.metagraph()
        own = next((neuron for neuron in metagraph.neurons if neuron.hotkey == self._node.signer.hotkey), None)
        facts = msgspec.structs.replace(
            before,
            uid=own.uid if own else None,
            has_permit=bool(own and own.has_validator_permit),
            stake_rao=own.stake_rao if own else 0,
            placed_block=max(1, before.block),
        )
        uid, is_good = facts.uid, facts.has_permit
        if not before.placed_block or (uid, is_good) != (before.uid, before.has_permit):
            log = self._node.log.info if is_good else self._node.log.error
            place = "not registered on the subnet" if uid is None else f"uid {uid} on the subnet"
            text = f"{place}, with a permit" if is_good else f"{place}, without a permit: no weights are set (U3035)"
            log("place on the subnet", uid=uid, permit=is_good, code="" if is_good else "U3035", text=text)
        return facts


class DatabaseWatch:
    """Keeps one node's embedded server running."""

    name, every_s = "database", 2.0

    def __init__(self, node: Node) -> None:
        self._folder, self._log = node.state_dir, node.log
        self._started: list[EmbeddedServer] = []  # our further shares in it

    async def close(self) -> None:
        """Give back what was started."""
        for server in self._started:
            await asyncio.shield(asyncio.to_thread(server.stop))

    async def turn(self) -> None:
        """Start the server if it is gone. Raises ArenaError V2021 when it does not start."""
        if await asyncio.to_thread(is_running, self._folder):
            return
        self._log.error("database server is gone; starting it again", folder=str(self._folder))
        try:
            self._started.append(await asyncio.to_thread(start_embedded, self._folder))
        except ArenaError as error:
            raise ArenaError("V2021", f"the embedded server does not start: {error.failure.detail}") from error
        self._log.info("database server is back", folder=str(self._folder))


ENDPOINTS_S = 15.0


def endpoint_loops(node: Node, drain: StopSignal) -> list[Coroutine[None, None, None]]:
    """A loop for the model endpoints, one for the judge's where there is one."""

    async def require_answers(endpoints: Sequence[Endpoint], code: str) -> None:
        try:
            silent = await asyncio.to_thread(check_endpoints, endpoints, ())
        except ArenaError as error:  # it refuses its key
            silent = (error.failure.detail,)
        if silent:
            raise ArenaError(code, "; ".join(silent))

    watched = [("models", MODEL_FAILED, node.upstreams), ("judge", JUDGE_FAILED, node.judges)]
    return [
        run_loop(name, functools.partial(require_answers, them, code), drain, every_s=ENDPOINTS_S)
        for name, code, them in watched
        if them
    ]
