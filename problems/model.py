"""Problems: what is asked, and the reward that decides whether an answer satisfies it.

A `Problem` that exists is well formed (readers in `problems.formats` raise P4xxx otherwise), and
`view()` is the only part an agent ever sees. Schemas: docs/benchmark.md#problems.
"""

from __future__ import annotations

import hashlib
from typing import Literal

import msgspec

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
