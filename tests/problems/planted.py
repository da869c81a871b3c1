"""Planted products: a catalogue with near-identical listings and near misses of which the truth is known.

Each family is one product of the catalogue, completed so that it has a brand, a model, a measure and a colour;
its twins are the same product as other shops list it, its misses differ in one thing that identifies a variant. What is
a twin and what a miss is decided here by how it was made, not by the rules under test, and is never read off a title.
Deterministic in (products, seed), whatever order the products come in. `measure_classes` counts how often the classes
say the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from random import Random
from typing import Literal

import msgspec

from problems.clusters import ProductClasses, find_classes, title_key
from problems.product import Product
from problems.titles import title_words
from tests.problems.disguises import relisted, respelled

TwinKind = Literal["order", "retailer", "unit", "plain words", "unheard word"]
MissKind = Literal["measure", "model", "colour", "count", "brand", "grade"]
_UNHEARD: TwinKind = "unheard word"
_GRADES = ("Pro", "Mini", "Kids", "Plus", "Ultra")
_COLOURS = ("red", "black", "white", "green", "pink", "khaki")
# Words of no meaning that a seller may add or leave out. The rules under test list none of them: they have to find the
# first by their use in the catalogue, and nothing there tells the second from a brand.
_PLAIN_WORDS = (
    "durable",
    "trendy",
    "cute",
    "imported",
    "outdoor",
    "home",
    "office",
    "travel",
    "fashion",
    "style",
    "daily",
)
_UNHEARD_WORDS = ("superb", "awesome", "lovely", "handy", "neat")


def class_of(classes: ProductClasses, title: str) -> str:
    """The name of the class that a title belongs to."""
    return classes.class_of_key.get(title_key(title), title_key(title))


class PlantedProduct(msgspec.Struct, frozen=True, kw_only=True):
    """A listing and the truth about it: two listings are one product when family and variant are equal."""

    product: Product
    family: int
    variant: str  # "" for the family's product and its twins, the kind of the miss otherwise
    kind: str


class ClassFigures(msgspec.Struct, frozen=True, kw_only=True):
    """What `measure_classes` found. Shares are ten-thousandths; `*_pairs` are counts of pairs of planted listings."""

    products: int
    planted: int
    right_pairs: int  # joined, and one product
    wrong_pairs: int  # joined, and not one product
    missed_pairs: int  # one product, and not joined
    precision_e4: int
    recall_e4: int
    twin_recall_e4: dict[str, int]  # by how the twin was made: joined with its family's product
    miss_joined_e4: dict[str, int]  # by what the miss differs in: joined all the same


def plant(products: Sequence[Product], families: int, seed: int) -> tuple[PlantedProduct, ...]:
    """Listings to add to the catalogue: per family its product, a twin of each kind, two mixed twins, every miss.

    Families start from products whose titles share less than half of their words, so that no two are the same thing.
    Raises ValueError when the catalogue has too few such products.
    """
    rng = Random(f"planted products {seed}")
    bases = _unlike(sorted(products, key=lambda one: one.product_id), families, rng)
    planted: list[PlantedProduct] = []
    for family, base in enumerate(bases):
        parts = _Parts.of(base, rng)
        listed = [("", "base", parts.title())]
        listed += [("", kind, make(parts.title(), rng)) for kind, make in _TWINS.items()]
        listed += [("", "mixed", relisted(_with_plain_words(parts.title(), rng), rng)) for _ in range(2)]
        listed += [(kind, kind, missed.title()) for kind, missed in parts.misses(rng).items()]
        for variant, kind, title in listed:
            product = msgspec.structs.replace(
                base,
                product_id=str(8_000_000_000 + len(planted)),
                shop_id=str(7_000_000 + len(planted)),
                title=title,
                price=round(base.price * rng.uniform(0.85, 1.15), 2),
            )
            planted.append(PlantedProduct(product=product, family=family, variant=variant, kind=kind))
    return tuple(planted)


def measure_classes(products: Sequence[Product], planted: Sequence[PlantedProduct]) -> ClassFigures:
    """Precision and recall of the product classes, in pairs of planted listings, with those in the catalogue.

    Twins with an unheard word are left out of the pairs and shown by kind: no catalogue tells such a word from a brand.
    """
    classes = find_classes([*products, *(one.product for one in planted)])
    name_of = [class_of(classes, one.product.title) for one in planted]
    counted = [
        (one.family, one.variant, name) for one, name in zip(planted, name_of, strict=True) if one.kind != _UNHEARD
    ]
    truth = Counter((family, variant) for family, variant, _ in counted)
    said = Counter(name for _, _, name in counted)
    both = Counter(counted)
    right, joined, same = _pairs(both.values()), _pairs(said.values()), _pairs(truth.values())
    base_of = {one.family: name for one, name in zip(planted, name_of, strict=True) if one.kind == "base"}
    at_base: dict[str, list[bool]] = {}
    for one, name in zip(planted, name_of, strict=True):
        at_base.setdefault(one.kind, []).append(name == base_of[one.family])
    share_e4 = {kind: 10_000 * sum(hits) // len(hits) for kind, hits in at_base.items()}
    misses = {one.kind for one in planted if one.variant}
    return ClassFigures(
        products=len(products) + len(planted),
        planted=len(planted),
        right_pairs=right,
        wrong_pairs=joined - right,
        missed_pairs=same - right,
        precision_e4=10_000 * right // max(1, joined),
        recall_e4=10_000 * right // max(1, same),
        twin_recall_e4={kind: share for kind, share in share_e4.items() if kind not in misses | {"base"}},
        miss_joined_e4={kind: share for kind, share in share_e4.items() if kind in misses},
    )


class _Parts(msgspec.Struct, frozen=True, kw_only=True):
    """A title taken apart into what identifies the product and the rest."""

    brand: str
    model: str
    words: str
    colour: str
    litres_e3: int
    count: int
    grade: str = ""

    @classmethod
    def of(cls, base: Product, rng: Random) -> _Parts:
        letters = "".join(rng.choice("ABCDEFGHKLMNPRSTVWXZ") for _ in range(2))
        return cls(
            brand=f"{rng.choice('BDFGKLMNPRSTVZ')}{rng.choice('aeiou')}{letters.lower()}{rng.choice('aeiou')}x",
            model=f"{letters}-{rng.randrange(100, 9_999)}",
            words=base.title,
            colour=rng.choice(_COLOURS),
            litres_e3=rng.randrange(1, 40) * 125,
            count=rng.randrange(2, 30),
        )

    def title(self) -> str:
        parts = (self.brand, self.model, self.grade, self.words, self.colour, f"{self.litres_e3}ml", f"{self.count}pcs")
        return " ".join(part for part in parts if part)

    def misses(self, rng: Random) -> dict[MissKind, _Parts]:
        replace = msgspec.structs.replace
        letters, number = self.model.split("-")
        said = self.words.lower().split()
        return {
            "measure": replace(self, litres_e3=self.litres_e3 * 2),
            "model": replace(self, model=f"{letters}-{int(number) + rng.randrange(1, 9)}"),
            "colour": replace(self, colour=rng.choice([one for one in _COLOURS if one != self.colour])),
            "count": replace(self, count=self.count + rng.randrange(1, 9)),
            "brand": replace(self, brand=f"{self.brand[:-1]}nt"),
            "grade": replace(self, grade=rng.choice([one for one in _GRADES if one.lower() not in said])),
        }


def _with_plain_words(title: str, rng: Random) -> str:
    words = title.split(" ")
    for extra in rng.sample(_PLAIN_WORDS, rng.randint(1, 2)):
        if extra in title.lower().split():
            words = [word for word in words if word.lower() != extra]
        else:
            words.insert(rng.randrange(2, len(words) - 1), extra)
    return " ".join(words)


def _with_unheard_word(title: str, rng: Random) -> str:
    return f"{rng.choice(_UNHEARD_WORDS)} {title}"


def _in_other_order(title: str, rng: Random) -> str:
    brand, model, *rest = title.split(" ")
    cut = rng.randrange(len(rest) // 2)
    return rng.choice((", ", " | ")).join((" ".join(rest[cut:]).upper(), model, f"({brand})", " ".join(rest[:cut])))


_TWINS: dict[TwinKind, Callable[[str, Random], str]] = {
    "order": _in_other_order,
    "retailer": relisted,
    "unit": respelled,
    "plain words": _with_plain_words,
    "unheard word": _with_unheard_word,
}


def _unlike(products: Sequence[Product], count: int, rng: Random) -> list[Product]:
    chosen: list[Product] = []
    seen: list[frozenset[str]] = []
    for product in rng.sample(products, len(products)):
        words = title_words(product.title)
        if len(words) >= 4 and all(2 * len(words & other) < len(words | other) for other in seen):
            chosen.append(product)
            seen.append(words)
        if len(chosen) == count:
            return chosen
    raise ValueError(f"{len(chosen)} products are unlike each other, {count} families were asked for")


def _pairs(sizes: Iterable[int]) -> int:
    return sum(size * (size - 1) // 2 for size in sizes)
