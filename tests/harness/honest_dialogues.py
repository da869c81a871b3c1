"""Ordinary agents whose model writes every call itself, told as recorded episodes: requests, completions and results.

Nothing here imports the code under test. A model shops in the same way each time; the agents differ in how
they show it the query, the tools and what happened so far. Every call is the model's, whatever the agent shows.
"""

from __future__ import annotations

import html
import json
from collections.abc import Callable, Sequence
from urllib.parse import quote

import msgspec

Message = dict[str, object]
Call = tuple[str, dict[str, object]]

QUERY = (
    "I'm looking for a red reading lamp with a metal base, priced below 1,500 pesos, that offers free shipping. "
    "I'd also like a cotton lamp shade in cream colour."
)
HITS = [
    {"product_id": "4410020078", "shop_id": "700100", "title": "Adjustable Clip Reading Lamp, Metal Base (Red)",
     "price": 1249.0, "service": ["freeShipping", "COD"], "sold_count": 312},
    {"product_id": "4410020031", "shop_id": "700200", "title": "Men's Bedside Café Lamp “Lumière” 40W",
     "price": 899.5, "service": ["official"], "sold_count": 48},
]  # fmt: skip
SHADES = [
    {"product_id": "4410031155", "shop_id": "700100", "title": "Cream Cotton Drum Lamp Shade 30cm", "price": 420.0,
     "service": ["freeShipping"], "sold_count": 77},
]  # fmt: skip
DETAILS = [
    {"product_id": "4410020078", "short_description": "Clip lamp for desk and bed", "description": None,
     "sku_options": {"1": {"Color Family": "Red", "Material": "Metal"}}, "attributes": {"Wattage": ["40W"]}},
]  # fmt: skip
MATCH = {
    "matched": True, "matches": ["Color Family", "Material"], "mismatches": [], "sku_option": "1",
    "product_summary": {"product_id": "4410020078", "attributes": {"Wattage": ["40W"]}},
}  # fmt: skip
VOUCHER = {"prices": [1249.0, 420.0], "total_before": 1669.0, "total_after": 1569.0, "within_budget": True}


class Step(msgspec.Struct, frozen=True):
    """One turn of the model: its thought, its calls, and what each returned."""

    thought: str
    calls: tuple[Call, ...]
    results: tuple[object, ...]


STEPS = (
    Step(
        "The user wants a red reading lamp with a metal base. I start with few words and a price limit.",
        (("find_product", {"q": "red reading lamp", "price": "-1500", "service": "freeShipping"}),),
        (HITS,),
    ),
    Step(
        "Too few. A gooseneck table light is the same kind of thing, so I widen the search, and look at page 2 too.",
        (
            ("find_product", {"q": "gooseneck table light", "page": 1}),
            ("find_product", {"q": "gooseneck table light", "page": 2}),
        ),
        ([], []),
    ),
    Step(
        "Nothing there. Product 4410020078 costs 1249.0 with freeShipping and a metal base; I view and check it.",
        (
            ("view_product_information", {"product_ids": "4410020078,4410020031"}),
            ("check_product_match",
             {"product_id": "4410020078", "requirements": '{"Color Family": "Red", "Material": "Metal"}'}),
        ),
        (DETAILS, MATCH),
    ),
    Step(
        "It matches. Now the shade, in the same shop if possible.",
        (("find_product", {"q": "cream cotton lamp shade", "shop_id": "700100", "sort": "priceasc"}),),
        (SHADES,),
    ),
    Step(
        "1249 + 420 = 1669. I check what a fixed voucher of 100 would make of it.",
        (("calculate_voucher", {"product_prices": "1249,420", "voucher_type": "fixed", "discount_value": 100,
                                "threshold": 1000, "budget": 1600, "cap": 0}),),
        (VOUCHER,),
    ),
    Step(
        "1569 in all. I prefer 4410020078 over 4410020031 since the latter has no free shipping. I recommend both.",
        (("recommend_product", {"product_ids": "4410020078,4410031155"}), ("terminate", {"status": "success"})),
        ("Having recommended the products to the user: 4410020078,4410031155.", "The dialogue has ended."),
    ),
)  # fmt: skip

Show = Callable[[Sequence[Step]], list[Message]]  # the request after some steps

PROMPT = """You are a shopping assistant on a marketplace with prices in PHP. Find the products the user asks for.
- find_product searches (10 hits a page). Use few, specific words; filter with price "low-high" ("300-", "-500") and
  service (official = LazMall, freeShipping, COD, flashsale = LazFlash). view_product_information shows options and
  attributes, check_product_match compares one product with required attributes.
- Every constraint counts: product type, price, services, size, colour, material, brand and every other attribute.
- At the end call recommend_product once, with the ids joined by commas, then call terminate."""
FEW_SHOT = """Example.
User: I need running shoes for men, size 42, at most 2000 pesos.
Action: find_product
Action Input: {"q": "running shoes men", "price": "0-2000", "page": 1}
Observation: [{"product_id": "1234567890", "title": "Trail Runner Men 42", "price": 1790.0}]
Action: recommend_product
Action Input: {"product_ids": "1234567890"}
Action: terminate
Action Input: {"status": "success"}"""
ACTION_BLOCK = """Write exactly one action in a fenced block, for example:
```action
{"name": "find_product", "arguments": {"q": "usb c charging cable", "page": 1, "sort": "order"}}
```
When you are done, write ```action
{"name": "terminate", "arguments": {"status": "success"}}
```"""


def system(text: str) -> Message:
    return {"role": "system", "content": text}


def user(text: str) -> Message:
    return {"role": "user", "content": text}


def compact(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def written(step: Step) -> str:
    """The step as a model writes it in text."""
    calls = [{"name": name, "parameters": arguments} for name, arguments in step.calls]
    return f"<think>{step.thought}</think>\n<tool_call>{json.dumps(calls)}</tool_call>"


def native(steps: Sequence[Step]) -> list[Message]:
    """Every step as an assistant message with native calls, and tool messages."""
    messages: list[Message] = []
    for number, step in enumerate(steps):
        calls = [
            {"id": f"call_{number}_{n}", "type": "function", "function": {"name": name, "arguments": json.dumps(given)}}
            for n, (name, given) in enumerate(step.calls)
        ]
        messages.append({"role": "assistant", "content": step.thought, "tool_calls": calls})
        messages += [
            {"role": "tool", "tool_call_id": f"call_{number}_{n}", "content": compact(result)}
            for n, result in enumerate(step.results)
        ]
    return messages


def turns(shown: Callable[[object], str]) -> Show:
    """The model's words as assistant messages, results as user messages in the given form."""

    def show(steps: Sequence[Step]) -> list[Message]:
        messages = [system(f"{PROMPT}\n\n{ACTION_BLOCK}"), user(QUERY)]
        for step in steps:
            messages.append({"role": "assistant", "content": written(step)})
            messages.append(user("\n".join(f"<observation>{shown(result)}</observation>" for result in step.results)))
        return messages

    return show


def one_message(head: str, shown: Callable[[Step], str], query: str = QUERY) -> Show:
    """The whole dialogue in one growing message."""

    def show(steps: Sequence[Step]) -> list[Message]:
        return [system(head), user("\n\n".join([f"Question: {query}", *map(shown, steps), "What next?"]))]

    return show


def react(step: Step) -> str:
    lines = [f"Thought: {step.thought}"]
    for (name, given), result in zip(step.calls, step.results, strict=True):
        lines += [f"Action: {name}", f"Action Input: {json.dumps(given, indent=2)}"]
        lines.append(f"Observation: {json.dumps(result, indent=2)}")
    return "\n".join(lines)


def sn15(step: Step) -> str:
    calls = [{"name": name, "parameters": given} for name, given in step.calls]
    observed = [{"tool_call_id": "call_1", "results": result} for result in step.results]
    said = f"<think>{step.thought}</think>\n\n<tool_call>{json.dumps(calls)}</tool_call>"
    return f"{said}\n\n<obs>{json.dumps(observed)}</obs>"


def told(step: Step) -> str:
    """A program's own account of a step."""
    lines = []
    for (name, given), result in zip(step.calls, step.results, strict=True):
        inner = ", ".join(f"{key}={value}" for key, value in given.items())
        found = len(result) if isinstance(result, list) else result
        lines.append(f"You called {name}({inner}) and got {found}.")
        if isinstance(result, list):
            lines += [f"  {n}. {hit.get('title')} | {hit.get('price')} PHP | id {hit['product_id']}"
                      for n, hit in enumerate(result, 1)]  # fmt: skip
    return "\n".join(lines)


DIALOGUES: dict[str, Show] = {
    "native calls": lambda steps: [system(PROMPT), user(QUERY), *native(steps)],
    "native calls, few-shot": lambda steps: [system(f"{PROMPT}\n{FEW_SHOT}"), user(QUERY), *native(steps)],
    "native calls, trimmed": lambda steps: [system(PROMPT), user(QUERY), *native(steps[-2:])],
    "native calls, with reminders": lambda steps: [
        system(PROMPT), user(QUERY), *native(steps), user(f"Step {len(steps)} of 20. Compare prices, then go on.")
    ],
    "turns, results as they came": turns(compact),
    "turns, results as Python": turns(repr),
    "turns, results in HTML": turns(lambda result: html.escape(compact(result))),
    "turns, results URL-encoded": turns(lambda result: quote(compact(result))),
    "turns, results cut": turns(lambda result: compact(result)[:120] + " ...(truncated)"),
    "ReAct": one_message(f"{PROMPT}\n\n{FEW_SHOT}", react),
    "SN15": one_message(f"{PROMPT}\n<tool_call>[{{\"name\": \"tool name\", \"parameters\": {{}}}}]</tool_call>", sn15),
    "told by the program": one_message(PROMPT, told),
    "quoted as it was written": one_message(PROMPT, lambda step: f"> {written(step)}\n{compact(step.results)}"),
    "own words quoted": lambda steps: [
        system(PROMPT), user(QUERY), *native(steps),
        user("So far you said: " + " ".join(step.thought for step in steps)),
    ],
}  # fmt: skip
