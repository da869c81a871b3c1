"""Whether words of a model weigh returned products against each other: what the scripted judge reads.

A passage does where it refers to two returned products, or tells "the first" from "the other", and a word of
comparison, contrast or cause stands beside them.
"""

from __future__ import annotations

import itertools
import re

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
_OPEN_PLACE = re.compile(r"\bthe (?:rest|others|remaining)\b", re.IGNORECASE)  # of a list: no product in particular


def is_weighed(passage: str, before: int, evidence: Evidence) -> bool:
    """Whether a passage of the span `before` weighs two returned products that it names."""
    told = sentences(_OPEN_PLACE.sub("", passage))
    named: list[frozenset[str]] = []
    for referent in itertools.chain.from_iterable(_referents(sentence, before, evidence) for sentence in told):
        if not any(referent & other for other in named):
            named.append(referent)
    is_placed = any(sentence.is_first for sentence in told) and any(sentence.is_other for sentence in told)
    return (len(named) > 1 or is_placed) and _has_reason(passage, evidence)


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
