"""Distributions: what a set of problems looks like, in integers, so that two sets can be laid side by side.

A pure function of the problems, whatever their order. Shares and means are ten-thousandths. It needs no catalogue, so
it works for public sets whose documents are not available.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence

import msgspec

from problems.constraints import count_constraints
from problems.model import BUCKETS, Bucket, Problem, RewardItem


class BucketShape(msgspec.Struct, frozen=True, kw_only=True):
    """One bucket of a set. Shares are of items."""

    problems: int
    items: dict[int, int]  # items of a problem -> how many problems
    constraints_mean_e4: int  # per item, the title left out
    with_sku_e4: int
    with_attributes_e4: int
    with_service_e4: int
    with_price_e4: int
    title_only_e4: int
    price_modes: dict[str, int]
    query_chars: int  # median


class SetShape(msgspec.Struct, frozen=True, kw_only=True):
    """A whole set; buckets without a problem are left out."""

    problems: int
    buckets: dict[Bucket, BucketShape]
    vouchers: dict[str, int]  # `platform fixed`, `shop percentage`, ...


def describe(problems: Iterable[Problem]) -> SetShape:
    """The shape of a set: constraints, items per problem, kinds of vouchers and query length."""
    held = list(problems)
    kinds = Counter(f"{one.voucher.voucher_type} {one.voucher.discount_type}" for one in held if one.voucher)
    by_bucket = {bucket: [problem for problem in held if problem.bucket == bucket] for bucket in BUCKETS}
    return SetShape(
        problems=len(held),
        buckets={bucket: _bucket(members) for bucket, members in by_bucket.items() if members},
        vouchers=dict(sorted(kinds.items())),
    )


def _bucket(problems: Sequence[Problem]) -> BucketShape:
    items = [item for problem in problems for item in problem.rewards]

    def share_e4(asks: Callable[[RewardItem], object]) -> int:
        return 10_000 * sum(bool(asks(item)) for item in items) // len(items)

    return BucketShape(
        problems=len(problems),
        items=dict(sorted(Counter(len(problem.rewards) for problem in problems).items())),
        constraints_mean_e4=10_000 * sum(map(count_constraints, items)) // len(items),
        with_sku_e4=share_e4(lambda item: item.sku_options),
        with_attributes_e4=share_e4(lambda item: item.attributes),
        with_service_e4=share_e4(lambda item: item.service),
        with_price_e4=share_e4(lambda item: item.price),
        title_only_e4=share_e4(lambda item: count_constraints(item) == 0),
        price_modes=dict(sorted(Counter(rule.mode for item in items for rule in item.price).items())),
        query_chars=sorted(len(problem.query) for problem in problems)[len(problems) // 2],
    )
