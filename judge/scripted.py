"""The scripted judge: the rubric's decision tree walked by code, for demo, tests and machines without an endpoint.

It is deterministic, quotes verbatim, and reads only the model's own words and tool results, so text that asks for a
score moves nothing. It recognises grounded comparison, not wisdom: a real panel reads what this one only counts. A
passage weighs products where it refers to two that were returned, or tells "the first" from "the other", and a word
of comparison, contrast or cause stands beside them.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence

import msgspec

from judge.citations import ECHO_LIMIT_E4, QUOTE_LENGTH_MAX, QUOTE_LENGTH_MIN, supports
from judge.evidence.mentions import Sentence, sentences, tokenise
from judge.evidence.results import FIRM, Evidence, ReturnedProduct
from judge.parse import GateAnswers
from judge.render import JudgeReply, RenderedTrace, Span
from judge.rubric import Gate, Rubric, quality_of
from judge.verdict import Citation

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


_REPORT = re.compile(
    r"\b(returned|found|came back|comes? up|shows|shown|listed|results?|offers?|offered|none|nothing|empty)\b",
    re.IGNORECASE,
)
_GROUNDED_WORDS_MIN = 2
_SENTENCES_MAX = 8  # of one passage
_END = re.compile(r"(?<=[.!?])\s+|(?<=[。！？])|\n+")
_CALL = re.compile(r"<tool_call>[\s\S]*?(?:</tool_call>|\Z)|^\s*Action(?: Input)?:.*$", re.MULTILINE)
_EXPLANATIONS = (  # by how many gates have a citation
    "The model does not say what the results mean.",
    "Results are read, but no datum from them is named.",
    "Data are named, but no two candidates are weighed against each other.",
    "Candidates are compared on returned data and a reason is given.",
)


class ScriptedJudge:
    """A `Judge` without a model. Its replies have the form and pass the checks a model's replies must pass."""

    def __init__(self, model: str = "scripted-judge") -> None:
        self._model = model

    @property
    def model(self) -> str:
        """The name under which a rubric lists it."""
        return self._model

    def opine(self, trace: RenderedTrace, rubric: Rubric, refusals: Sequence[str] = ()) -> JudgeReply:
        """Walk the tree over the rendered spans; `refusals` change nothing, since code has nothing to reconsider."""
        citations: list[Citation] = []
        evidence = Evidence(trace)
        gates: tuple[Gate, ...] = ("results_analysed", "data_cited", "candidates_compared")
        held = 0
        for gate in gates:
            found = next(_supports(gate, trace, evidence), None)
            if found is None:
                break
            citations.append(found)
            held += 1
        answers = GateAnswers(
            inference_present=True,
            results_analysed=held >= 1,
            data_cited=held >= 2,
            candidates_compared=held >= 3,
        )
        reply = {
            "gates": msgspec.to_builtins(answers),
            "quality": quality_of(1 + held) / 10_000,
            "citations": msgspec.to_builtins(citations),
            "explanation": _EXPLANATIONS[held],
        }
        return JudgeReply(text=msgspec.json.encode(reply).decode())


def _supports(gate: Gate, trace: RenderedTrace, evidence: Evidence) -> Iterator[Citation]:
    """Citations that would carry a gate, in trace order; the shortest passage of a completion first."""
    for span in trace.deliberation:
        if span.kind == "completion" and span.echo_e4 < ECHO_LIMIT_E4:
            for passage in _passages(span):
                if _carries(gate, passage, span.number, evidence):
                    yield Citation(span=span.number, quote=passage, gate=gate)


def _passages(span: Span) -> Iterator[str]:
    """What of a completion can be quoted: up to some sentences that follow each other, the fewest first."""
    parts = [part for part in _END.split(_CALL.sub("\n", span.content)) if part.strip()]
    for size in range(1, _SENTENCES_MAX + 1):
        for first in range(len(parts) - size + 1):
            passage = _stretch(span.content, parts[first : first + size])
            if QUOTE_LENGTH_MIN <= len(" ".join(passage.split())) <= QUOTE_LENGTH_MAX:
                yield passage


def _stretch(content: str, sentences: Sequence[str]) -> str:
    """The sentences as they stand in the content, one after the other; "" where a call stands between them."""
    found = re.search(r"\s*".join(re.escape(sentence.strip()) for sentence in sentences), content)
    return found.group() if found else ""


def _carries(gate: Gate, passage: str, before: int, evidence: Evidence) -> bool:
    here = [(passage, before)]
    if not supports(gate, here, evidence):
        return False
    grounded = evidence.grounded_words(passage, before)
    if gate == "results_analysed":  # words that the query has, too, may only restate the request
        is_new = not evidence.known.issuperset(grounded) or supports("data_cited", here, evidence)
        told = (one for one in _END.split(passage) if _REPORT.search(one))
        return is_new or any(len(evidence.grounded_words(one, before)) >= _GROUNDED_WORDS_MIN for one in told)
    return gate == "data_cited" or (len(grounded) >= _GROUNDED_WORDS_MIN and is_weighed(passage, before, evidence))
