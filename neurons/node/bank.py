"""A node's stock of batches: read, or on the local network made from the open catalogue.

Batches are seeded with secret randomness, so that no one can compute them. On a real network they come from the
operator and nothing is made here.
"""

from __future__ import annotations

import functools
import secrets
from collections.abc import Callable, Iterable, Sequence

from arena.bank.partition_file import PARTITION_FILE, PartitionFile, PoolAssignment, unpartitioned
from arena.bank.stock import HORIZON_RACES, Bank, BatchStock, SealedStock, StockLevel
from arena.chain.keys import verify
from arena.chain.local import LocalSubtensor
from arena.chain.opening import open_beacon, open_timelock
from arena.chain.port import Beacon, Signer, Subtensor, Timelock, is_local
from arena.policy import Policy
from arena.race.schedule import coming_closes_ms
from foundation.errors import ArenaError
from neurons.settings.inputs import catalogue_products, policy_of, spread_evenly
from neurons.settings.settings import Settings
from problems.clusters import ProductClasses
from problems.model import Problem
from problems.product import Product
from problems.suites import shipped_answers
from problems.synthesis import ProblemMaker
from problems.title_index import TitleIndex
from problems.titles import AcceptedTitles, cut_titles, decode_accepted

BANK_TITLES = "titles.json"  # accepted titles of the node's own problems, in the folder of its bank


async def prepare_local_chain(chain: Subtensor, signer: Signer) -> None:
    """On the local twin: register this validator's hotkey and put stake behind it."""
    if not isinstance(chain, LocalSubtensor):
        return
    await chain.register(signer)
    metagraph = await chain.metagraph()
    if not any(neuron.hotkey == signer.hotkey and neuron.has_validator_permit for neuron in metagraph.neurons):
        await chain.set_stake(signer.hotkey, 5 * chain.rules.permit_stake_rao)


class Replenisher:
    """Makes the problems of race after race, from secret randomness, over one index of the open catalogue.

    The index is built with the first batch and kept: every further one costs the same.
    """

    def __init__(self, products: Callable[[], Iterable[Product]], public: Iterable[str], batch_problems: int) -> None:
        """`public` are product ids that answer in a suite; neither they nor near-identical ones answer here."""
        self._products = products
        self._public = frozenset(public)
        self._counts = spread_evenly(batch_problems)
        self._excluded: frozenset[str] = frozenset()

    def __call__(self, earlier: frozenset[str]) -> tuple[Problem, ...]:
        """Problems for one more race; `earlier` are the product ids that answered. Raises ArenaError P4011 when the
        catalogue has no more."""
        self._maker.exclude(earlier - self._excluded)
        self._excluded = earlier
        return self._maker.make(seed=secrets.randbits(256), counts=self._counts)  # ids and answers follow from it

    def classes(self) -> ProductClasses:
        """The product classes of the catalogue."""
        return self._index.classes

    @functools.cached_property
    def _index(self) -> TitleIndex:
        return TitleIndex(self._products())

    @functools.cached_property
    def _maker(self) -> ProblemMaker:
        maker = ProblemMaker(self._index)
        maker.exclude(self._public)
        return maker


def open_bank(
    settings: Settings,
    policy: Policy,
    suite: tuple[Problem, ...],
    beacon: Beacon,
    timelock: Timelock,
    signer: Signer | None = None,
) -> Bank:
    """The node's bank: the sealed batches of the key that the settings name, or a stock of its own.

    A real network's batches stand under a partition: sealed ones name its manifest, and for problems of its own a node
    keeps `bank/partition.json`; without them no race opens (P4030). Nor does one without the batch's accepted titles:
    sealed ones hold them, and those of one's own problems are in `bank/titles.json` (P4030). New problems enter there
    by answers, near-identical products counted as one, so no batch joins two pools. On the local network the partition
    may be missing; an empty stock makes problems nobody has seen, and none of their answers is an answer of a public
    suite or of an earlier batch. Without a `signer` the bank can only be looked at.
    """
    folder, is_real = settings.state_dir / "bank", not is_local(settings.network)
    if settings.bank_hotkey:
        return SealedStock(
            folder,
            settings.bank_hotkey,
            verify,
            timelock,
            beacon,
            is_partition_required=is_real,
            are_titles_required=is_real,
        )
    path = folder / PARTITION_FILE
    public = shipped_answers().union(reward.product_id for problem in suite for reward in problem.rewards)
    maker = Replenisher(lambda: catalogue_products(settings), public, policy.race.batch_problems)

    def assign(problems: Sequence[Problem]) -> PoolAssignment:
        if signer and path.exists():
            return PartitionFile(path, signer, verify, maker.classes).assign(problems)
        if is_real:
            raise ArenaError("P4030", f"no partition at {path}, and the setting bank_hotkey is empty")
        return unpartitioned(problems)

    def titles_of(problems: Sequence[Problem]) -> AcceptedTitles | None:
        release = folder / BANK_TITLES
        if release.exists():
            return cut_titles(decode_accepted(release.read_bytes()), problems)
        if is_real:
            raise ArenaError("P4030", f"no title release at {release}, and the setting bank_hotkey is empty")
        return None

    return BatchStock(folder, secrets.token_bytes, None if is_real else maker, assign, titles_of)


def measure_stock(settings: Settings, now_ms: int) -> StockLevel:
    """How long the bank of the settings lasts for the policy's races; opens files of the state folder only.

    Raises ArenaError P4001 to P4010 for a stock file that can't be read, V2030 for an unknown policy.
    """
    policy = policy_of(settings)
    beacon = open_beacon(settings.network, lambda: now_ms)
    bank = open_bank(settings, policy, (), beacon, open_timelock(settings.network))
    return bank.level(coming_closes_ms(now_ms, policy.race, HORIZON_RACES), now_ms)
