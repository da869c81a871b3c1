"""Clusters: which problems could give one another's answer away.

Two problems share a leak cluster when an answer of one is of the same product class as an answer of the other,
or when a chain of such problems joins them (paper A.4). Only answers count, so paraphrase, reordering, another retailer
of the same product, a unit spelled otherwise and a new voucher all stay inside. Clusters and their names do not depend
on the order of the problems.

The name of a cluster is the smallest digest among its own answers' title keys. A problem that touches no other never
changes a name; where a new problem joins clusters, the joined one takes the smallest name of all. What must never move
is frozen in a manifest (`problems.partition`), which keeps the names it has given. Names can be guessed from a
public catalogue: outside the validators they travel only as keyed commitments.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from fractions import Fraction
from importlib import resources
from typing import Literal

import msgspec

from foundation.errors import ArenaError
from problems.model import Problem, Product, RewardItem

EXTRA_WORDS_MAX = 2  # words without meaning that two titles of one class may differ by
_TELLING_WORDS_MIN = 3  # below that, too little is left of a title to say that it is the same
_EMPTY_WORDS_MAX = 12  # a title of more is a pile of search words: its shorter forms are not tried
_COMMON_TITLES_MIN = 20
_COMMON_SHARE = 0.002  # of all titles
_DEPARTMENTS_MIN = 4
_DEPARTMENT_SHARE = 0.6  # of the departments, in each of which it stands at least twice

_BRAND_SHARE = 0.05  # of the titles with a word: as often named a brand there, the word is one
_DIGIT = re.compile(r"\d")


class ProductClasses(msgspec.Struct, frozen=True, kw_only=True):
    """The classes of one catalogue. Make it with `find_classes`; `NO_CATALOGUE` knows titles alone.

    A class is named by the smallest title key in it. Keys of classes with one key are not listed.
    """

    key_of_product: dict[str, str] = {}
    class_of_key: dict[str, str] = {}
    keys_of_class: dict[str, tuple[str, ...]] = {}

    def keys_of(self, product_id: str, titles: Iterable[str] = ()) -> frozenset[str]:
        """Every title key that means this product: of its titles, of its listing, and of the classes of both."""
        keys = {title_key(title) for title in titles}
        if product_id in self.key_of_product:
            keys.add(self.key_of_product[product_id])
        names = {self.class_of_key[key] for key in keys if key in self.class_of_key}
        return frozenset(keys.union(*(self.keys_of_class[name] for name in names)))


NO_CATALOGUE = ProductClasses()
Listing = tuple[set[str], set[str]]  # of a title key: departments (first part of a category), words of brands named


def find_classes(products: Iterable[Product]) -> ProductClasses:
    """The classes of a catalogue. The products are read once; titles, departments and brands are kept, nothing else."""
    key_of_product: dict[str, str] = {}
    listings: dict[str, Listing] = defaultdict(lambda: (set(), set()))
    for product in products:
        key = title_key(product.title)
        key_of_product[product.product_id] = key
        departments, brand_words = listings[key]
        departments.add(product.category.partition(" > ")[0])
        brand_words.update(*map(spoken_words, (product.brand, *product.attributes.get("brand", ()))))
    keys_of_class = _joined(listings, words_without_meaning(listings)).joined()
    return ProductClasses(
        key_of_product=key_of_product,
        class_of_key={key: name for name, keys in keys_of_class.items() for key in keys},
        keys_of_class=keys_of_class,
    )


def words_without_meaning(listings: Mapping[str, Listing]) -> frozenset[str]:
    """The words that tell nothing apart here: seen all over the catalogue, without a digit, no brand and no variant.

    Takes what is known of each title key. None are found in a catalogue of fewer than four departments: there, what is
    common may be what the shop is about.
    """
    departments = set().union(*(departments for departments, _ in listings.values())) - {""}
    if len(departments) < _DEPARTMENTS_MIN:
        return frozenset()
    titles_with: Counter[str] = Counter()
    named_brand: Counter[str] = Counter()
    seen_in: dict[str, Counter[str]] = defaultdict(Counter)
    for key, (listed_in, brand_words) in listings.items():
        for word in key.split(" "):
            titles_with[word] += 1
            named_brand[word] += word in brand_words
            seen_in[word].update(listed_in - {""})
    titles_min = max(_COMMON_TITLES_MIN, _COMMON_SHARE * len(listings))
    return frozenset(
        word
        for word, titles in titles_with.items()
        if titles >= titles_min
        and named_brand[word] < _BRAND_SHARE * titles
        and word not in word_list("variant")
        and not _DIGIT.search(word)
        and sum(count >= 2 for count in seen_in[word].values()) >= _DEPARTMENT_SHARE * len(departments)
    )


def _joined(keys: Iterable[str], empty_words: frozenset[str]) -> DisjointSets:
    """Joins the keys that differ by at most two empty words.

    Two such keys either lose one word each and meet, or one of them loses one or two and becomes the other.
    """
    known = set(keys)
    meeting: dict[str, list[str]] = defaultdict(list)
    sets = DisjointSets()
    for key in sorted(known):
        words = key.split(" ")
        empty = [word for word in words if word in empty_words]
        if not 1 <= len(empty) <= _EMPTY_WORDS_MAX or len(words) - len(empty) < _TELLING_WORDS_MIN:
            continue
        for lost in range(1, EXTRA_WORDS_MAX + 1):
            for gone in itertools.combinations(empty, lost):
                shorter = " ".join(word for word in words if word not in gone)
                if lost == 1:
                    meeting[shorter].append(key)
                if shorter in known:
                    sets.join((key, shorter))
    for group in meeting.values():
        if len(group) > 1:
            sets.join(group)
    return sets


def cluster_id(problem: Problem) -> str:
    """The name (sha256 hex) of the cluster a problem makes on its own; a larger cluster has its members' smallest."""
    marks = (mark for item in problem.rewards for mark in _own_marks(item, NO_CATALOGUE))
    return min(hashlib.sha256(f"leak cluster\n{mark}".encode(errors="surrogatepass")).hexdigest() for mark in marks)


def answer_marks(problem: Problem, classes: ProductClasses = NO_CATALOGUE) -> frozenset[str]:
    """Everything that names one of the problem's answers: `id ...` of each product, `title ...` per title key of its
    class. Two problems with a mark in common share an answer's class; an empty title marks nothing.
    """
    ids = {f"id {item.product_id}" for item in problem.rewards}
    return frozenset(ids.union(*(_own_marks(item, classes) for item in problem.rewards)))


def _own_marks(item: RewardItem, classes: ProductClasses) -> frozenset[str]:
    keys = classes.keys_of(item.product_id, item.title) - {title_key("")}
    return frozenset(f"title {key}" for key in keys) or frozenset({f"id {item.product_id}"})


def find_clusters(problems: Iterable[Problem], classes: ProductClasses = NO_CATALOGUE) -> dict[str, tuple[str, ...]]:
    """The leak clusters of a bank: their problems' ids, sorted, by the cluster's name (sha256 hex). Without `classes`
    only equal title keys and equal product ids join.

    Raises ArenaError P4009 when two problems share an id.
    """
    sets, own_name = DisjointSets(), {}
    for problem in problems:
        if problem.problem_id in own_name:
            raise ArenaError("P4009", problem.problem_id)
        own_name[problem.problem_id] = cluster_id(problem)
        sets.join((f"problem {problem.problem_id}", *answer_marks(problem, classes)))
    members: dict[str, list[str]] = defaultdict(list)
    for problem_id in own_name:
        members[sets.name_of(f"problem {problem_id}")].append(problem_id)
    return {min(own_name[one] for one in ids): tuple(sorted(ids)) for ids in members.values()}


class DisjointSets:
    """Texts in sets that can be joined. A text that was never joined is a set of its own."""

    def __init__(self) -> None:
        self._above: dict[str, str] = {}

    def join(self, members: Iterable[str]) -> None:
        """Make one set of the sets of all `members`."""
        names = sorted({self.name_of(member) for member in members})
        for name in names[1:]:
            self._above[name] = names[0]

    def name_of(self, member: str) -> str:
        """The smallest member of its set."""
        path = []
        while (above := self._above.get(member)) is not None:
            path.append(member)
            member = above
        for passed in path:
            self._above[passed] = member
        return member

    def joined(self) -> dict[str, tuple[str, ...]]:
        """Every set of two members or more, by its name; members sorted."""
        sets: dict[str, list[str]] = {}
        for member in self._above:
            sets.setdefault(self.name_of(member), []).append(member)
        return {name: tuple(sorted([name, *members])) for name, members in sorted(sets.items())}


# unit: (what it counts, how many of it); 1/1 of the first name of a kind is its base
_UNITS: dict[str, tuple[str, Fraction]] = {}
for _base, _size, _names in (
    ("mm", Fraction(1), "mm millimeter millimetre"),
    ("mm", Fraction(10), "cm centimeter centimetre"),
    ("mm", Fraction(1000), "m meter metre mtr"),
    ("mm", Fraction(254, 10), 'inch inche " ”'),
    ("mm", Fraction(3048, 10), "ft feet foot"),
    ("ml", Fraction(1), "ml milliliter millilitre cc"),
    ("ml", Fraction(1000), "l liter litre ltr"),
    ("mg", Fraction(1), "mg milligram"),
    ("mg", Fraction(1000), "g gram gm gr"),
    ("mg", Fraction(1_000_000), "kg kilo kilogram kgs"),
    ("oz", Fraction(1), "oz ounce"),
    ("oz", Fraction(16), "lb pound lbs"),
    ("w", Fraction(1), "w watt"),
    ("w", Fraction(1000), "kw kilowatt"),
    ("v", Fraction(1), "v volt"),
    ("mah", Fraction(1), "mah"),
    ("mah", Fraction(1000), "ah"),
    ("mb", Fraction(1), "mb megabyte"),
    ("mb", Fraction(1024), "gb gigabyte"),
    ("mb", Fraction(1024 * 1024), "tb terabyte"),
    ("pcs", Fraction(1), "pcs pc piece pieces pack count ct"),
    ("month", Fraction(1), "month mo"),
    ("month", Fraction(12), "year yr"),
):
    for _name in _names.split():
        _UNITS[_name] = (_base, _size)
        if len(_name) > 3:
            _UNITS.setdefault(_name + "s", (_base, _size))

_DIGITS = r"\d*(?:\.\d+)?"  # after the first
_NUMBER = rf"\d{_DIGITS}"
_UNIT_NAMES = "|".join(re.escape(name) for name in sorted(_UNITS, key=lambda name: (-len(name), name)))
_UNIT_NAMES += r"|(?<=\d)in(?! ?\d)"  # `12in` is a length, `10 in 1` is none
_UNITS["in"] = _UNITS["inch"]

# `500 ml`, `10 x 20 cm`, `40/60/80cm` and `3-5 kg` (a unit for each number), `1/2 inch` (a fraction), `set of 4`.
# What such a number must not follow stands behind its first digit: digits are quick to look for.
_MEASURE = re.compile(rf"(\d(?<![a-z0-9.]\d){_DIGITS}(?: ?[x*×/-] ?{_NUMBER})*)[ -]?({_UNIT_NAMES})(?![a-z0-9])")
_MEASURE_OR_SET = re.compile(rf"{_MEASURE.pattern}|\b(?:set|pack|box|bundle) of (\d+)\b")
_OF_NUMBER = re.compile(r" of \d")  # in every such set
_TIMES = re.compile(rf"(\d(?<![a-z0-9./-]\d){_DIGITS}(?: ?[x*×] ?{_NUMBER})+)(?![a-z0-9])")
_FRACTION = re.compile(r"([1-9]|1[0-9]) ?/ ?(2|3|4|8|16|32)")
_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")
_DECIMAL_COMMA = re.compile(r"(?<=\d),(?=\d{1,2}(?!\d))")
_LETTERS_BEFORE = "|".join(rf"(?<=(?<![a-z0-9])[a-z]{{{letters}}}-)" for letters in range(1, 5))
_CODE_DASH = re.compile(  # NES-32 and NES32 are one model; `tape-48mm` is none
    rf"-(?=\d)(?:{_LETTERS_BEFORE})(?!{_NUMBER} ?(?:{_UNIT_NAMES})(?![a-z0-9]))"
)
_WORD = re.compile(r"\d+/\d+|\d+\.\d+|[^\W_]+")
_SIGNS = {code: " " for code in range(128) if not chr(code).isalnum()}


def folded(text: str) -> str:
    """The text in one spelling: compatibility forms, lower case, no accents, decimal points, single blanks."""
    plain = text.casefold()
    if not text.isascii():  # in ASCII no letter has an accent or another form
        plain = unicodedata.normalize("NFKD", text).casefold()
        plain = unicodedata.normalize("NFC", "".join(itertools.filterfalse(unicodedata.combining, plain)))
    if "," in plain:
        plain = _DECIMAL_COMMA.sub(".", _THOUSANDS.sub("", plain))
    return " ".join(plain.split())


def spoken_words(text: str) -> list[str]:
    """The text's words in order: measures in base units (`0.5 L` is `500ml`), dashes inside model codes closed,
    plurals without their s."""
    return _words_in(folded(text))


def _words_in(plain: str) -> list[str]:
    """Of folded text with single blanks. To fold it again changes nothing."""
    closed = _CODE_DASH.sub("", plain)
    measures = _MEASURE_OR_SET if _OF_NUMBER.search(closed) else _MEASURE
    measured = _TIMES.sub(_dimensions, measures.sub(lambda found: _in_base_units(*found.groups()), closed))
    is_plain = measured.isascii() and "/" not in measured and "." not in measured
    return [
        word[:-1] if word[-1] == "s" and len(word) > 3 and word[-2] not in "sui" and word.isalpha() else word
        for word in (measured.translate(_SIGNS).split() if is_plain else _WORD.findall(measured))
    ]


@functools.lru_cache(maxsize=65_536)
def title_key(title: str) -> str:
    """The title's telling words, each once, sorted, with a blank between them. Never empty."""
    plain = folded(title)
    words = set(_words_in(" ".join(_seller_phrases().sub(" ", plain).split())))
    telling = words.difference(word_list("stop"), word_list("seller"))
    return " ".join(sorted(telling or set(_words_in(plain)))) or f"={plain or title}"


@functools.cache
def _seller_phrases() -> re.Pattern[str]:
    phrases = (phrase.replace("+", "[ -]?") for phrase in sorted(word_list("seller phrases"), reverse=True))
    by_letter = itertools.groupby(phrases, lambda phrase: phrase[0])  # the fewer to try at a word, the quicker
    spoken = "|".join(f"{letter}(?:{'|'.join(one[1:] for one in some)})" for letter, some in by_letter)
    return re.compile(rf"\b(?:{spoken}|\d+ ?% ?(?:off|less|discount|authentic|original|genuine|legit|new))\b")


@functools.lru_cache(maxsize=1_024)  # few are written again and again
def _in_base_units(said: str | None, unit: str, pieces: str | None = None) -> str:
    if said is None:
        return f" {int(pieces or '')}pcs "
    base, size = _UNITS[unit]
    if fraction := _FRACTION.fullmatch(said):
        return f" {_exact(Fraction(int(fraction[1]), int(fraction[2])) * size)}{base} "
    parts = re.split(r"[/-]", said)
    return (
        " " + " ".join("x".join(_exact(Fraction(one) * size) for one in _numbers(part)) + base for part in parts) + " "
    )


def _dimensions(found: re.Match[str]) -> str:
    return " " + "x".join(_exact(Fraction(number)) for number in _numbers(found[1])) + " "


def _numbers(text: str) -> list[str]:
    return re.findall(_NUMBER, text)


def _exact(number: Fraction) -> str:
    """A number without point or slash, so that it stays one word: 3/2 is `3o2`."""
    return str(number.numerator) if number.denominator == 1 else f"{number.numerator}o{number.denominator}"


SIMILARITY_MIN_E4 = 6_000  # of the content words of both, the share in common from which a pair is worth reading

_VOUCHER_PARAGRAPH = re.compile(r"\bmy budget is\b.*", re.DOTALL | re.IGNORECASE)


def content_words(query: str) -> frozenset[str]:
    """What a query is about: its words and measures without the phrases of asking and without the voucher paragraph."""
    return frozenset(spoken_words(_VOUCHER_PARAGRAPH.sub(" ", query))) - word_list("phrase")


@functools.cache
def word_list(name: Literal["stop", "seller", "seller phrases", "variant", "phrase"]) -> frozenset[str]:
    """The words of a list, read on first use."""
    raw = resources.files("problems").joinpath("word_lists.json").read_bytes()
    return frozenset(msgspec.json.decode(raw, type=dict[str, str])[name].split())
