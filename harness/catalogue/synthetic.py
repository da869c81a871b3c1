"""A synthetic catalogue of any size: `generate(count, seed)` gives the same products on every machine.

It follows the measured statistics of real documents, dirt included (docs/benchmark.md#statistics), with words of our
own. Shops of several products exist, so shop problems can be made; about one product in eight is a near copy of another
(other shop, price, option or word), so a search finds the product among rivals. Memory does not grow with size.
"""

from __future__ import annotations

import functools
import itertools
import math
import random
from collections.abc import Iterator, Sequence
from importlib import resources
from statistics import NormalDist
from typing import TypeVar

import msgspec

from problems.model import SERVICES, Product

T = TypeVar("T")
Quantiles = tuple[tuple[float, float], ...]  # (share, value), ascending in both

_NORMAL = NormalDist()


class Department(msgspec.Struct, frozen=True):
    """One kind of shop floor: category path, nouns, title words, and the attributes and options its products have."""

    path: tuple[str, ...]
    price_php: float  # median
    nouns: tuple[str, ...]
    words: tuple[str, ...]
    attributes: dict[str, tuple[str, ...]]
    options: dict[str, tuple[str, ...]]


class DirtWords(msgspec.Struct, frozen=True):
    """What sloppy sellers and broken converters leave behind."""

    mojibake: tuple[str, ...]
    escapes: tuple[str, ...]
    values: tuple[str, ...]
    logistics: dict[str, tuple[str, ...]]
    wrong: dict[str, tuple[str, ...]]
    near_keys: dict[str, str]


class MarketVocabulary(msgspec.Struct, frozen=True):
    """Every word the generator knows."""

    departments: tuple[Department, ...]
    syllables: tuple[str, ...]
    generic_words: tuple[str, ...]
    purposes: tuple[str, ...]
    tagalog: tuple[str, ...]
    cjk: tuple[str, ...]
    emoji: tuple[str, ...]
    brackets: tuple[str, ...]
    sentences: tuple[str, ...]
    bullets: tuple[str, ...]
    makers: tuple[str, ...]
    attribute_keys_anywhere: dict[str, tuple[str, ...]]
    dirt: DirtWords


@functools.cache
def load_vocabulary() -> MarketVocabulary:
    """The shipped vocabulary, read on first use."""
    raw = resources.files("harness.catalogue").joinpath("synthetic_vocabulary.json").read_bytes()
    return msgspec.json.decode(raw, type=MarketVocabulary)


class Dice:
    """Seeded choices. Two dice of one seed make the same choices on every machine and Python version."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(f"synthetic catalogue {seed}").random

    def chance(self, share: float) -> bool:
        """True in `share` of the throws."""
        return self._random() < share

    def below(self, bound: int) -> int:
        """An integer in 0..bound - 1."""
        return int(self._random() * bound)

    def between(self, low: int, high: int) -> int:
        """An integer in low..high."""
        return low + self.below(high - low + 1)

    def pick(self, items: Sequence[T]) -> T:
        """One item, all equally likely."""
        return items[self.below(len(items))]

    def pick_early(self, items: Sequence[T]) -> T:
        """One item, the early ones far likelier: a long tail."""
        return items[int(self._random() ** 3 * len(items))]

    def some(self, items: Sequence[T], count: int) -> list[T]:
        """`count` different items (all of them when there are fewer), in random order."""
        pool = list(items)
        last = min(count, len(pool))
        for place in range(last):
            other = place + self.below(len(pool) - place)
            pool[place], pool[other] = pool[other], pool[place]
        return pool[:last]

    def weighted(self, table: Sequence[tuple[float, T]]) -> T:
        """The item whose share the throw falls into; shares sum to 1."""
        throw = self._random()
        for share, item in table:
            throw -= share
            if throw < 0:
                return item
        return table[-1][1]

    def quantile(self, table: Quantiles) -> float:
        """A value whose distribution has these quantiles, straight lines between them."""
        throw = self._random()
        for (low_share, low), (high_share, high) in itertools.pairwise(table):
            if throw < high_share:
                return low + (high - low) * (throw - low_share) / (high_share - low_share)
        return table[-1][1]

    def normal(self) -> float:
        """A standard normal value."""
        return _NORMAL.inv_cdf(min(max(self._random(), 1e-12), 1 - 1e-12))

    def invented_word(self, syllables: Sequence[str]) -> str:
        """A word nobody has used before, of two or three syllables."""
        return "".join(self.pick(syllables) for _ in range(self.between(2, 3)))


_SERVICE_SHARES = (0.22, 0.20, 0.27, 0.22)  # of SERVICES, independent of each other
_TITLE_CHARS: Quantiles = ((0, 12), (0.05, 28), (0.5, 84), (0.95, 158), (1, 235))
_TITLE_CHARS_MAX = 255
_SOLD_LOG: Quantiles = ((0, 0.0), (0.32, 1.1), (0.73, 2.25), (0.865, 3.4), (1, 5.6))  # of those sold more than once
_DESCRIPTION_CHARS: Quantiles = ((0, 10), (0.5, 135), (0.9, 1100), (1, 2000))
_TEXT_CHARS_MAX = 2_000
_OPTION_COUNTS = (
    (0.20, 0),
    (0.17, 1),
    (0.11, 2),
    (0.09, 3),
    (0.05, 4),
    (0.04, 5),
    (0.03, 6),
    (0.03, 7),
    (0.02, 8),
    (0.26, 9),
)
_OPTION_KEYS = ((0.70, 1), (0.27, 2), (0.03, 3))
_ATTRIBUTE_COUNTS: Quantiles = ((0, 0.0), (0.09, 1.0), (0.5, 3.0), (0.9, 6.9), (0.99, 10.0), (1, 13.0))
_DEPTHS = ((0.03, 2), (0.43, 3), (0.46, 4), (0.08, 5))
_SHOP_SIZES: tuple[tuple[float, tuple[int, int]], ...] = (
    (0.60, (1, 1)),
    (0.22, (2, 4)),
    (0.16, (5, 40)),
    (0.02, (41, 90)),
)
_RIVAL_SHARE = 0.12  # products that are near copies
_REMEMBERED = 2_048  # products that may still be copied
_BRANDS = 2_500

_Attributes = dict[str, tuple[str, ...]]
_Options = dict[str, dict[str, str]]

# Multipliers modulo a prime visit every residue once, so ids never repeat and look unordered.
_ID_LOW, _ID_PRIME, _ID_STEP = 300_000_000, 4_999_999_937, 2_654_435_761
_SHOP_LOW, _SHOP_PRIME, _SHOP_STEP = 10_000, 5_999_993, 2_246_822


def generate(count: int, seed: int) -> Iterator[Product]:
    """`count` products of the catalogue named by `seed`, unique ids of 9 or 10 digits.

    Raises ValueError for a negative count or one beyond the ids there are (about five thousand million).
    """
    if not 0 <= count < _ID_PRIME:
        raise ValueError(f"count must be in 0..{_ID_PRIME - 1}, not {count}")
    maker = _Maker(seed)
    made = 0
    while made < count:
        for product in maker.stock_shop(count - made):
            yield product
            made += 1


class _Maker:
    """The state of one catalogue in the making."""

    def __init__(self, seed: int) -> None:
        self._dice, self._words = Dice(seed), load_vocabulary()
        self._id_start, self._shop_start = self._dice.below(_ID_PRIME), self._dice.below(_SHOP_PRIME)
        self._products = self._shops = 0
        self._remembered: list[tuple[Product, Department]] = []
        syllables = self._words.syllables
        self._brands = [self._dice.invented_word(syllables).capitalize() for _ in range(_BRANDS)]

    def stock_shop(self, room: int) -> Iterator[Product]:
        """The products of the next shop, at most `room`. A shop keeps to one to three departments and a few brands."""
        dice = self._dice
        low, high = dice.weighted(_SHOP_SIZES)
        size = min(room, dice.between(low, high))
        departments = dice.some(self._words.departments, dice.between(1, 3))
        shop_id = str(_SHOP_LOW + (self._shop_start + self._shops * _SHOP_STEP) % _SHOP_PRIME)
        brands = [dice.pick_early(self._brands) for _ in range(dice.between(1, 4))]
        self._shops += 1
        for _ in range(size):
            product_id = str(_ID_LOW + (self._id_start + self._products * _ID_STEP) % _ID_PRIME)
            self._products += 1
            department = dice.pick(departments)
            if self._remembered and dice.chance(_RIVAL_SHARE):
                original, department = dice.pick(self._remembered)
                product = _rival(original, department, dice, self._words)
            else:
                product = _original(department, dice.pick(brands), dice, self._words)
            product = msgspec.structs.replace(product, product_id=product_id, shop_id=shop_id)
            if len(self._remembered) < _REMEMBERED:
                self._remembered.append((product, department))
            else:
                self._remembered[dice.below(_REMEMBERED)] = (product, department)
            yield product


def _original(department: Department, brand: str, dice: Dice, words: MarketVocabulary) -> Product:
    """A product of its own, without its ids. The order of the throws fixes the catalogue."""
    noun = dice.pick(department.nouns)
    attributes = soil_attributes(_attributes(department, brand, dice, words), dice, words)
    title = soil_title(_title(department, noun, brand, dice, words), dice, words)[:_TITLE_CHARS_MAX].strip()
    php = min(37_990.0, max(5.0, department.price_php * 0.74 * math.exp(1.12 * dice.normal())))
    price = float(round(php)) if dice.chance(0.74) else round(php, 2)
    service, sold_count = _service(dice), _sold_count(dice)
    options = soil_options(_options(department, dice), dice, words)
    shown_brand = brand if dice.chance(0.38) else ""
    path = (*department.path, _capital(noun), _capital(dice.pick(department.words)))
    category = " > ".join(path[: dice.weighted(_DEPTHS)])
    short_description = description = specification = ""
    if not dice.chance(0.63):
        bullets = [_fill(line, department, noun, dice, words) for line in dice.some(words.bullets, dice.between(2, 6))]
        short_description = soil_text(";".join(bullets) + ";", dice, words)
    if not dice.chance(0.41):
        length = int(dice.quantile(_DESCRIPTION_CHARS))
        sentences: list[str] = []
        while sum(map(len, sentences)) < length:
            sentences.append(_fill(dice.pick(words.sentences), department, noun, dice, words))
        text = ("\n" if dice.chance(0.4) else " ").join(sentences)
        description = soil_text(text, dice, words)[:_TEXT_CHARS_MAX]
    if not dice.chance(0.08):
        pairs = [f"{key.replace('_', ' ')}:{', '.join(values)}" for key, values in attributes.items()]
        specification = ";".join([*pairs, "warranty type:no warranty"])
    return Product(
        product_id="",
        shop_id="",
        title=title,
        price=price,
        service=service,
        sold_count=sold_count,
        sku_options=options,
        attributes=attributes,
        brand=shown_brand,
        category=category,
        short_description=short_description,
        description=description,
        specification=specification,
    )


def _rival(original: Product, department: Department, dice: Dice, words: MarketVocabulary) -> Product:
    """A near copy: the same thing from another shop, or the same thing but for a word, an option or an attribute."""
    php = max(5.0, original.price * (0.85 + 0.3 * dice.below(1_000) / 1_000))
    price = float(round(php)) if original.price.is_integer() else round(php, 2)
    changed = msgspec.structs.replace(original, price=price, service=_service(dice), sold_count=_sold_count(dice))
    kind = dice.below(4)
    if kind == 0:
        return changed
    if kind == 1:
        tokens = original.title.split(" ")
        tokens[dice.below(len(tokens))] = dice.pick(department.words)
        return msgspec.structs.replace(changed, title=" ".join(tokens)[:_TITLE_CHARS_MAX])
    if kind == 2:
        return msgspec.structs.replace(changed, sku_options=_options(department, dice))
    own = {key: values for key, values in original.attributes.items() if key in department.attributes}
    attributes = dict(original.attributes)
    for key in dice.some(list(own), 1):
        attributes[key] = (dice.pick(department.attributes[key]),)
    title = f"{original.title} {dice.pick(words.generic_words)}"[:_TITLE_CHARS_MAX]
    return msgspec.structs.replace(changed, title=title.strip(), attributes=attributes)


def _title(department: Department, noun: str, brand: str, dice: Dice, words: MarketVocabulary) -> str:
    """Brand, describing words, noun, then whatever sellers add until the length is reached."""
    parts = [brand] if dice.chance(0.55) else []
    if dice.chance(0.5):
        parts.append(dice.invented_word(words.syllables).capitalize())
    describing = dice.some(department.words, 8)
    parts += [_capital(word) for word in describing[: dice.between(1, 3)]]
    parts.append(_capital(noun) if dice.chance(0.8) else noun)
    if dice.chance(0.35):
        parts.append(_model_code(dice))
    length = int(dice.quantile(_TITLE_CHARS))
    tails = [*describing[3:], dice.pick(words.purposes)]
    number = dice.between(1, 100)
    sizes = (f"{number}pcs", f"{number}cm", f"{number}ml", f"{number}x{dice.between(1, 100)}cm", f"set of {number}")
    tails += [dice.pick(sizes), _capital(dice.pick(department.nouns))]
    tails += dice.some(words.generic_words, 4)
    tails += [
        value for key in dice.some(list(department.options), 2) for value in dice.some(department.options[key], 2)
    ]
    tails += [
        value for key in dice.some(list(department.attributes), 2) for value in dice.some(department.attributes[key], 1)
    ]
    for tail in dice.some([tail for tail in tails if tail not in ("yes", "no")], len(tails)):
        if sum(map(len, parts)) + len(parts) >= length:
            break
        parts.append(tail)
    return " ".join(parts)


def _capital(phrase: str) -> str:
    return " ".join(word[:1].upper() + word[1:] for word in phrase.split(" "))


def _model_code(dice: Dice) -> str:
    letters = "".join(dice.pick("ABCDEFGHKLMNPRSTVWXZ") for _ in range(dice.between(1, 3)))
    dash = "-" if dice.chance(0.5) else ""
    return f"{letters}{dash}{dice.between(1, 9999)}"


def _service(dice: Dice) -> tuple[str, ...]:
    """Independent services in their fixed order; all four at once never occur."""
    while True:
        chosen = tuple(name for name, share in zip(SERVICES, _SERVICE_SHARES, strict=True) if dice.chance(share))
        if len(chosen) < len(SERVICES):
            return chosen


def _sold_count(dice: Dice) -> int:
    return 1 if dice.chance(0.63) else 1 + round(math.exp(dice.quantile(_SOLD_LOG)))


def _options(department: Department, dice: Dice) -> _Options:
    """Up to nine different options under one set of keys, whose order varies."""
    count = dice.weighted(_OPTION_COUNTS)
    keys = list(department.options)
    chosen = keys[:1] if dice.chance(0.5) else dice.some(keys, 1)
    chosen += dice.some([key for key in keys if key not in chosen], dice.weighted(_OPTION_KEYS) - 1)
    options: _Options = {}
    for number in range(1, count + 1):
        order = dice.some(chosen, len(chosen)) if dice.chance(0.1) else chosen
        option = {key: dice.pick(department.options[key]) for key in order}
        if option in options.values():
            option[chosen[0]] = f"{option[chosen[0]]} {number}"
        options[str(number)] = option
    return options


def _attributes(department: Department, brand: str, dice: Dice, words: MarketVocabulary) -> _Attributes:
    count = int(dice.quantile(_ATTRIBUTE_COUNTS))
    if count == 0:
        return {}
    attributes: _Attributes = {}
    if dice.chance(0.44):
        attributes["brand"] = (brand.lower() if dice.chance(0.7) else dice.pick(words.makers),)
    if dice.chance(0.2):
        attributes["model"] = (_model_code(dice).lower(),)
    keys = dice.some(list(department.attributes), count)
    keys += dice.some(list(words.attribute_keys_anywhere), max(0, count - len(keys)))
    for key in keys:
        if len(attributes) >= count:
            break
        values = department.attributes.get(key) or words.attribute_keys_anywhere[key]
        attributes.setdefault(key, tuple(dice.some(values, 1 if dice.chance(0.91) else dice.between(2, 4))))
    return attributes


def _fill(template: str, department: Department, noun: str, dice: Dice, words: MarketVocabulary) -> str:
    material = dice.pick(department.attributes.get("material", ("good material",)))
    return template.format(
        noun=noun, word=dice.pick(department.words), material=material, purpose=dice.pick(words.purposes)
    )


# -- dirt: the faults real documents have, in about the shares they have them (docs/benchmark.md#statistics). It never
# makes a document malformed: strings stay strings and lists stay lists, so all can be indexed, viewed and scored.


def soil_title(title: str, dice: Dice, words: MarketVocabulary) -> str:
    """Foreign words, emoji, brackets, capitals, double spaces and broken encodings, each in a few percent."""
    if dice.chance(0.045):
        title = f"{title} {dice.pick(words.tagalog)}"
    if dice.chance(0.01):
        title = f"{dice.pick(words.cjk)} {title}"
    if dice.chance(0.02):
        title = f"{dice.pick(words.emoji)}{title}"
    if dice.chance(0.02):
        title = f"{dice.pick(words.brackets)} {title}"
    if dice.chance(0.03):
        title = title.upper()
    if dice.chance(0.05):
        title = title.replace(" ", "  ", 1)
    if dice.chance(0.015):
        title = title.replace(" ", f" {dice.pick(words.dirt.mojibake)}", 1)
    return title


def soil_text(text: str, dice: Dice, words: MarketVocabulary) -> str:
    """A broken character or a literal escape somewhere in a longer text."""
    if text and dice.chance(0.12):
        place = dice.below(len(text))
        mark = dice.pick(words.dirt.mojibake) if dice.chance(0.7) else dice.pick(words.dirt.escapes)
        return text[:place] + mark + text[place:]
    return text


def soil_attributes(attributes: _Attributes, dice: Dice, words: MarketVocabulary) -> _Attributes:
    """Placeholders, logistics, wrong keys, empty lists, near-duplicate keys and literal escapes."""
    soiled, dirt = dict(attributes), words.dirt
    if soiled and dice.chance(0.05):
        soiled[dice.pick(list(soiled))] = (dice.pick(dirt.values),)
    if dice.chance(0.03):
        key = dice.pick(list(dirt.logistics))
        soiled[key] = (dice.pick(dirt.logistics[key]),)
    if dice.chance(0.04):
        key = dice.pick(list(dirt.wrong))
        soiled.setdefault(key, (dice.pick(dirt.wrong[key]),))
    if soiled and dice.chance(0.01):
        soiled[dice.pick(list(soiled))] = ()
    twins = [key for key in soiled if key in dirt.near_keys]
    if twins and dice.chance(0.04):
        key = dice.pick(twins)
        soiled[dirt.near_keys[key]] = soiled[key]
    if soiled and dice.chance(0.015):
        key = dice.pick(list(soiled))
        soiled[key] = tuple(f"{value}{dice.pick(dirt.escapes)}" for value in soiled[key])
    if soiled and dice.chance(0.004):
        soiled["compatible_models"] = tuple(f"model {number}" for number in range(1, dice.between(8, 29)))
    return soiled


def soil_options(options: _Options, dice: Dice, words: MarketVocabulary) -> _Options:
    """Now and then a literal escape in one option, or a key written with a blank for its underscore."""
    if not options or not dice.chance(0.04):
        return options
    number = dice.pick(list(options))
    key = dice.pick(list(options[number]))
    soiled = {name: dict(option) for name, option in options.items()}
    value = soiled[number].pop(key)
    if dice.chance(0.5):
        soiled[number][words.dirt.near_keys.get(key, key)] = value
    else:
        soiled[number][key] = f"{value} {dice.pick(words.dirt.escapes)}"
    return soiled
