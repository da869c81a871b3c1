"""Comparisons as people write them, and texts that only look like one: cases for the ceiling.

Each is (shop, words of the model after the results). `body` puts them into an episode with that shop's results.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from harness.trace import EvaluationBody
from tests.judge.bodies import PLAN, PRODUCTS, QUERY, body_of, completion, search

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


def body(shop: str, words: str, emitter: str = "llm") -> EvaluationBody:
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
