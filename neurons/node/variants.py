"""Variants at a node: the seed of an agent's variants, and the catalogue that they are drawn from.

A seed is given only once the block that it follows from is final, so all validators draw the same; the index
over the catalogue is built when the first variant is asked for, once, outside the event loop, and asked by one thread
at a time.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterable

from arena.chain.port import Subtensor
from arena.policy import Policy
from arena.race.settlement.draw import qualifying_seed
from arena.records.model import Subject
from problems.model import Problem
from problems.product import Product
from problems.suites.variants import Variant, VariantMaker


class SuiteVariants:
    """The variants of the active suite, from any thread."""

    def __init__(self, suite: Iterable[Problem], products: Callable[[], Iterable[Product]]) -> None:
        """`products` is the whole catalogue, asked for once."""
        self._suite = tuple(suite)
        self._products = products
        self._drawing = threading.Lock()

    def variant(self, problem_id: str, seed: str) -> Variant:
        """As `VariantMaker.variant`. The first call builds the index and takes its time."""
        with self._drawing:
            return self._maker.variant(problem_id, seed)

    @functools.cached_property
    def _maker(self) -> VariantMaker:
        return VariantMaker(self._suite, self._products())


class VariantSeeds:
    """The seeds of agents' variants, read from the chain once each."""

    def __init__(self, chain: Subtensor, policy: Policy) -> None:
        self._chain, self._rules = chain, policy.qualifying
        self._known: dict[str, str] = {}  # by agent version id

    async def of(self, subject: Subject) -> str | None:
        """The seed of this agent's variants, "" where the policy asks the suite's own problems, None while the block
        that it follows from is not final. Raises ArenaError U3030 while the chain can't be read."""
        agent = subject.agent_version_id
        if not self._rules.variant_blocks:
            return ""
        if agent not in self._known:
            block = subject.commitment_block + self._rules.variant_blocks
            if block > await self._chain.finalized_block():
                return None
            block_hash = await self._chain.block_hash(block)
            self._known[agent] = qualifying_seed(self._rules.suite, agent, block_hash)
        return self._known[agent]

    def forget(self, agent_version_id: str) -> None:
        """Let go of an agent that was decided."""
        self._known.pop(agent_version_id, None)
