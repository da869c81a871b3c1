"""Title keys: what a title says, whoever the seller is and however it is written.

`title_key` is a pure function of the text. Order, case, punctuation, accents, repetition, retailers' words and
the spelling of a measure (`500 ML`, `0.5 litre`) leave it alone; any other word, number or model code changes it. (A
number and its unit, or the words of `ready stock`, stay side by side when sellers reorder a title.) The
key of a title that says nothing else is its own text, so empty titles never look alike. It knows no catalogue: which
further words carry no meaning there is found in `problems.pools.product_classes`.
"""

from __future__ import annotations

import functools
import re
import unicodedata
from fractions import Fraction

from problems.word_lists import word_list

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

_NUMBER = r"\d+(?:\.\d+)?"
_UNIT_NAMES = "|".join(re.escape(name) for name in sorted(_UNITS, key=lambda name: (-len(name), name)))
_UNIT_NAMES += r"|(?<=\d)in(?! ?\d)"  # `12in` is a length, `10 in 1` is none
_UNITS["in"] = _UNITS["inch"]
# `500 ml`, `10 x 20 cm`, `40/60/80cm` and `3-5 kg` (a unit for each number), `1/2 inch` (a fraction), `set of 4`
_MEASURE = re.compile(
    rf"(?<![a-z0-9.])({_NUMBER}(?: ?[x*×/-] ?{_NUMBER})*)[ -]?({_UNIT_NAMES})(?![a-z0-9])"
    rf"|\b(?:set|pack|box|bundle) of (\d+)\b"
)
_TIMES = re.compile(rf"(?<![a-z0-9./-])({_NUMBER}(?: ?[x*×] ?{_NUMBER})+)(?![a-z0-9])")
_FRACTION = re.compile(r"([1-9]|1[0-9]) ?/ ?(2|3|4|8|16|32)")
_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")
_DECIMAL_COMMA = re.compile(r"(?<=\d),(?=\d{1,2}(?!\d))")
_CODE_DASH = re.compile(  # NES-32 and NES32 are one model; `tape-48mm` is none
    rf"(?<![a-z0-9])([a-z]{{1,4}})-(?=\d)(?!{_NUMBER} ?(?:{_UNIT_NAMES})(?![a-z0-9]))"
)
_WORD = re.compile(r"\d+/\d+|\d+\.\d+|[^\W_]+")


def folded(text: str) -> str:
    """The text in one spelling: compatibility forms, lower case, no accents, decimal points, single blanks."""
    plain = text.casefold()
    if not text.isascii():  # in ASCII no letter has an accent or another form
        plain = unicodedata.normalize("NFKD", text).casefold()
        plain = unicodedata.normalize("NFC", "".join(letter for letter in plain if not unicodedata.combining(letter)))
    return " ".join(_DECIMAL_COMMA.sub(".", _THOUSANDS.sub("", plain)).split())


def spoken_words(text: str) -> list[str]:
    """The text's words in order: measures in base units (`0.5 L` is `500ml`), dashes inside model codes closed,
    plurals without their s."""
    closed = _CODE_DASH.sub(r"\1", folded(text))
    measured = _TIMES.sub(_dimensions, _MEASURE.sub(_in_base_units, closed))
    return [
        word[:-1] if len(word) > 3 and word.isalpha() and word[-1] == "s" and word[-2] not in "sui" else word
        for word in _WORD.findall(measured)
    ]


@functools.lru_cache(maxsize=65_536)
def title_key(title: str) -> str:
    """The title's telling words, each once, sorted, with a blank between them. Never empty."""
    plain = folded(title)
    words = set(spoken_words(_seller_phrases().sub(" ", plain)))
    telling = words - word_list("stop") - word_list("seller")
    return " ".join(sorted(telling or set(spoken_words(plain)))) or f"={plain or title}"


@functools.cache
def _seller_phrases() -> re.Pattern[str]:
    spoken = "|".join(phrase.replace("+", "[ -]?") for phrase in sorted(word_list("seller phrases"), reverse=True))
    return re.compile(rf"\b(?:{spoken}|\d+ ?% ?(?:off|less|discount|authentic|original|genuine|legit|new))\b")


def _in_base_units(found: re.Match[str]) -> str:
    if found[3]:
        return f" {int(found[3])}pcs "
    base, size = _UNITS[found[2]]
    if fraction := _FRACTION.fullmatch(found[1]):
        return f" {_exact(Fraction(int(fraction[1]), int(fraction[2])) * size)}{base} "
    parts = re.split(r"[/-]", found[1])
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
