"""What a node reads or, on the local network, makes from the open catalogue: suite, stock of batches, gate knowledge.

Miner and validator on one host get the same suite: the operator's, the shipped one or, over a catalogue of
one's own, a suite seeded by its name. Batches are seeded with secret randomness, so that no one can compute them. On a
real network both come from the operator and nothing is made here.
"""

from __future__ import annotations

import contextlib
import functools
import secrets
from collections.abc import Callable, Iterable, Sequence

from arena.bank.partition_file import PARTITION_FILE, PartitionFile, PoolAssignment, unpartitioned
from arena.bank.port import Bank
from arena.bank.stock.level import HORIZON_RACES, StockLevel
from arena.bank.stock.own_stock import BatchStock
from arena.bank.stock.sealed_stock import SealedStock
from arena.bank.suite_signature import open_shipped, read_suite
from arena.chain.keys import verify
from arena.chain.local.chain import LocalSubtensor
from arena.chain.opening import is_local, open_beacon, open_timelock
from arena.chain.port import Beacon, Signer, Subtensor, Timelock
from arena.gate.isolation import inspect_isolated
from arena.gate.knowledge import GateKnowledge, make_knowledge
from arena.gate.report import GateReport
from arena.policy import Policy
from arena.race.state.schedule import coming_closes_ms
from foundation.canonical import text_hash
from foundation.durable_files import write_whole
from foundation.errors import ArenaError
from harness.agents.registry import published_sources
from harness.catalogue.engines.native import Engine, open_catalogue
from harness.tools.printed import printed_tools
from neurons.node.settings import Settings
from neurons.node.wiring import catalogue_path, policy_of, prepare_catalogue, suite_folder
from problems.model import BUCKETS, Bucket, Problem
from problems.pools.product_classes import ProductClasses
from problems.product import Product
from problems.scoring.title_index import TitleIndex
from problems.scoring.title_matching import AcceptedTitles, cut_titles, decode_accepted
from problems.suites.formats import read_problems, write_problems
from problems.suites.shipped import SUITES, products_sha256, shipped_answers
from problems.synthesis.generator import ProblemMaker, synthesize

BANK_TITLES = "titles.json"  # accepted titles of the node's own problems, in the folder of its bank


def prepare_suite(
    settings: Settings,
    policy: Policy,
    own_hotkey: str = "",
) -> tuple[Problem, ...]:
    """The active public suite of `policy`: on a real network the one that the operator signed.

    The operator is the key that the setting `bank_hotkey` names; where it names none, the node itself (`own_hotkey`,
    ss58). On the local network a suite that `bank_hotkey` signed serves where one stands; else the shipped suite serves
    where the catalogue is the one it is asked of, and its signature is checked each time; over any other catalogue a
    suite of that name is made, and kept as a file.

    Raises ArenaError P4001 when a real network's node has none, P4006 when its answers are not in the catalogue, P4015
    when there are fewer problems than the policy asks for, P4018 when the suite is not what the operator signed, or no
    operator is known, V2064 when a suite made here can't be written.
    """
    name, count = policy.qualifying.suite, policy.qualifying.problems
    is_signed = bool(settings.bank_hotkey) and (suite_folder(settings) / f"{name}.manifest.json").exists()
    if not is_local(settings.network) or is_signed:
        return _first_of_each(_signed_suite(settings, name, settings.bank_hotkey or own_hotkey), count)
    path = suite_folder(settings) / f"{name}-{count}.jsonl"
    if path.exists():
        with path.open(encoding="utf-8") as lines:
            found = read_problems(lines)
        if len(found) < count:
            raise ArenaError("P4015", f"{path} holds {len(found)} problems of {count}")
        return found
    if name in SUITES:
        shipped, catalogue = open_shipped(name, verify), open_catalogue(catalogue_path(settings))
        recipe = shipped.manifest.catalogue
        if len(catalogue) == recipe.documents and _products_sha256(settings, catalogue) == recipe.products_sha256:
            return _first_of_each(shipped.problems, count)
    problems = practice_problems(settings, name, count)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, "".join(f"{line}\n" for line in write_problems(problems)).encode())
    except OSError as error:
        raise ArenaError("V2064", f"{path}: {error.strerror or error}") from error
    return problems


def _products_sha256(settings: Settings, catalogue: Engine) -> str:
    """`products_sha256` of the catalogue's products, kept by the hash of its index: reading every product took a
    quarter of `arena check`. Where the folder cannot be written it is computed each time."""
    kept = settings.state_dir / "products_sha256" / catalogue.content_sha256
    with contextlib.suppress(OSError, UnicodeDecodeError):
        if len(found := kept.read_text("ascii")) == 64:
            return found
    computed = products_sha256(catalogue.products())
    with contextlib.suppress(OSError):
        kept.parent.mkdir(parents=True, exist_ok=True)
        write_whole(kept, computed.encode())
    return computed


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
        self._counts = _counts(batch_problems)
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
    sealed ones hold them, and those of one's own problems are in `bank/titles.json` (P4031). New problems enter there
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
            raise ArenaError("P4031", f"no title release at {release}, and the setting bank_hotkey is empty")
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


def practice_problems(settings: Settings, name: str, count: int) -> tuple[Problem, ...]:
    """`count` problems over the catalogue, seeded by `name`: the same for everybody who asks for that name."""
    seed = int(text_hash(f"agent-arena/suite/{name}")[:15], 16)
    return synthesize(catalogue_products(settings), seed=seed, counts=_counts(count))


def _signed_suite(settings: Settings, name: str, operator: str) -> tuple[Problem, ...]:
    """The suite in the state folder that `operator` signed, over a catalogue that can answer it.

    The catalogue's products are counted, not hashed: over millions that takes minutes, and a start should not.
    """
    if not operator:
        raise ArenaError("P4018", f"{name}: set bank_hotkey to the operator's key, which signs the suite")
    suite = read_suite(suite_folder(settings), name, verify, operator)
    catalogue, documents = open_catalogue(catalogue_path(settings)), suite.manifest.catalogue.documents
    if len(catalogue) != documents:
        raise ArenaError("P4018", f"{name} is asked of {documents} documents, this catalogue holds {len(catalogue)}")
    for problem in suite.problems:
        for item in problem.rewards:
            if catalogue.product(item.product_id) is None:
                raise ArenaError("P4006", f"{problem.problem_id} of suite {name}: {item.product_id}")
    return suite.problems


def _first_of_each(problems: Sequence[Problem], count: int) -> tuple[Problem, ...]:
    """`count` problems, the first of each bucket, spread as `_counts` does. Raises ArenaError P4015 for too few."""
    wanted = _counts(count)
    chosen = tuple(
        problem
        for bucket in BUCKETS
        for problem in [problem for problem in problems if problem.bucket == bucket][: wanted[bucket]]
    )
    if len(chosen) < count:
        raise ArenaError("P4015", f"the suite holds {len(problems)} problems, the policy asks for {count}")
    return chosen


def catalogue_products(settings: Settings) -> tuple[Product, ...]:
    """Every product of the open catalogue, by id."""
    return tuple(open_catalogue(catalogue_path(settings)).products())


def gate_knowledge(settings: Settings, policy: Policy, suite: tuple[Problem, ...]) -> GateKnowledge:
    """What the gate of this node knows: the catalogue's ids, the public suite's texts, the published agents, the tools'
    own words."""
    return make_knowledge(
        open_catalogue(catalogue_path(settings)).product_ids(),
        (problem.query for problem in suite),
        published_sources(),
        policy.gate,
        published_texts=printed_tools(),
    )


def gate_report(source: bytes, settings: Settings) -> GateReport:
    """The gate's report on a file, from the validator's own rules and knowledge (without other miners' agents)."""
    policy = policy_of(settings)
    prepare_catalogue(settings)
    knowledge = gate_knowledge(settings, policy, prepare_suite(settings, policy))
    return inspect_isolated(source, policy.gate, knowledge)


def _counts(total: int) -> dict[Bucket, int]:
    """`total` problems spread evenly over the buckets, the first ones taking what is left."""
    share, rest = divmod(total, len(BUCKETS))
    return {bucket: share + (place < rest) for place, bucket in enumerate(BUCKETS)}
