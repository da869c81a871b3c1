"""Cheap problems over any catalogue, many at a time, to cluster and partition; and the real ones where they are."""

from __future__ import annotations

import random
from collections.abc import Sequence

import msgspec
import pytest

from problems.formats import read_problems
from problems.model import BUCKETS, Problem, Product, RewardItem, Voucher
from tests.problems.stand import DATA

VOUCHER = Voucher(voucher_type="platform", discount_type="fixed", threshold=10, budget=100, face_value=5)
REAL = DATA / "shoppingbench" / "problems.jsonl"


def answer(product: Product) -> RewardItem:
    return RewardItem(product_id=product.product_id, title=(product.title,))


def problem_of(problem_id: str, bucket: str, products: Sequence[Product]) -> Problem:
    query = "I want " + " and ".join(product.title for product in products)
    voucher = VOUCHER if bucket == "voucher" else None
    rewards = tuple(answer(product) for product in products)
    return Problem(problem_id=problem_id, bucket=bucket, query=query, rewards=rewards, voucher=voucher)


def cheap_problems(products: Sequence[Product], count: int, seed: int = 3) -> tuple[Problem, ...]:
    """`count` problems whose answers are drawn with replacement: some share a product, as in a bank that grows."""
    rng = random.Random(seed)
    made = []
    for number in range(count):
        bucket = BUCKETS[number % 3]
        size = 1 if bucket == "product" else rng.randint(2, 4)
        made.append(problem_of(f"b{seed}-{number}", bucket, [rng.choice(products) for _ in range(size)]))
    return tuple(made)


def real_rows() -> list[dict[str, object]]:
    if not REAL.exists():
        pytest.skip(f"the public problems are not here: {REAL}")
    return [msgspec.json.decode(line) for line in REAL.read_bytes().splitlines()]


def real_problems() -> tuple[Problem, ...]:
    """The 750 public problems that a rule decides."""
    return read_problems(row for row in real_rows() if row["category"] != "web")


def real_suites(problems: Sequence[Problem]) -> tuple[Problem, ...]:
    """Those of the public problems that are in the suites v1, v2 and v3."""
    named = {row["id"] for row in real_rows() if {"oro-v1 suite", "oro-v2 suite", "oro-v3 suite"} & set(row["sources"])}
    return tuple(problem for problem in problems if problem.problem_id in named)
