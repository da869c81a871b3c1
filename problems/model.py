"""Problems, products and outcomes: what is asked, what is sold, and what became of an answer.

A problem that `check_problem` lets pass never makes the scorer fail for a reason of its own. Where the reference raises
an exception in the middle of scoring, or quietly counts a miss, we refuse at load (README, D17 to D23 and D39).
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Iterator, Mapping
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


_NEEDED = {"greater than": ("low",), "less than": ("high",), "between": ("low", "high")}  # bounds that a mode looks at


def check_problem(problem: Problem) -> None:
    """Raise ArenaError P4003 or P4009 naming the first field that makes the problem unscorable.

    Field types are checked too, since a struct built in code carries whatever it was given.
    """
    try:
        typed = msgspec.convert(msgspec.to_builtins(problem), Problem)
    except (TypeError, msgspec.ValidationError) as error:
        raise ArenaError(code_of_field(str(error)), str(error)) from error
    if not typed.problem_id:
        raise ArenaError("P4009", "problem_id is empty")
    if (flaw := next(_flaws(typed), None)) is not None:
        raise ArenaError("P4003", flaw)


def code_of_field(message: str) -> str:
    """The code for a type error, by the field its message names."""
    return "P4003" if any(f"`$.{field}" in message for field in ("bucket", "voucher", "reward")) else "P4009"


def _flaws(problem: Problem) -> Iterator[str]:
    if not problem.rewards:
        yield "reward is empty"
    if problem.bucket == "product" and len(problem.rewards) != 1:
        yield f"a product problem has one reward, not {len(problem.rewards)}"
    for index, item in enumerate(problem.rewards):
        field = f"reward[{index}]"
        if not item.product_id:
            yield f"{field}.product_id is empty"
        pairs = [values for rule in item.attributes for values in rule.values()]
        if not any((item.title, item.price, item.service, *item.sku_options, *pairs)):
            yield f"{field} asks nothing"
        for place, rule in enumerate(item.price):
            yield from _amounts(f"{field}.price[{place}]", {"low": rule.low, "high": rule.high}, _NEEDED[rule.mode])
    voucher = problem.voucher
    if (problem.bucket == "voucher") != (voucher is not None):
        yield "voucher is missing" if voucher is None else "only a voucher problem has one"
    if voucher is not None:
        amounts = {name: getattr(voucher, name) for name in ("threshold", "budget", "face_value", "discount", "cap")}
        needed = ("face_value",) if voucher.discount_type == "fixed" else ("discount", "cap")
        yield from _amounts("voucher", amounts, needed)


def _amounts(field: str, amounts: Mapping[str, float | None], needed: Iterable[str]) -> Iterator[str]:
    for name, amount in amounts.items():
        if amount is not None and not math.isfinite(amount):
            yield f"{field}.{name} is not finite"
    for name in needed:
        if amounts[name] is None:
            yield f"{field}.{name} is missing"


SCORING_PIPELINE = "scoring/1"


class Axis(msgspec.Struct, frozen=True):
    """Rules met and rules asked on one axis of one slot."""

    hits: int = 0
    total: int = 0


AXES = ("title", "price", "service", "sku", "attribute")  # of a slot, in the order they are shown


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
