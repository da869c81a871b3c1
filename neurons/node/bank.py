"""A node's bank: its operator's sealed batches, or on the local network those it makes from the open catalogue.

Batches are seeded with secret randomness, so that no one can compute them. On a real network nothing is made here.
"""

from __future__ import annotations

import functools
import secrets
from collections.abc import Callable, Iterable

from arena.bank.batch import SALT_BYTES, seal
from arena.bank.sealing import SealedFile, lock_batch
from arena.bank.stock import HORIZON_RACES, Bank, StockLevel
from arena.chain.keys import verify
from arena.chain.local import LocalSubtensor
from arena.chain.opening import open_beacon, open_timelock
from arena.chain.port import Beacon, Signer, Subtensor, Timelock, is_local
from arena.policy import Policy
from arena.race.schedule import coming_closes_ms
from neurons.settings.inputs import catalogue_products, policy_of, spread_evenly, unix_ms
from neurons.settings.settings import Settings
from problems.model import Problem, Product
from problems.suites import shipped_answers
from problems.synthesis import ProblemMaker
from problems.title_index import TitleIndex


async def prepare_local_chain(chain: Subtensor, signer: Signer) -> None:
    """On the local twin: register this validator's hotkey and put stake behind it."""
    if not isinstance(chain, LocalSubtensor):
        return
    await chain.register(signer)
    metagraph = await chain.metagraph()
    if not any(neuron.hotkey == signer.hotkey and neuron.has_validator_permit for neuron in metagraph.neurons):
        await chain.set_stake(signer.hotkey, 5 * chain.rules.permit_stake_rao)


class Replenisher:
    """Makes and seals the problems of race after race, from secret randomness, over one index of the open catalogue.

    The index is built once and kept: every batch costs the same.
    """

    def __init__(
        self,
        products: Callable[[], Iterable[Product]],
        public: Iterable[str],
        batch_problems: int,
        timelock: Timelock,
        signer: Signer | None,
    ) -> None:
        """`public` are product ids that answer in a suite; neither they nor near-identical ones answer here."""
        self._products = products
        self._public = frozenset(public)
        self._counts = spread_evenly(batch_problems)
        self._timelock, self._signer = timelock, signer

    def prepare(self) -> None:
        """Build the index of the catalogue."""
        assert self._problem_maker is not None

    def make(self, race_id: str, round_number: int, earlier: frozenset[str]) -> SealedFile:
        """A batch for one more race, readable from that round on; `earlier` are the product ids that answered. Raises
        ArenaError P4011 when the catalogue has no more."""
        assert self._signer is not None, "a bank that is only looked at seals nothing"
        self._problem_maker.exclude(earlier)
        made = self._problem_maker.make(seed=secrets.randbits(256), counts=self._counts)  # ids and answers follow
        batch = seal(race_id, sorted(made, key=lambda problem: problem.problem_id), secrets.token_bytes(SALT_BYTES))
        return lock_batch(batch, round_number, timelock=self._timelock, signer=self._signer, made_ms=unix_ms())

    @functools.cached_property
    def _problem_maker(self) -> ProblemMaker:
        maker = ProblemMaker(TitleIndex(self._products()))
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
    """The node's bank: the batches sealed by the key that the settings name, or else by the node's own.

    A real network's batches name their partition manifest and hold their accepted titles, else they serve no race
    (P4014). On the local network a node without an operator's key makes a batch where there is none: problems nobody
    has seen, none of whose answers is an answer of a public suite or of an earlier batch. Without a `signer` the bank
    can only be looked at.
    """
    is_real, own = not is_local(settings.network), signer.hotkey if signer else ""
    maker = None
    if not is_real and not settings.bank_hotkey:
        public = shipped_answers().union(reward.product_id for problem in suite for reward in problem.rewards)
        size = policy.race.batch_problems
        maker = Replenisher(lambda: catalogue_products(settings), public, size, timelock, signer)
    bank_hotkey, folder = settings.bank_hotkey or own, settings.state_dir / "bank"
    return Bank(folder, bank_hotkey, verify, timelock, beacon, is_real=is_real, maker=maker)


def measure_stock(settings: Settings, now_ms: int) -> StockLevel:
    """How long the bank of the settings lasts for the policy's races; opens files of the state folder only.

    Raises ArenaError V2030 for an unknown policy.
    """
    policy = policy_of(settings)
    beacon = open_beacon(settings.network, lambda: now_ms)
    bank = open_bank(settings, policy, (), beacon, open_timelock(settings.network))
    return bank.level(coming_closes_ms(now_ms, policy.race, HORIZON_RACES), now_ms)
