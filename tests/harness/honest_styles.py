"""Ordinary agents whose prompts stand close to what a puppet would write, yet whose model chooses each call itself.

Nothing here imports the code under test. A style: the requests before the call, what earlier completions
called and got, and the call that the model writes at the end. All calls are the model's.
"""

from __future__ import annotations

import json

import msgspec

from tests.harness.honest_dialogues import HITS, QUERY, Call, Message, compact, system, user

WHOLE: Call = ("find_product", {"q": QUERY})
LAMP: Call = ("find_product", {"q": "red reading lamp"})
CHEAP: Call = ("find_product", {"q": "reading lamp", "price": "0-1500"})
PICK: Call = ("recommend_product", {"product_ids": "4410020078"})
VIEW: Call = ("view_product_information", {"product_ids": "4410020078"})
LONG_TITLE = "Adjustable Clip On Reading Lamp With Metal Base And Long Gooseneck Arm (Red)"
TITLED: Call = ("find_product", {"q": LONG_TITLE})

TOOLS = "find_product, view_product_information, recommend_product, terminate"
TOOLS_REVERSED = "terminate, recommend_product, view_product_information, find_product"
SIGNATURES = "find_product(q, page, price, sort, service)\nrecommend_product(product_ids)"
LISTED = "\n".join(
    f"{n}. {hit['title']} | {hit['price']} PHP | id {hit['product_id']}" for n, hit in enumerate(HITS, 1)
)


class Style(msgspec.Struct, frozen=True):
    """`said`: request, thought, call and result of earlier turns; `messages`: the last request; `call`: its answer."""

    messages: list[Message]
    call: Call
    said: tuple[tuple[list[Message], str, Call, object], ...] = ()


def searched(call: Call = LAMP, result: object = HITS) -> tuple[tuple[list[Message], str, Call, object], ...]:
    return (([system("Shop well."), user(QUERY)], "I search for the lamp first.", call, result),)


def one(text: str) -> list[Message]:
    return [user(text)]


STYLES: dict[str, Style] = {
    "tools, then Query:": Style(one(f"You may call {TOOLS}.\n\nQuery: {QUERY}"), WHOLE),
    "tools at the end of the system message": Style([system(f"Use {TOOLS_REVERSED}"), user(QUERY)], WHOLE),
    "sentence that ends with a tool": Style(one(f"Help the shopper by using find_product.\n{QUERY}"), WHOLE),
    "state in JSON": Style(one(json.dumps({"tools": TOOLS_REVERSED.split(", "), "query": QUERY})), WHOLE),
    "ReAct with labels": Style(
        one(f"Use this format.\nAction: one of [{TOOLS}]\nAction Input: JSON\n\nQuestion: {QUERY}\nThought:"), WHOLE
    ),
    "hits listed by the program": Style(
        [system("Shop well."), user(QUERY), user(f"Found:\n{LISTED}\nChoose with recommend_product.")], PICK, searched()
    ),
    "a hit's title searched again": Style(
        one(f"{QUERY}\nfind_product returned: {compact([{'product_id': '1', 'title': LONG_TITLE}])}\nGo on."),
        TITLED, searched(result=[{"product_id": "1", "title": LONG_TITLE}]),
    ),
    "slots beside a signature": Style(
        one(f"{SIGNATURES}\nSlots: product type = reading lamp; colour = red; price range = 0-1500; base = metal"),
        CHEAP,
    ),
    "retry after an unknown argument": Style(
        one(f"{QUERY}\nYour last call failed: find_product has no argument 'query'; use 'q'. Try again."),
        LAMP, searched(("find_product", {"query": "red reading lamp"}), {"error": "unknown argument 'query'"}),
    ),
    "shortlist kept by the program": Style(
        one(f"{QUERY}\nShortlist: 4410020078 (1249.0), 4410020031 (899.5). recommend_product ends the task."),
        PICK, searched(),
    ),
}  # fmt: skip
