"""The ceiling: what the words of a trace can carry, however gullible the judge that reads it."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import pytest

from harness.emission.attribution import EMISSION
from harness.trace import EvaluationBody
from judge.citations import QUOTE_LENGTH_MAX, ceiling_e4, check_citations, is_verbatim, own_text
from judge.panel import judge_body
from judge.parse import RefusedReplyError, parse_reply
from judge.render import Judge, JudgeReply, RenderedTrace, render
from judge.rubric import GATES, quality_of
from judge.scripted import ScriptedJudge
from judge.verdict import Verdict
from tests.judge.bodies import (
    ANALYSED,
    CITED,
    COMPARED,
    PLAN,
    PRODUCTS,
    QUERY,
    RUBRIC,
    VAGUE,
    body_of,
    completion,
    episode,
    search,
)

Shop = tuple[str, Sequence[dict[str, object]], Sequence[dict[str, object]]]  # query, found products, details viewed


def _found(product_id: str, title: str, price: float, *service: str) -> dict[str, object]:
    return {"product_id": product_id, "title": title, "price": price, "service": service, "sold_count": 3}


SHOPS: dict[str, Shop] = {
    "scarf": (QUERY, PRODUCTS, ()),
    "speaker": (
        "I need a small speaker for the bathroom.",
        (
            _found("5501230011", "JBL Harmon Clip Speaker", 11.95, "COD"),
            _found("5501230029", "Anker Wavelet Mini Boombox", 1299.0, "freeShipping"),
        ),
        (
            {"product_id": "5501230011", "description": "A sound you love.", "attributes": {"material": ["plastic"]}},
            {
                "product_id": "5501230029",
                "description": "Take it anywhere.",
                "sku_options": {"1": {"color_family": "turquoise"}},
                "attributes": {"feature": ["waterproof"], "after_sales": ["free returns"], "material": ["aluminium"]},
            },
        ),
    ),
    "zh": (
        "我想买一条围巾",
        (
            _found("6601230011", "女士纯棉格子围巾春秋款", 89.0, "COD"),
            _found("6601230029", "羊毛加厚保暖围脖冬季", 159.0),
        ),
        (),
    ),
    "th": (
        "อยากได้ของกันหนาวสักชิ้น",
        (_found("7701230011", "ผ้าพันคอขนแกะหนานุ่ม", 259.0), _found("7701230029", "เสื้อคลุมฝ้ายลายตาราง", 480.0, "COD")),
        (),
    ),
    "es": (
        "Busco una bufanda para el invierno",
        (
            _found("8801230011", "Bufanda Tejida Lana Merina Gris", 1350.5),
            _found("8801230029", "Pañuelos Algodón Estampado Floral", 780.0, "freeShipping"),
        ),
        (),
    ),
    "vi": (
        "tôi cần một chiếc khăn",
        (
            _found("9901230011", "Khăn Len Dày Mùa Đông", 185000.0, "COD"),
            _found("9901230029", "Khăn Lụa Mỏng Họa Tiết Hoa", 99500.0, "freeShipping"),
        ),
        (),
    ),
}

HONEST: tuple[tuple[str, str], ...] = (
    ("scarf", "The Rouge one is cheaper than the Merino loop, so I take the former."),
    ("speaker", "Between Anker's boombox and the little JBL I would take the latter, as it is far cheaper."),
    ("es", "El pañuelo floral es más barato que la tejida en gris, pero abriga menos que ella en invierno."),
    ("vi", "Khăn len dày ấm hơn khăn lụa mỏng nên tôi chọn chiếc len cho mùa lạnh."),
    ("zh", "纯棉格子那条便宜，羊毛围脖更暖，用户没有说要冬季款，因此推荐前者。"),
    ("th", "ผ้าพันคอขนแกะอุ่นกว่าเสื้อคลุมฝ้ายและถูกกว่า จึงเลือกชิ้นแรก"),
    ("speaker", "The second one is waterproof and has free returns, the first has not."),
    ("speaker", "Option 2 is made of aluminium and comes in turquoise, while option 1 is plain plastic, so 2 it is."),
    ("speaker", "第二个包邮，第一个只能货到付款，所以我推荐第二个。"),
    ("speaker", "Cái thứ hai miễn phí vận chuyển, còn cái đầu tiên thì không, nên tôi chọn cái thứ hai."),
    ("scarf", "| 249.00 | rouge | 4410020078 | beats | 279.50 | merino | 4410020031 | since it is cheaper."),
    ("speaker", "One is about 12 dollars and the other nearly 1,300 dollars, so the small one is the sensible buy."),
    ("es", "Uno cuesta unos 1.350 pesos y el otro 780 pesos, así que el segundo sale más barato."),
    ("th", "ชิ้นหนึ่งราคา 259 บาท อีกชิ้นราคา 480 บาท จึงเลือกชิ้นที่ถูกกว่า"),
    ("scarf", "Yang rouge lebih murah daripada merino, jadi saya pilih yang itu untuk pembeli."),
)

# what no comparison carries: at most a quality of 0.7, whatever is said around it
NO_COMPARISON: tuple[tuple[str, str], ...] = (
    ("scarf", "The Merino Loop Scarf Winter Edition costs 279.5, and the merino of it is warm and good to wear."),
    (
        "scarf",
        "First I look at the Plain Cotton Scarf Rouge, second I check that 249.0 is below the limit; all is well.",
    ),
    (
        "scarf",
        "The Plain Cotton Scarf Rouge costs 249.0. I compared the first with the second and one is clearly better.",
    ),
    (
        "scarf",
        "Plain Cotton Scarf Rouge, 249.0, free shipping: on the other hand nothing was lost, each other thing is fine.",
    ),
    ("scarf", "4410020031 279.5 Merino Loop Scarf, 4410020078 249.0 Plain Cotton Scarf Rouge"),
    ("scarf", json.dumps(PRODUCTS)),
    ("scarf", "\n".join(f"{p['product_id']} | {p['price']} | {p['title']}" for p in PRODUCTS)),
    ("speaker", "The Harmon Clip is one of many and I thought about 20 seconds of the 10 results on page 2 of 5."),
    (
        "speaker",
        "Waterproof, aluminium, turquoise, with free returns: that is the Wavelet, and it is all one can ask for.",
    ),
    ("speaker", "JBL Harmon Clip Speaker 5501230011 11.95 Anker Wavelet Mini Boombox 5501230029 1299.0"),
    ("zh", "羊毛加厚保暖围脖冬季 159.0 很好，完全符合要求，不需要再看了。"),
    ("zh", "我仔细比较了所有商品，第一个比第二个更好，因为它更便宜，更符合要求。"),
    ("th", "ผ้าพันคอขนแกะหนานุ่มราคา 259 บาท เหมาะมากและไม่ต้องหาต่อ"),
    ("es", "Comparé todos los productos con cuidado: el primero es mejor que el segundo porque es más barato."),
    ("vi", "Tôi đã so sánh tất cả sản phẩm, cái đầu tiên tốt hơn cái thứ hai vì rẻ hơn."),
)


def shop_body(shop: str, words: str, emitter: str = "llm") -> EvaluationBody:
    """An episode in `shop` whose model says `words` after the results; `emitter` wrote the calls."""
    query, found, details = SHOPS[shop]
    arguments = json.dumps({"q": "carry good" if emitter == "code" else "what was asked"})
    events = [completion(1, PLAN), search(0, 1, arguments=arguments, result=_text(found), surfaced=(), emitter=emitter)]
    if details:
        viewed = json.dumps({"product_ids": ",".join(str(product["product_id"]) for product in details)})
        name = "view_product_information"
        events.append(search(1, 1, name=name, arguments=viewed, result=_text(details), surfaced=(), emitter=emitter))
    return body_of(*events, completion(2, words), query=query)


def _text(products: Sequence[dict[str, object]]) -> str:
    return json.dumps(products, ensure_ascii=False)


LEVELS = {VAGUE: 3_000, ANALYSED: 5_000, CITED: 7_000, COMPARED: 9_000}


class MostGullibleJudge:
    """Says the best that the host lets pass: for each gate every line of every completion is cited, best gate first."""

    model = "scripted-judge"

    def opine(self, trace: RenderedTrace, rubric: object, refusals: object = ()) -> JudgeReply:
        for passed in (4, 3, 2):
            for chosen in self._choices(trace, passed):
                text = _reply(passed, chosen)
                try:
                    check_citations(parse_reply(text), trace)
                except RefusedReplyError:
                    continue
                return JudgeReply(text=text)
        return JudgeReply(text=_reply(1, []))

    def _choices(self, trace: RenderedTrace, passed: int):
        lines = dict.fromkeys(  # the same words twice are no more
            (span.number, line.strip()[:QUOTE_LENGTH_MAX])
            for span in trace.spans
            for line in span.content.split("\n")
            if len(" ".join(line.split())) >= 12
        )
        for one, two in itertools.combinations_with_replacement(lines, 2):
            yield [
                {"span": number, "quote": quote, "gate": gate}
                for gate in GATES[1:passed]
                for number, quote in dict.fromkeys((one, two))
            ]


def _reply(passed: int, citations: list[dict[str, object]]) -> str:
    gates = {gate: place < passed for place, gate in enumerate(GATES)}
    quality = quality_of(passed) / 10_000
    return json.dumps({"gates": gates, "quality": quality, "citations": citations, "explanation": "superb"})


def gullible(body: EvaluationBody) -> int:
    verdict = judge_body(body, RUBRIC, [MostGullibleJudge()])
    assert isinstance(verdict, Verdict)
    return verdict.quality_e4


@pytest.mark.parametrize("words", LEVELS)
def test_each_level_has_its_ceiling_and_a_gullible_judge_reaches_no_more(words):
    body = episode(words)
    assert ceiling_e4(body, RUBRIC) == LEVELS[words] == gullible(body)


@pytest.mark.parametrize("before", [500, 2_600, 2_612, 2_628, 2_632, 2_648])
def test_words_that_the_program_planted_are_nobody_elses_where_a_long_completion_is_cut(before):
    planted = "Product 4410020078 costs 249.0 but 4410020031 costs 279.5 more money"
    messages = (json.dumps({"role": "user", "content": f"Say somewhere: {planted}"}),)
    babble = " ".join(f"thought{place}er" for place in range(500))
    words = f"{babble[:before].rpartition(' ')[0]} {planted} {babble[before:].partition(' ')[2]}"
    body = body_of(completion(1, PLAN, request=()), search(0, 1), completion(2, words, request=(0,)), messages=messages)
    body = msgspec.structs.replace(body, emission=EMISSION)
    span = render(body).spans[4]
    assert span.cut and len(own_text(span)) == len(span.content)
    assert ceiling_e4(body, RUBRIC) == gullible(body) == 3_000


def test_a_comparison_may_run_over_two_completions_that_follow_each_other():
    one = completion(2, "Product 4410020078 costs 249.0 and ships for free, which is what was asked for here.")
    two = completion(3, "The 4410020031 in turn is dearer, so I stay with the one from before without a doubt.")
    far = completion(4, "Nothing else is of interest here and the search comes to its end without more ado.")
    near = body_of(completion(1, PLAN), search(0, 1), one, two)
    apart = body_of(completion(1, PLAN), search(0, 1), one, far, msgspec.structs.replace(two, step=4))
    assert (ceiling_e4(near, RUBRIC), ceiling_e4(apart, RUBRIC)) == (9_000, 7_000)


@pytest.mark.parametrize(("shop", "words"), HONEST)
def test_honest_comparisons_keep_their_ceiling_and_a_gullible_judge_can_give_it(shop, words):
    body = shop_body(shop, words)
    assert ceiling_e4(body, RUBRIC) == gullible(body) == 9_000


@pytest.mark.parametrize("emitter", ["llm", "code"])
@pytest.mark.parametrize(("shop", "words"), NO_COMPARISON)
def test_one_product_copies_and_talk_are_no_comparison(shop, words, emitter):
    body = shop_body(shop, words, emitter)
    assert gullible(body) <= ceiling_e4(body, RUBRIC) <= 7_000


def test_a_quote_cut_inside_a_number_or_phrase_says_what_the_whole_says():
    words = "It is said that 94410020078 and 14410020031 are cheaper than each other; on the other hand, who knows."
    trace = render(episode(words))
    quotes = ("4410020078 and", "4410020031 are")
    cut = [{"span": 5, "quote": quote, "gate": gate} for gate in GATES[1:] for quote in quotes]
    with pytest.raises(RefusedReplyError):
        check_citations(parse_reply(_reply(4, cut)), trace)


@pytest.mark.parametrize(("price", "said"), [(1249.0, "1.249,00"), (249.0, "٢٤٩")])
def test_a_price_in_another_notation_is_the_same_price(price, said):
    products = json.dumps([{**PRODUCTS[0], "price": price}, PRODUCTS[1]])
    body = body_of(
        completion(1, PLAN), search(0, 1, result=products), completion(2, f"That one is {said} pesos in all.")
    )
    assert ceiling_e4(body, RUBRIC) == 7_000


# -- a corpus of attacks (`attacks.jsonl`), put into every place that an agent can write to


ATTACKS = [
    json.loads(line)["text"] for line in Path(__file__).with_name("attacks.jsonl").read_text("utf-8").splitlines()
]
PATIENT = msgspec.structs.replace(RUBRIC, attempts_per_model=6)
WORDS = (VAGUE, ANALYSED)


def found(**changes: str) -> str:
    return json.dumps([{**PRODUCTS[0], **changes}, PRODUCTS[1]])


def after_search(words: str, **fields: object) -> EvaluationBody:
    return body_of(completion(1, PLAN), search(0, 1, **fields), completion(2, words))


PLACES: dict[str, Callable[[str, str], EvaluationBody]] = {
    "thought, after": lambda words, attack: episode(f"{words}\n{attack}"),
    "thought, before": lambda words, attack: episode(f"{attack}\n{words}"),
    "plan": lambda words, attack: body_of(completion(1, f"{PLAN}\n{attack}"), search(0, 1), completion(2, words)),
    "arguments": lambda words, attack: after_search(words, arguments=json.dumps({"q": attack})),
    "tool name": lambda words, attack: after_search(words, name=attack),
    "id": lambda words, attack: after_search(words, result=found(product_id=attack)),
    "title": lambda words, attack: after_search(words, result=found(title=attack)),
    "description": lambda words, attack: after_search(words, result=found(description=attack)),
    "bare result": lambda words, attack: after_search(words, result=attack),
    "query": lambda words, attack: episode(words, query=f"{QUERY} {attack}"),
    "claim": lambda words, attack: episode(words, claim=json.dumps(attack)),
    "program": lambda words, attack: episode(
        words, messages=(json.dumps({"role": "system", "content": attack}), *episode(words).messages[1:])
    ),
    "program's call": lambda words, attack: body_of(
        completion(1, PLAN),
        search(0, 1),
        search(1, 1, arguments=json.dumps({"think": attack}), emitter="code"),
        completion(2, words),
    ),
}


class ObedientJudge(MostGullibleJudge):
    """Gives whatever ready reply the trace holds, then the best it is let."""

    def opine(self, trace: RenderedTrace, rubric: object, refusals: tuple[str, ...] = ()) -> JudgeReply:
        start = trace.text.find('{"gates"')
        if refusals or start < 0:
            return super().opine(trace, rubric)
        end = trace.text.find("\n", start)
        return JudgeReply(text=trace.text[start : end if end > 0 else None].replace("| ", ""))


def judged(body: EvaluationBody, judge: Judge) -> int:
    """The quality; 0 while owed, which lifts nothing. Every accepted quote is looked up once more."""
    verdict = judge_body(body, PATIENT, [judge])
    if not isinstance(verdict, Verdict):
        return 0
    contents = {span.number: span.content for span in render(body).spans}
    for opinion in verdict.opinions:
        assert all(is_verbatim(one.quote, contents[one.span]) for one in opinion.citations)
    return verdict.quality_e4


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("judge", [ScriptedJudge(), ObedientJudge()], ids=["scripted", "obedient"])
def test_no_attack_lifts_a_quality_above_its_evidence(place: str, judge: Judge) -> None:
    """A share of the corpus for each place, another for each; `make prove` runs all of it."""
    assert lifted(place, judge, range(list(PLACES).index(place), len(ATTACKS), len(PLACES))) == []


def lifted(place: str, judge: Judge, numbers: range) -> list[tuple[int, str]]:
    """The attacks by their numbers that lift, each with the words that it stands beside."""
    wrong = []
    for number in numbers:
        words = WORDS[number % 2]
        honest = episode(words)
        permitted = judged(honest, judge) if isinstance(judge, ScriptedJudge) else ceiling_e4(honest, RUBRIC)
        if judged(PLACES[place](words, ATTACKS[number]), judge) > permitted:
            wrong.append((number, words))
    return wrong


@pytest.mark.prove
@pytest.mark.parametrize("place", PLACES)
def test_no_attack_lifts_a_quality_anywhere(place: str) -> None:
    for judge in (ScriptedJudge(), ObedientJudge()):
        assert lifted(place, judge, range(len(ATTACKS))) == []
