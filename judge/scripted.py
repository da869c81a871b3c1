"""The scripted judge: the rubric's decision tree walked by code, for demo, tests and machines without an endpoint.

It is deterministic, quotes verbatim, and reads only the model's own words and tool results, so text that asks for a
score moves nothing. It recognises grounded comparison, not wisdom: a real panel reads what this one only counts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import msgspec

from judge.citations import ECHO_LIMIT_E4, QUOTE_LENGTH_MAX, QUOTE_LENGTH_MIN, supports
from judge.evidence.mentions import sentences
from judge.evidence.results import Evidence, evidence_of
from judge.parse import GateAnswers
from judge.port import JudgeReply
from judge.render import RenderedTrace, Span
from judge.rubric import Gate, Rubric, quality_of
from judge.verdict import Citation

# Words that weigh or decide, by language. Every such list has an end: `_settles` needs none of them.
_WEIGHING_WORDS = (
    "because|since|whereas|while|unlike|than|instead|rather|but|however|therefore|hence|only|over|against|versus|vs|"
    "compared|cheaper|cheapest|lower|lowest|less|no more|more (?:for|expensive|affordable)|dearer|better|best|worse|"
    "worst|closest|worth|advantage|superior|inferior|preferable",
    r"prefer\w*|beats?|wins?|deserves|cho(?:ose|ice|sen?)|pick|select|recommend\w*|settle|opt|drop|reject|skip|verdict|"
    r"in favou?r|decides?|going with|sav(?:es?|ed|ing)|economical",
    "porque|más|mejor|mientras|prefiero|ya que|elijo",
    "rẻ hơn|tốt hơn|nên|vì|chọn|mas|kaya|dahil|samantalang|pipiliin|murah|lebih|karena|kerana|pilih|manakala|daripada",
    "parce que|moins|plus|mieux|meilleure?|alors que|donc|préfère|choix",
    "weil|denn|dagegen|während|günstiger|billiger|teurer|besser|bessere|beste|als|deshalb|daher|lieber|wähle",
    "mais|menos|melhor|enquanto|prefiro|escolho|portanto|più|meno|meglio|migliore|perché|mentre|preferisco|scelgo",
    "omdat|terwijl|goedkoper|duurder|beter|liever|dus|ponieważ|tańszy|droższy|lepszy|wybieram|wolę|niż",
    "потому|поэтому|дешевле|дороже|лучше|чем|выбираю|предпочитаю|çünkü|daha|ucuz|pahalı|tercih|seçiyorum|göre",
)
_UNSPACED_WORDS = (
    "因为|所以|更|比|而且|因此|推荐|选|เพราะ|กว่า|จึง|ดังนั้น|เลือก|より|ので|だから|安い|高い|選び|おすすめ|"
    "보다|때문|저렴|비싸|더 |선택|추천"
)
_REASON = re.compile(rf"\b(?:{'|'.join(_WEIGHING_WORDS)})\b|{_UNSPACED_WORDS}", re.IGNORECASE)
_REPORT = re.compile(
    r"\b(returned|found|came back|comes? up|shows|shown|lists?|listed|results?|offers?|offered|none|nothing|empty)\b",
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
        evidence = evidence_of(trace)
        for gate in ("results_analysed", "data_cited", "candidates_compared"):
            found = next(_supports(gate, trace, evidence), None)
            if found is None:
                break
            citations.append(found)
        held = len(citations)
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
    for span in trace.spans:
        if span.kind == "completion" and span.echo_e4 < ECHO_LIMIT_E4:
            sentences = [part for part in _END.split(_CALL.sub("\n", span.content)) if part.strip()]
            for size in range(1, _SENTENCES_MAX + 1):
                for first in range(len(sentences) - size + 1):
                    passage = _stretch(span.content, sentences[first : first + size])
                    is_quote = QUOTE_LENGTH_MIN <= len(" ".join(passage.split())) <= QUOTE_LENGTH_MAX
                    if is_quote and _carries(gate, passage, span, evidence, _recommended(trace, span)):
                        yield Citation(span=span.number, quote=passage, gate=gate)


def _stretch(content: str, sentences: Sequence[str]) -> str:
    """The sentences as they stand in the content, one after the other; "" where a call stands between them."""
    found = re.search(r"\s*".join(re.escape(sentence.strip()) for sentence in sentences), content)
    return found.group() if found else ""


def _recommended(trace: RenderedTrace, span: Span) -> str:
    """The arguments of the recommendation that a completion's step makes; "" where it makes none."""
    calls = (one for one in trace.spans if one.kind == "call" and one.step == span.step)
    return " ".join(call.content for call in calls if call.tool == "recommend_product")


def _carries(gate: Gate, passage: str, span: Span, evidence: Evidence, recommended: str) -> bool:
    if not supports(gate, [(passage, span.number)], evidence):
        return False
    grounded = evidence.grounded_words(passage, span.number)
    if gate == "results_analysed":  # words that the query has, too, may only restate the request
        is_new = not evidence.known.issuperset(grounded) or supports("data_cited", [(passage, span.number)], evidence)
        return is_new or (len(grounded) >= _GROUNDED_WORDS_MIN and _REPORT.search(passage) is not None)
    if gate == "data_cited":
        return True
    is_weighed = _REASON.search(passage) is not None or _settles(passage, span, evidence, recommended)
    return len(grounded) >= _GROUNDED_WORDS_MIN and is_weighed


def _settles(passage: str, span: Span, evidence: Evidence, recommended: str) -> bool:
    """Whether a passage decides between products without any word for it: where the model recommends, it has named two
    with a fact that tells them apart, and returns to one of them alone, by its name or as "the latter".

    Whoever lists names each product once. To come back to one while recommending says which it is to be.
    """
    if not recommended or not evidence.facts_in(passage, span.number):
        return False
    seen: frozenset[str] = frozenset()
    for sentence, named in zip(sentences(passage), evidence.named_in(passage, span.number), strict=True):
        is_placed = not named and (sentence.is_first or sentence.is_other)
        if len(seen) > 1 and (is_placed or (len(named) == 1 and named <= seen)):
            return True
        seen |= named
    return False
