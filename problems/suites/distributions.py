"""Distributions: what a set of problems looks like, in integers, so that two sets can be laid side by side.

A pure function of the problems, whatever their order. Shares are ten-thousandths, percentiles are nearest-rank
values that occur in the set, amounts are whole pesos rounded to the nearest. It needs no catalogue, so it works for
public sets whose documents are not available; prices are those that rules and vouchers name.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence

import msgspec

from problems.model import BUCKETS, Bucket, Problem, RewardItem
from problems.scoring.axes import attribute_pairs_of, sku_pairs_of
from problems.synthesis.constraints import count_constraints

PERCENTS = (5, 25, 50, 75, 95)


class Spread(msgspec.Struct, frozen=True, kw_only=True):
    """A distribution of integers. `percentiles` are those of `PERCENTS`; all zero when `count` is 0."""

    count: int
    mean_e4: int
    least: int
    percentiles: tuple[int, ...]
    most: int
    histogram: tuple[tuple[int, int], ...] = ()  # (value, how many), ascending; only where values are few


class BucketShape(msgspec.Struct, frozen=True, kw_only=True):
    """One bucket of a set. Shares are of items, in ten-thousandths."""

    problems: int
    items: Spread  # per problem
    constraints: Spread  # per item, the title left out
    sku_pairs: Spread  # per item that asks for any
    attributes: Spread  # per item
    with_sku_e4: int
    with_attributes_e4: int
    with_service_e4: int
    with_price_e4: int
    title_only_e4: int
    price_modes: dict[str, int]
    price_low_php: Spread
    price_high_php: Spread
    query_chars: Spread


class VoucherShape(msgspec.Struct, frozen=True, kw_only=True):
    """The vouchers of a set."""

    kinds: dict[str, int]  # `platform fixed`, `shop percentage`, ...
    threshold_php: Spread
    budget_php: Spread
    discount_percent: Spread
    face_value_php: Spread
    cap_php: Spread


class SetShape(msgspec.Struct, frozen=True, kw_only=True):
    """A whole set; buckets without a problem are left out."""

    problems: int
    buckets: dict[Bucket, BucketShape]
    vouchers: VoucherShape


def describe(problems: Iterable[Problem]) -> SetShape:
    """The shape of a set: constraint counts, price bounds, vouchers, items per problem and query length."""
    held = list(problems)
    vouchers = [problem.voucher for problem in held if problem.voucher is not None]
    kinds = Counter(f"{voucher.voucher_type} {voucher.discount_type}" for voucher in vouchers)
    by_bucket = {bucket: [problem for problem in held if problem.bucket == bucket] for bucket in BUCKETS}
    return SetShape(
        problems=len(held),
        buckets={bucket: _bucket(members) for bucket, members in by_bucket.items() if members},
        vouchers=VoucherShape(
            kinds=dict(sorted(kinds.items())),
            threshold_php=spread(round(voucher.threshold) for voucher in vouchers),
            budget_php=spread(round(voucher.budget) for voucher in vouchers),
            discount_percent=spread(round(100 * one.discount) for one in vouchers if one.discount is not None),
            face_value_php=spread(round(one.face_value) for one in vouchers if one.face_value is not None),
            cap_php=spread(round(one.cap) for one in vouchers if one.cap is not None),
        ),
    )


def spread(values: Iterable[int], histogram_most: int = 16) -> Spread:
    """The distribution of integers; its histogram is kept when at most `histogram_most` different values occur."""
    ordered = sorted(values)
    if not ordered:
        return Spread(count=0, mean_e4=0, least=0, percentiles=(0,) * len(PERCENTS), most=0)
    counts = Counter(ordered)
    return Spread(
        count=len(ordered),
        mean_e4=10_000 * sum(ordered) // len(ordered),
        least=ordered[0],
        percentiles=tuple(ordered[-(-percent * len(ordered) // 100) - 1] for percent in PERCENTS),
        most=ordered[-1],
        histogram=tuple(sorted(counts.items())) if len(counts) <= histogram_most else (),
    )


def _bucket(problems: Sequence[Problem]) -> BucketShape:
    items = [item for problem in problems for item in problem.rewards]
    rules = [rule for item in items for rule in item.price]
    skus = [len(sku_pairs_of(item)) for item in items]

    def share_e4(asks: Callable[[RewardItem], object]) -> int:
        return 10_000 * sum(bool(asks(item)) for item in items) // len(items)

    return BucketShape(
        problems=len(problems),
        items=spread(len(problem.rewards) for problem in problems),
        constraints=spread(map(count_constraints, items)),
        sku_pairs=spread(count for count in skus if count),
        attributes=spread(len(attribute_pairs_of(item)) for item in items),
        with_sku_e4=share_e4(lambda item: item.sku_options),
        with_attributes_e4=share_e4(lambda item: item.attributes),
        with_service_e4=share_e4(lambda item: item.service),
        with_price_e4=share_e4(lambda item: item.price),
        title_only_e4=share_e4(lambda item: count_constraints(item) == 0),
        price_modes=dict(sorted(Counter(rule.mode for rule in rules).items())),
        price_low_php=spread(round(rule.low) for rule in rules if rule.low is not None),
        price_high_php=spread(round(rule.high) for rule in rules if rule.high is not None),
        query_chars=spread(len(problem.query) for problem in problems),
    )
