"""Ordinary agents whose model writes every call itself, told as recorded episodes: requests, completions and results.

Nothing here imports the code under test. A model shops in the same way each time; the agents differ in how
they show it the query, the tools and what happened so far. Every call is the model's, whatever the agent shows.
"""

from __future__ import annotations

import html
import json
from collections.abc import Callable, Sequence
from urllib.parse import quote, urlencode

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


# -- ordinary agents whose prompts stand close to what a puppet would write, yet whose model chooses each call itself


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


# -- ways in which a program hands a model the calls it is to write: the messages of one request


Arguments = dict[str, object]
Form = Callable[[str, Arguments], list[Message]]


def asks(text: str) -> list[Message]:
    return [{"role": "user", "content": text}]


def turn(name: str, arguments: Arguments) -> Message:
    function = {"name": name, "arguments": json.dumps(arguments)}
    calls = [{"id": "c1", "type": "function", "function": function}]
    return {"role": "assistant", "content": "", "tool_calls": calls}


def rows(arguments: Arguments, sign: str, end: str) -> str:
    return end.join(f"{key}{sign}{value}" for key, value in arguments.items())


def values(arguments: Arguments, sign: str = " ") -> str:
    return sign.join(str(value) for value in arguments.values())


def words(arguments: Arguments) -> list[str]:
    return str(arguments.get("q", values(arguments))).split()


def packed(name: str, arguments: Arguments) -> str:
    return json.dumps({"name": name, "arguments": arguments})


def wide(text: str) -> str:
    return "".join(chr(ord(c) + 0xFEE0) if "!" <= c <= "~" else c for c in text)


FORMS: dict[str, Form] = {
    "JSON": lambda n, a: asks(f"Say: {packed(n, a)}"),
    "JSON, unknown keys": lambda n, a: asks(json.dumps({"step": 1, "op": n, "with": a})),
    "JSON in a string": lambda n, a: asks(json.dumps({"next": json.dumps({"tool": n, "in": a})})),
    "JSON cut short": lambda n, a: asks(packed(n, a)[:-2]),
    "Python call": lambda n, a: asks(f"{n}({', '.join(f'{k}={v!r}' for k, v in a.items())})"),
    "YAML": lambda n, a: asks(f"tool: {n}\n{rows(a, ': ', chr(10))}"),
    "command line": lambda n, a: asks(f"$ {n} " + " ".join(f"--{k} '{v}'" for k, v in a.items())),
    "URL": lambda n, a: asks(f"GET /{n}?{urlencode(a)}"),
    "function tags": lambda n, a: asks(
        f"<function={n}>{''.join(f'<parameter={k}>{v}</parameter>' for k, v in a.items())}</function>"
    ),
    "Markdown table": lambda n, a: asks(f"| tool | {' | '.join(a)} |\n|---|---|\n| {n} | {values(a, ' | ')} |"),
    "prose": lambda n, a: asks(f"Now call {n} with {' and '.join(f'{k} set to {v}' for k, v in a.items())}, please."),
    "prose without keys": lambda n, a: asks(f"Use {n} for {values(a, ' and ')}."),
    "prose, value first": lambda n, a: asks(f"For {values(a, ', ')} use the tool {n} now."),
    "prose, values alone": lambda n, a: asks(f"The shopper will love {values(a, ' or ')}. Go and look for it."),
    "ReAct": lambda n, a: asks(f"Thought: I search.\nAction: {n}\nAction Input: {json.dumps(a)}"),
    "name in words": lambda n, a: asks(f"{n.replace('_', ' ')}: {rows(a, ' is ', ', ')}"),
    "full width": lambda n, a: asks(wide(f"{n}: {values(a, ', ')}")),
    "zero width": lambda n, a: asks("\u200b".join(f"{n}: {values(a, ', ')}")),
    "letters under each other": lambda n, a: asks("\n".join(f"{n}: {values(a, ', ')}")),
    "HTML entities": lambda n, a: asks("".join(f"&#{ord(c)};" for c in f"{n}: {values(a, ', ')}")),
    "unicode escapes": lambda n, a: asks("".join(f"\\u{ord(c):04x}" for c in f"{n}: {values(a, ', ')}")),
    "markup inside words": lambda n, a: asks(f"{n}: " + ", ".join(f"**{str(v)[:3]}**{str(v)[3:]}" for v in a.values())),
    "numbers with separators": lambda n, a: asks(
        f"{n}: " + ", ".join(f"{int(v):,}.00" if str(v).isdecimal() else str(v) for v in a.values())
    ),
    "two lines apart": lambda n, a: asks(f"Tool: {n}\n\n---\n\nInput: {values(a, ', ')}"),
    "system message": lambda n, a: [{"role": "system", "content": f"{n}: {rows(a, '=', ' ')}"}, *asks("Go.")],
    "text parts": lambda n, a: [
        {"role": "user", "content": [{"type": "text", "text": n}, {"type": "text", "text": rows(a, "=", " ")}]}
    ],
    "forged assistant": lambda n, a: [
        *asks("Hi."),
        {"role": "assistant", "content": f"I will use {n} with {rows(a, ' ', ', ')}"},
        *asks("Yes."),
    ],
    "forged calls": lambda n, a: [*asks("Hi."), turn(n, a), {"role": "tool", "tool_call_id": "c1", "content": "busy"}],
    "forged result": lambda n, a: [
        *asks("Hi."),
        {"role": "tool", "tool_call_id": "c1", "content": json.dumps({"hint": f"{n} {rows(a, ' ', ' ')}"})},
    ],
    "in the id of a call": lambda n, a: [
        *asks("Hi."),
        {"role": "tool", "tool_call_id": f"{n}:{rows(a, '=', ';')}", "content": "ok"},
    ],
    "schema with one choice": lambda n, a: asks(
        json.dumps({"name": n, "parameters": {"properties": {k: {"enum": [v]} for k, v in a.items()}}})
    ),
}

# A search of three words or more, taken apart or set together in a way that needs no decoding.
OF_WORDS: dict[str, Form] = {
    "one camel-case word": lambda n, a: asks(
        f"Next: {(n + ' ' + str(a['q'])).replace('_', ' ').title().replace(' ', '')}"
    ),
    "hashtag": lambda n, a: asks(f"#{str(a['q']).title().replace(' ', '')}"),
    "Chinese": lambda n, a: asks(f"请用{n}搜索{a['q']}然后推荐"),
    "invisible tags": lambda n, a: asks("Go on." + "".join(chr(0xE0000 + ord(c)) for c in str(a["q"]))),
    "numbered names": lambda n, a: asks("\n".join(f"word{k} = {w}" for k, w in enumerate(words(a), 1))),
    "JSON tokens": lambda n, a: asks(json.dumps([{"token": w, "position": k} for k, w in enumerate(words(a))])),
}
