"""The worst that an agent can send: tool calls within `argument_bytes`, and model requests within a frame."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence

from harness.catalogue.analysis import terms_of
from harness.catalogue.build import contents_of
from harness.tools.functions import QUERY_CHARS_MAX
from problems.model import Product

ROOM = 60_000  # bytes of the long argument, written as JSON; the rest of a call's 65,536 is for names and quotes
FRAME = 1_000_000
Call = tuple[str, object]  # tool name; arguments, as an object or as text


def common_words(products: Iterable[Product], count: int) -> list[str]:
    """The words whose lists are longest, one for each term."""
    met = Counter[str]()
    for product in products:
        met.update({word for word in contents_of(product).lower().split() if word.isalnum()})
    by_term: dict[tuple[str, ...], str] = {}
    for word, _ in met.most_common(4 * count):
        by_term.setdefault(tuple(terms_of(word)), word)
    return [word for term, word in by_term.items() if len(term) == 1][:count]


def hostile_texts() -> dict[str, str]:
    """Search texts of ROOM bytes, by what is bad about them."""
    units = {
        "one word": "x",
        "underscores": "_",
        "joiners": "\u200d",
        "marks": "\u0301",
        "ligatures that expand": "\ufdfa",
        "escapes": "\\",
        "open parentheses": "find_product(",
        "open braces": '{"name":',
    }
    return {why: unit * (ROOM // _width(unit)) for why, unit in units.items()} | {
        "underscores before a word": "_" * (ROOM - 1) + "a",
        "words of y": " ".join(
            "y" * 240 + f"{n:x}".translate(str.maketrans("0123456789", "ghijklmnop")) for n in range(240)
        ),
        "distinct words": " ".join(f"w{n}" for n in range(8_500)),
        "too many words": " ".join(f"w{n}" for n in range(1_025)),
    }


def hostile_calls(products: Sequence[Product]) -> dict[str, Call]:
    """Tool calls by what is bad about them."""
    common = " ".join(common_words(products, 1_024))
    ids = [product.product_id for product in sorted(products, key=lambda one: -len(one.description))]
    shop = Counter(product.shop_id for product in products).most_common(1)[0][0]
    calls: dict[str, Call] = {}
    for why, text in hostile_texts().items():
        calls[f"q: {why}"] = ("find_product", {"q": text[:QUERY_CHARS_MAX]})
        calls[f"q over its bound: {why}"] = ("find_product", {"q": text})
        calls[f"ten queries: {why}"] = ("find_products_in_same_shop", _queries([_cut(text, ROOM // 11)] * 10))
        calls[f"product id: {why}"] = ("check_product_match", {"product_id": text, "requirements": '{"a": "b"}'})
        calls[f"answer: {why}"] = ("recommend_product", {"product_ids": text})
        calls[f"arguments: {why}"] = ("find_product", text)
        calls[f"name: {why}"] = (text, {"q": "bag"})
    digits = "9" * ROOM
    calls |= {
        "q: the 1,024 most common words": ("find_product", {"q": common, "shop_id": shop, "sort": "priceasc"}),
        "ten queries of the most common words": (
            "find_products_in_same_shop",
            _queries([_cut(common, ROOM // 11)] * 10),
        ),
        "page of digits": ("find_product", '{"q": "bag", "page": ' + digits + "}"),
        "price of digits": ("find_product", {"q": "bag", "price": f"{digits[:29_000]}-{digits[:29_000]}"}),
        "a hundred products": ("view_product_information", {"product_ids": ",".join(ids[:100])}),
        "a hundred requirements": (
            "check_product_match",
            {"product_id": ids[0], "requirements": json.dumps({f"k{n}": "v" * 500 for n in range(100)})},
        ),
        "requirements nested deep": ("check_product_match", {"product_id": ids[0], "requirements": '{"a":' * 900}),
        "exponents": ("calculate_voucher", _voucher(",".join(["1e-999999999", "1e99999999999"] * 50))),
        "arguments nested deep": ("find_product", '{"q":' * 900 + "1" + "}" * 900),
        "JSON in JSON": ("find_product", {"q": json.dumps(json.dumps(json.dumps([["a"] * 1_500])))}),
        "ten thousand arguments": ("find_product", {f"k{n}": 0 for n in range(6_500)}),
    }
    return calls


def hostile_requests() -> dict[str, dict[str, object]]:
    """Model requests of about FRAME bytes by what is bad about them."""
    call = json.dumps({"name": "find_product", "arguments": {"q": "bag"}})
    menu = json.dumps({"name": "find_product", "parameters": {"properties": {"q": {"enum": ["bag", "lamp"]}}}})
    units = hostile_texts() | {
        "calls": call,
        "arguments that nest": call.replace('"bag"', "[" * 200 + "]" * 200),
        "menus": menu,
        "calls in Python": "find_product(q='bag', page=1) ",
        "tags": "<find_product><q>bag</q>",
        "tags in rows": "<x>b</x><x>b</x> ",
        "colours without an end": "\x1b[0",
        "words set together by capitals": "AaAaAa",
        "the query again and again": "a red lamp find_product q\n\n",
    }
    requests: dict[str, dict[str, object]] = {}
    for why, unit in units.items():
        text = unit * (FRAME // len(json.dumps(unit, ensure_ascii=False).encode()))
        requests[f"message: {why}"] = {"messages": [{"role": "user", "content": text}]}
    requests |= {
        "100,000 messages": {"messages": [{}] * 100_000},
        "earlier calls": {"messages": [{"role": "assistant", "tool_calls": [{"function": {}}] * 40_000}]},
        "tools": {"messages": [{"role": "user", "content": "x"}], "tools": [f"tool{n}" for n in range(80_000)]},
        "as many names as are read": {"messages": [{"role": "user", "content": ("find_product(" + "(" * 970) * 1_000}]},
        "names before one parenthesis": {
            "messages": [{"role": "user", "content": "find_product( " * 999 + "x" * (FRAME - 20_000)}]
        },
    }
    return requests


def _width(text: str, times: int = 1) -> int:
    """Bytes of a text inside JSON that is in JSON, that many times over."""
    for _ in range(times):
        text = json.dumps(text, ensure_ascii=False)[1:-1]
    return len(text.encode())


def _cut(text: str, room: int) -> str:
    """The beginning of a text that takes no more than `room` bytes as JSON inside JSON."""
    return text[: room * len(text) // _width(text, 2)]


def _queries(texts: Sequence[str]) -> dict[str, str]:
    queries = [{"q": text or "x", "price": "0-999999", "service": ""} for text in texts]
    return {"product_queries": json.dumps(queries, ensure_ascii=False)}


def _voucher(prices: str, **more: str) -> dict[str, object]:
    amounts = {"voucher_type": "percentage", "discount_value": 10, "threshold": 1, "budget": 1_000}
    return {"product_prices": prices, **amounts, **more}
