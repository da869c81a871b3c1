"""The study's market: a small catalogue with short ids, its problems, and their partition, frozen before anything runs.

Everything follows from the plan's seed, so two studies of one plan have the same market, and the same 75. The
partition is the bank's own (`problems.pools.partition`): the second set is `never_touch`, the 75 are `eval`, `dev` is
drawn after them, the rest is `train`, by whole leak clusters. Its key follows from the seed too: nothing here is
secret.
"""

from __future__ import annotations

import hashlib
import random
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

from arena.bank.partition_file import read_partition, write_partition
from arena.chain.keys import keypair_signer, verify
from foundation.errors import ArenaError
from harness.catalogue.index.builder import build_index
from harness.catalogue.index.documents import write_documents
from harness.catalogue.synthetic.generator import generate
from problems.model import BUCKETS, Pool, Problem
from problems.pools.partition import OpenPartition, freeze, pool_of
from problems.pools.product_classes import find_classes
from problems.product import Product
from problems.suites.formats import read_problems, write_problems
from problems.synthesis.generator import synthesize
from training.study.plan import MarketRules, SetKey, StudyPlan

SIGNER = "//Study"  # a development key whose secret everybody can derive
DOCUMENTS, INDEX, PARTITION, PROBLEMS = "documents.jsonl", "index", "partition.json", "problems"
TRAIN = "train.jsonl"
_POOLS: Mapping[str, Pool] = {"train": "train", "eval": "eval", "second": "never_touch", "dev": "dev"}
_SHOP_LOW, _PRODUCTS_PER_SHOP = 100, 20
_DRAWN_TIMES = 40  # generated products looked at for each one taken, at most
_CONSONANTS, _VOWELS = "bcdfghjklmnprstvwxyz", "aeiou"
_WORDS = re.compile(r"[A-Za-z]+(?: [A-Za-z]+)*")  # a title of words alone: no codes, figures and marks
_VALUE = re.compile(r"[a-z][a-z ]*")


class Market(msgspec.Struct, frozen=True, kw_only=True):
    """Problems by pool; `second` is the suite of `never_touch`."""

    train: tuple[Problem, ...]
    eval: tuple[Problem, ...]
    second: tuple[Problem, ...]
    dev: tuple[Problem, ...]

    @property
    def held_out(self) -> tuple[Problem, ...]:
        """What may never be learnt from, `dev` aside."""
        return (*self.eval, *self.second)

    def of(self, place: SetKey) -> tuple[Problem, ...]:
        """The set that a plan names so."""
        return self.eval if place == "eval" else self.second


def make_market(plan: StudyPlan, folder: Path) -> None:
    """Write catalogue, index, problems and partition to `folder`. Made again, it is the same.

    Raises ArenaError P4011 for a catalogue too small for the problems, P4022 when the deal leaves a pool short.
    """
    rules = plan.market
    folder.mkdir(parents=True, exist_ok=True)
    products = stock(rules, plan.seed)
    with (folder / DOCUMENTS).open("wb") as stream:
        write_documents(products, stream)
    build_index(folder / DOCUMENTS, folder / INDEX)
    parts = (rules.train_counts, rules.eval_counts, rules.second_counts, rules.dev_counts)
    counts = {bucket: sum(part.get(bucket, 0) for part in parts) for bucket in BUCKETS}
    problems = synthesize(products, seed=plan.seed, counts=counts)
    dice, second = random.Random(f"second {plan.seed}"), list[Problem]()
    by_id = sorted(problems, key=lambda problem: problem.problem_id)
    for bucket in BUCKETS:
        second += dice.sample([one for one in by_id if one.bucket == bucket], rules.second_counts.get(bucket, 0))
    key = hashlib.sha256(f"study partition {plan.seed}".encode()).digest()
    manifest = freeze(
        problems,
        second,
        seed=plan.seed,
        key=key,
        classes=find_classes(products),
        eval_counts=rules.eval_counts,
        dev_counts=rules.dev_counts,
    )
    write_partition(folder / PARTITION, manifest, key, keypair_signer(SIGNER))
    partition, pools = OpenPartition(manifest, key), dict[Pool, list[Problem]]()
    for problem in problems:
        pools.setdefault(pool_of(problem, partition), []).append(problem)
    (folder / PROBLEMS).mkdir(exist_ok=True)
    for name, pool in _POOLS.items():
        _write(folder, name, pools.get(pool, []))
    train = sorted(pools.get("train", []), key=lambda problem: problem.problem_id)
    for name, count in rules.drawn.items():
        _write(folder, name, random.Random(f"{name} {plan.seed}").sample(train, min(count, len(train))))


def read_market(folder: Path) -> Market:
    """The problems of a market that was made. Raises ArenaError P4001 when they can't be read."""
    found: dict[str, tuple[Problem, ...]] = {}
    for name in _POOLS:
        path = folder / PROBLEMS / f"{name}.jsonl"
        try:
            lines = path.read_bytes().splitlines()
        except OSError as error:
            raise ArenaError("P4001", f"{path}: {error.strerror}") from error
        found[name] = read_problems(lines) if lines else ()
    return Market(**found)


def open_partition(folder: Path) -> OpenPartition:
    """The market's partition with its key."""
    return read_partition(folder / PARTITION, verify)


def stock(rules: MarketRules, seed: int) -> list[Product]:
    """The products: synthetic ones, shortened. Ids are a consonant and a vowel, in either order, and two digits; titles
    are words alone, in lower case; a few options and attributes whose values are words; whole pesos; no descriptions.

    Raises ArenaError P4011 when the generator has too few short titles, or there are more products than ids.
    """
    pairs = [(one, other) for one in _CONSONANTS for other in _VOWELS]
    pairs += [(other, one) for one, other in pairs]
    ids = [f"{one}{other}{number:02}" for one, other in pairs for number in range(100)]
    random.Random(f"ids {seed}").shuffle(ids)
    dice = random.Random(f"shops {seed}")
    taken: list[Product] = []
    for product in generate(rules.documents * _DRAWN_TIMES, seed):
        if len(product.title) > rules.title_chars_max or not _WORDS.fullmatch(product.title):
            continue
        shop_id = str(_SHOP_LOW + dice.randrange(max(1, rules.documents // _PRODUCTS_PER_SHOP)))
        taken.append(_shortened(product, ids[len(taken)], shop_id, rules.options_max))
        if len(taken) == min(rules.documents, len(ids) - 1):
            break
    if len(taken) < rules.documents:
        raise ArenaError("P4011", f"{len(taken)} of {rules.documents} products with short titles and ids of their own")
    return taken


def _shortened(product: Product, product_id: str, shop_id: str, options_max: int) -> Product:
    options = [option for option in product.sku_options.values() if all(map(_VALUE.fullmatch, option.values()))]
    attributes = [
        (key, values[:1]) for key, values in product.attributes.items() if values and _VALUE.fullmatch(values[0])
    ]
    return msgspec.structs.replace(
        product,
        product_id=product_id,
        shop_id=shop_id,
        title=product.title.lower(),
        price=float(round(product.price)),
        sku_options={str(number): option for number, option in enumerate(options[:options_max], 1)},
        attributes=dict(attributes[:options_max]),
        short_description="",
        description="",
        specification="",
    )


def _write(folder: Path, name: str, problems: Iterable[Problem]) -> None:
    lines = "".join(f"{line}\n" for line in write_problems(problems))
    (folder / PROBLEMS / f"{name}.jsonl").write_text(lines, "utf-8")
