"""Problems, products and outcomes: what is asked, what is sold, and what became of an answer."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from typing import Literal

import msgspec

from foundation.errors import ArenaError, Failure

Bucket = Literal["product", "shop", "voucher"]
BUCKETS: tuple[Bucket, ...] = ("product", "shop", "voucher")
Pool = Literal["never_touch", "eval", "dev", "train"]  # docs/architecture.md#problems-and-pools
POOLS: tuple[Pool, ...] = ("never_touch", "eval", "dev", "train")
_VARIANT_DOMAIN = "agent-arena/variant/1"


class PriceRule(msgspec.Struct, frozen=True, kw_only=True):
    """Inclusive price bound in PHP. `less than` looks at `high` only, `greater than` at `low` only."""

    mode: Literal["less than", "greater than", "between"]
    low: float | None = None
    high: float | None = None


class RewardItem(msgspec.Struct, frozen=True, kw_only=True):
    """One slot of the answer: the answer's id, and the rules another product must satisfy to count as well."""

    product_id: str
    title: tuple[str, ...]
    sku_options: tuple[dict[str, str], ...] = ()
    attributes: tuple[dict[str, tuple[str, ...]], ...] = ()
    service: tuple[str, ...] = ()
    price: tuple[PriceRule, ...] = ()


class Voucher(msgspec.Struct, frozen=True, kw_only=True):
    """A voucher and a budget, amounts in PHP. Rules: docs/benchmark.md#voucher."""

    voucher_type: Literal["platform", "shop"]
    discount_type: Literal["fixed", "percentage"]
    threshold: float
    budget: float
    face_value: float | None = None
    discount: float | None = None
    cap: float | None = None
    price_after_voucher: float | None = None


class ProblemView(msgspec.Struct, frozen=True, kw_only=True):
    """What the agent is given. Nothing else about a problem enters a jail."""

    problem_id: str
    category: Bucket
    query: str


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """A problem with its answer. `problem_id` is the random public id."""

    problem_id: str
    bucket: Bucket
    query: str
    rewards: tuple[RewardItem, ...]
    voucher: Voucher | None = None

    def view(self) -> ProblemView:
        """The part an agent may see."""
        return ProblemView(problem_id=self.problem_id, category=self.bucket, query=self.query)


def variant_id(problem_id: str, seed: str) -> str:
    """The public id of a problem's variant (`problems.suites`): it tells neither which problem it stands for
    nor that it is a variant."""
    return f"p_{variant_digest('id', problem_id, seed)[:16]}"


def variant_digest(purpose: str, problem_id: str, seed: str) -> str:
    """sha256 hex over what one variant follows from, for one purpose."""
    parts = (_VARIANT_DOMAIN, purpose, seed, problem_id)
    return hashlib.sha256("\n".join(parts).encode(errors="surrogatepass")).hexdigest()


SERVICES = ("official", "freeShipping", "COD", "flashsale")


class Product(msgspec.Struct, frozen=True, kw_only=True):
    """One product of the catalogue. `price` is in PHP (a float, as in the public documents)."""

    product_id: str
    shop_id: str
    title: str
    price: float
    service: tuple[str, ...] = ()
    sold_count: int = 1
    sku_options: dict[str, dict[str, str]] = {}
    attributes: dict[str, tuple[str, ...]] = {}
    brand: str = ""
    category: str = ""
    short_description: str = ""
    description: str = ""
    specification: str = ""


def read_product(raw: object) -> Product:
    """A `Product` from a decoded `product` object of the index line format; a `Product` is checked once more.

    Raises ArenaError P4005 naming the field when the document is malformed. `service` must be there, if empty.
    """
    name = raw.get("product_id", "?") if isinstance(raw, Mapping) else getattr(raw, "product_id", "?")
    try:
        document = msgspec.to_builtins(raw) if isinstance(raw, Product) else raw
        if not isinstance(document, Mapping):
            raise ArenaError("P4005", "document is not an object")
        if "service" not in document:
            raise ArenaError("P4005", f"{name}: service is missing")
        product = msgspec.convert(document, Product, strict=True)
    except (TypeError, msgspec.ValidationError) as error:
        raise ArenaError("P4005", f"{name}: {error}") from error
    if not product.product_id:
        raise ArenaError("P4005", "product_id is empty")
    if not math.isfinite(product.price):
        raise ArenaError("P4005", f"{name}: price is not finite")
    return product


SCORING_PIPELINE = "scoring/1"


class Axis(msgspec.Struct, frozen=True):
    """Rules met and rules asked on one axis of one slot."""

    hits: int = 0
    total: int = 0


class SlotScore(msgspec.Struct, frozen=True, kw_only=True):
    """One slot. `is_answer`: the id is the answer's, which satisfies the slot whatever the fields say."""

    recommended_id: str | None
    is_found: bool
    is_answer: bool
    is_unsurfaced: bool = False  # the surfaced rule turned this slot into a missing one
    title: Axis
    price: Axis
    service: Axis
    sku: Axis
    attribute: Axis
    rule_hits: int  # 1 of 1 when is_answer, else the sum over axes
    rule_total: int

    @property
    def is_satisfied(self) -> bool:
        """True when rule is exactly 1 on this slot."""
        return self.is_found and self.rule_total > 0 and self.rule_hits == self.rule_total


class OutcomeScore(msgspec.Struct, frozen=True, kw_only=True, tag="outcome"):
    """The outcome of one recommendation. `rule_e4` and `reward_e4` are rounded down ten-thousandths."""

    pipeline: str = SCORING_PIPELINE
    titles: str  # name of the title matcher
    bucket: Bucket
    slots: tuple[SlotScore, ...]
    is_one_shop: bool | None = None  # shop bucket only: every slot has rule > 0 and one shop
    is_within_budget: bool | None = None  # voucher bucket only
    is_success: bool
    is_gt_exact: bool
    rule_e4: int
    reward_e4: int  # bucket-aware reward
    findings: tuple[str, ...] = ()


class UnscoredOutcome(msgspec.Struct, frozen=True, kw_only=True, tag="unscored"):
    """No outcome exists, and why: a problem, upstream or validator failure. Never a zero."""

    failure: Failure
