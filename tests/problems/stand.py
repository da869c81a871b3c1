"""A small made-up catalogue and problems to build tests on."""

from __future__ import annotations

import functools
import random
from collections.abc import Iterable, Sequence
from pathlib import Path

from harness.catalogue.synthetic import generate
from problems.model import PriceRule, Problem, Product, RewardItem, Voucher
from problems.score import ProductOf
from problems.self_check import RANDOM_DRAWS, SelfCheck, check_chance, check_solvable
from problems.title_index import TitleIndex
from problems.titles import TitleMatcher

DATA = Path(__file__).parents[2].parent / "shared" / "data"

_NOUNS = ("shirt", "lamp", "bottle", "kettle", "curtain", "backpack", "wallet", "helmet", "drill", "notebook", "fan")
_WORDS = [f"{a}{b}{c}" for a in ("ka", "lo", "mi", "ver", "zu") for b in ("ten", "ra", "qui", "no") for c in "xylnt"]
_COLORS = ("red", "blue", "forest green", "black")
_MATERIALS = ("cotton", "steel", "bamboo")
_SERVICES = ("official", "freeShipping", "COD", "flashsale")


def make_catalogue(count: int = 400, seed: int = 5) -> tuple[Product, ...]:
    """Distinct products in shops of about six, every kind of field filled."""
    rng = random.Random(seed)
    products = []
    for number in range(count):
        noun = rng.choice(_NOUNS)
        title = " ".join([noun.title(), *rng.sample(_WORDS, 4), f"mk{number}"])
        products.append(
            Product(
                product_id=str(700_000_000 + number * 7),
                shop_id=str(9_000 + number // 6),
                title=title,
                price=round(rng.lognormvariate(5.4, 1.2) + 5, 2),
                service=tuple(name for name in _SERVICES if rng.random() < 0.3),
                sku_options={
                    str(option + 1): {"color_family": rng.choice(_COLORS), "size": f"int:{rng.choice('sml')}"}
                    for option in range(rng.randrange(4))
                },
                attributes={"material": (rng.choice(_MATERIALS),), "brand": (rng.choice(_WORDS),)},
            )
        )
    return tuple(products)


@functools.cache
def synthetic_shelf(count: int, seed: int) -> TitleIndex:
    """The synthetic catalogue's products: made once in a process, by the first test that asks for them."""
    return TitleIndex(tuple(generate(count, seed)))


LAMP = Product(
    product_id="101",
    shop_id="s1",
    title="Brass Desk Lamp with Dimmer",
    price=250.0,
    service=("official", "COD"),
    sku_options={"1": {"color": "red", "size": "xl"}, "2": {"color": "blue", "size": "m"}},
    attributes={"material": ("brass",), "style": ("retro", "plain")},
)
TWIN = Product(
    product_id="102",
    shop_id="s1",
    title="Brass Desk Lamp with Dimmer",
    price=260.0,
    service=("official", "COD"),
    sku_options={"7": {"color": "red", "size": "xl"}},
    attributes={"material": ("brass",), "style": ("plain", "retro")},
)
KETTLE = Product(product_id="103", shop_id="s1", title="Steel Kettle Two Litres", price=400.0, service=())
FAR_KETTLE = Product(product_id="104", shop_id="s2", title="Steel Kettle Two Litres", price=390.0, service=())
PRODUCTS = {product.product_id: product for product in (LAMP, TWIN, KETTLE, FAR_KETTLE)}

LAMP_ITEM = RewardItem(
    product_id="101",
    title=("Brass Desk Lamp with Dimmer",),
    sku_options=({"color": "red", "size": "xl"},),
    attributes=({"material": ("brass",)},),
    service=("official",),
    price=(PriceRule(mode="between", low=200, high=300),),
)
KETTLE_ITEM = RewardItem(product_id="103", title=("Steel Kettle Two Litres",))
VOUCHER = Voucher(voucher_type="shop", discount_type="fixed", threshold=500, budget=600, face_value=100)

PRODUCT_PROBLEM = Problem(problem_id="p1", bucket="product", query="a lamp", rewards=(LAMP_ITEM,))
SHOP_PROBLEM = Problem(problem_id="p2", bucket="shop", query="a lamp, a kettle", rewards=(LAMP_ITEM, KETTLE_ITEM))
VOUCHER_PROBLEM = Problem(
    problem_id="p3", bucket="voucher", query="both, cheap", rewards=(LAMP_ITEM, KETTLE_ITEM), voucher=VOUCHER
)
PROBLEMS = (PRODUCT_PROBLEM, SHOP_PROBLEM, VOUCHER_PROBLEM)


def check_problem_set(
    problems: Iterable[Problem],
    crowd: Sequence[Product],
    product_of: ProductOf,
    titles: TitleMatcher,
    seed: int,
    draws: int = RANDOM_DRAWS,
) -> tuple[SelfCheck, ...]:
    """`check_solvable` and `check_chance` of each problem, in order."""
    checks = []
    for problem in problems:
        check = check_solvable(problem, product_of, titles)
        checks.append(check_chance(check, problem, crowd, titles, seed, draws) if check.is_usable else check)
    return tuple(checks)
