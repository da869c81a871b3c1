"""Whether words of a model weigh returned products against each other: what the scripted judge reads, and code can.

A passage is read for three things: which returned products it refers to, whether it tells them apart by a fact that a
tool returned, and whether it relates them. Two products that are only listed are not weighed. They are where a word of
comparison, contrast or cause stands beside them, where the model has computed the difference of their prices, or where
it decides: in a step that opens or recommends something it returns to one of them alone. The last two need no word list
and so no language. A model may also weigh over two completions, what it keeps in the one against what it finds in the
next.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence

import msgspec

from judge.evidence.mentions import Sentence, sentences
from judge.evidence.products import FIRM, ReturnedProduct
from judge.evidence.results import Evidence
from judge.evidence.tokens import tokenise

# English connectives of comparison and contingency after the Penn Discourse Treebank 2.0 (Prasad et al. 2008), without
# those that mostly mean something else (as, for, still, yet, when, if).
_CONNECTIVES = (
    r"because|since|thus|therefore|hence|consequently|as a result|accordingly|given that|now that|"
    r"(?<=[,.!?;:] )so(?! (?:much|far|that))|because of|due to|owing to|thanks to|on account of|in view of|"
    r"but|although|though|however|nevertheless|nonetheless|while|whereas|"
    r"(?:by|in) (?:contrast|comparison)|on the (?:other hand|contrary)|rather|instead|conversely|than|"
    r"alternatively|otherwise|(?:this|that|which) is why"
)
# Words that weigh or decide, by language. Every such list has an end.
_WEIGHING_WORDS = (
    r"unlike|no more|more (?:for|expensive|affordable)|less|over|against|versus|vs|only|compar(?:ed|ing|ison)|"
    r"cheap(?:er|est)|low(?:er|est)|dear(?:er|est)|better|best|worse|worst|closest|worth|advantage|superior|inferior|"
    r"prefer\w*|beats?|beaten|wins?|deserves?|cho(?:ose|ice|sen?)|pick|select|recommend\w*|settle|opt|drop|reject|skip|"
    r"verdict|in favou?r|decides?|going with|sav(?:es?|ed|ing)|economical|too (?!many|late|soon|much to)\w+|"
    r"justif(?:y|ie[sd])|outweighs?|discard|dismiss|eliminate|exclude|rule out|strike|cross out",
    "porque|más|mejor|mientras|prefiero|ya que|elijo",
    "rẻ hơn|tốt hơn|nên|vì|chọn|mas|kaya|dahil|samantalang|pipiliin|murah|lebih|karena|kerana|pilih|manakala|daripada",
    "parce que|moins|plus|mieux|meilleure?|alors que|donc|préfère|choix",
    "weil|denn|dagegen|während|günstiger|billiger|teurer|besser|bessere|beste|als|deshalb|daher|lieber|wähle",
    "mais|menos|melhor|enquanto|prefiro|escolho|portanto|più|meno|meglio|migliore|perché|mentre|preferisco|scelgo",
    "omdat|terwijl|goedkoper|duurder|beter|liever|dus|ponieważ|tańszy|droższy|lepszy|wybieram|wolę|niż",
    "потому|поэтому|дешевле|дороже|лучше|чем|выбираю|предпочитаю|çünkü|daha|ucuz|pahalı|tercih|seçiyorum|göre",
    "koska|kun taas|verrattuna|halvempi|edullisempi|kalliimpi|parempi|valitsen|mutta|joten",
)
_UNSPACED_WORDS = (
    "因为|所以|更|比|而且|因此|推荐|选|เพราะ|กว่า|จึง|ดังนั้น|เลือก|より|ので|だから|安い|高い|選び|おすすめ|"
    "보다|때문|저렴|비싸|더 |선택|추천"
)
_REASON = re.compile(
    rf"\b(?:{_CONNECTIVES}|{'|'.join(_WEIGHING_WORDS)})\b|{_UNSPACED_WORDS}", re.IGNORECASE | re.MULTILINE
)
# Words by which a completion comes back to what an earlier one kept.
_BACK = re.compile(
    r"\b(?:earlier|previous(?:ly)?|former(?:ly)?|before|other|than|instead|unlike|compar(?:ed|ing|ison)|"
    r"rather|(?:by|in) contrast|whereas|\w{3,}er (?:than|one)|beats?|beaten|below|under)\b",
    re.IGNORECASE,
)
_OPEN_PLACE = re.compile(r"\bthe (?:rest|others|remaining)\b", re.IGNORECASE)  # of a list: no product in particular
_CENT = 0.005


class Weighed(msgspec.Struct, frozen=True):
    """A passage of one completion: its words, the number of its span, and whether its step opens or recommends one."""

    passage: str
    before: int
    is_decided: bool


def is_weighed(said: Weighed, evidence: Evidence) -> bool:
    """Whether the passage weighs two returned products that it names."""
    told = sentences(_OPEN_PLACE.sub("", said.passage))
    meant = [_referents(sentence, said.before, evidence) for sentence in told]
    named = _distinct([one for each in meant for one in each])
    is_placed = any(sentence.is_first for sentence in told) and any(sentence.is_other for sentence in told)
    if len(named) < 2 and not is_placed:
        return False
    if _has_reason(said.passage, evidence) or _is_difference_told(told, named, evidence):
        return True
    return said.is_decided and _has_fact(said, told, named, evidence) and _returns_to_one(told, meant)


def is_weighed_later(kept: Weighed, found: Weighed, evidence: Evidence) -> bool:
    """Whether the later of two passages weighs a product that it names against one that the earlier named."""
    told = sentences(found.passage)
    before = _distinct([one for each in sentences(kept.passage) for one in _referents(each, kept.before, evidence)])
    after = _distinct([one for each in told for one in _referents(each, found.before, evidence)])
    if len(before) != 1 or len(after) != 1 or before[0] & after[0]:
        return False
    if not _has_fact(kept, sentences(kept.passage), before, evidence) or not _has_fact(found, told, after, evidence):
        return False
    is_back = _BACK.search(found.passage) is not None or any(one.is_first or one.is_other for one in told)
    return _is_difference_told(told, [before[0], after[0]], evidence) or (found.is_decided and is_back)


def _has_reason(passage: str, evidence: Evidence) -> bool:
    """Whether some word of the model's own weighs or decides: not one that stands so in a result, as in a title."""
    for found in _REASON.finditer(passage):
        word = tokenise(found.group())
        near = (*tokenise(passage[: found.start()])[-1:], *word, *tokenise(passage[found.end() :])[:1])
        if not any(pair in evidence.pairs for pair in itertools.pairwise(near)):
            return True
    return False


def _referents(sentence: Sentence, before: int, evidence: Evidence) -> list[frozenset[str]]:
    """The products that a sentence refers to, the surest first: each as the ids of all that its words fit alike, since
    shops list one thing several times. What one product explains refers to no second."""
    left = frozenset(mark for mark in sentence.marks if mark in evidence.holders)
    found: list[frozenset[str]] = []
    while left:
        fitting: dict[frozenset[str], list[ReturnedProduct]] = {}
        for one in evidence.told(left):
            fitting.setdefault(frozenset(m for m in left & one.names.keys() if one.names[m][1] < before), []).append(
                one
            )
        weights = {marks: sum(fitting[marks][0].names[mark][0] for mark in marks) for marks in fitting}
        marks = max(weights, key=lambda marks: (weights[marks], sorted(marks)), default=frozenset())
        if weights.get(marks, 0) < FIRM:
            break
        found.append(frozenset(one.product_id for one in fitting[marks]))
        left -= marks
    return found


def _distinct(referents: Sequence[frozenset[str]]) -> list[frozenset[str]]:
    """One of each group of referents that share a product, in order."""
    found: list[frozenset[str]] = []
    for one in referents:
        if not any(one & other for other in found):
            found.append(one)
    return found


def _prices(named: frozenset[str], evidence: Evidence) -> frozenset[float]:
    return frozenset(one.price for one in evidence.products if one.product_id in named and one.price is not None)


def _numbers(told: Sequence[Sentence]) -> frozenset[float]:
    return frozenset(
        float(mark)
        for one in told
        for mark in one.marks
        if mark.isascii() and re.fullmatch(r"\d{1,12}(?:\.\d+)?", mark)
    )


def _is_difference_told(told: Sequence[Sentence], named: Sequence[frozenset[str]], evidence: Evidence) -> bool:
    """Whether a number is the difference of two named products' prices, and no price of theirs."""
    prices = [_prices(one, evidence) for one in named]
    known = frozenset().union(*prices)
    gaps = [
        abs(one - other)
        for place, ours in enumerate(prices)
        for theirs in prices[place + 1 :]
        for one in ours
        for other in theirs
    ]
    said = [number for number in _numbers(told) if not any(abs(number - price) < _CENT for price in known)]
    return any(gap > 0 and abs(number - gap) < _CENT for gap in gaps for number in said)


def _has_fact(said: Weighed, told: Sequence[Sentence], named: Sequence[frozenset[str]], evidence: Evidence) -> bool:
    """Whether a passage says a price of a product that it names, however short, or a fact that tells products apart."""
    if evidence.facts_in(said.passage, said.before):
        return True
    prices = frozenset().union(*(_prices(one, evidence) for one in named))
    return any(abs(number - price) < _CENT for number in _numbers(told) for price in prices)


def _returns_to_one(told: Sequence[Sentence], meant: Sequence[list[frozenset[str]]]) -> bool:
    """Whether a sentence comes back to one product alone, by its name or as "the latter", after two were named.

    Whoever lists names each product once. To come back to one while deciding says which it is to be.
    """
    seen: list[frozenset[str]] = []
    for sentence, referents in zip(told, meant, strict=True):
        alone = _distinct(referents)
        is_placed = not alone and (sentence.is_first or sentence.is_other)
        if len(seen) > 1 and (is_placed or (len(alone) == 1 and any(alone[0] & one for one in seen))):
            return True
        seen = _distinct([*seen, *referents])
    return False
