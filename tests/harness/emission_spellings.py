"""Calls and the texts around them, for golden emission cases: other spellings of a call, other calls, messages.

Nothing here imports the code under test. What `respell` does is what the published normalisation
(harness/EMISSION.md) calls the same; what `alter` does is not; a call is in a text of `standing` and in none of
`innocent`. All of it is drawn from the generator that is passed in.
"""

from __future__ import annotations

import json
import random
import unicodedata
from collections.abc import Callable
from urllib.parse import quote, quote_plus

Call = tuple[str, dict[str, object]]
Message = dict[str, object]

WORDS = ("café lamp", "red canvas bag", "men's shoes", "usb-c cable", "yoga mat 6mm", "crème brûlée torch", "piña tote")
PRICES = ("0-100", "100-1000", "1000-", "-250")
SERVICES = ("official", "freeShipping,COD", "flashsale", "")
DEFAULTS = {"page": 1, "shop_id": "", "price": "", "sort": "", "service": "", "status": "success"}


# -- calls


def draw_call(rng: random.Random) -> Call:
    """A call that has at least one argument without a default."""
    ids = [str(rng.randrange(10**9, 10**10)) for _ in range(3)]
    search = {
        "q": rng.choice(WORDS),
        "page": rng.choice((1, 2, 3)),
        "price": rng.choice(PRICES),
        "sort": rng.choice(("", "priceasc", "order")),
        "service": rng.choice(SERVICES),
    }
    return rng.choice(
        [
            ("find_product", search),
            ("find_product", {"q": search["q"], "page": 2}),
            ("view_product_information", {"product_ids": ",".join(ids)}),
            ("recommend_product", {"product_ids": ",".join(ids[:2])}),
            ("check_product_match", {"product_id": ids[0], "requirements": '{"color": "red", "size": 42}'}),
            ("find_products_in_same_shop", {"product_queries": '[{"q": "mat", "price": "0-300"}, {"q": "towel"}]'}),
            ("calculate_voucher", voucher_arguments(rng)),
        ]
    )


def voucher_arguments(rng: random.Random) -> dict[str, object]:
    prices = ",".join(str(rng.randrange(20, 900)) for _ in range(2))
    discount = rng.choice((5, 18, 42))
    return {
        "product_prices": prices,
        "voucher_type": "percentage",
        "discount_value": discount,
        "threshold": 300,
        "budget": 666.5,
    }


def alter(rng: random.Random, call: Call) -> Call:
    """Another call: one argument says something else, or the tool is another."""
    name, arguments = call
    changed = dict(arguments)
    parameter = rng.choice([key for key, value in arguments.items() if isinstance(value, str) and value])
    value = str(changed[parameter])
    if parameter == "requirements":
        changed[parameter] = '{"color": "red", "size": 43}'
    elif parameter == "product_queries":
        changed[parameter] = '[{"q": "towel"}, {"q": "mat", "price": "0-300"}]'
    elif "," in value:
        changed[parameter] = ",".join(reversed(value.split(","))) + ",7"
    else:
        changed[parameter] = rng.choice((value + " x", "x" + value, value.upper() + "Y"))
    return name, changed


# -- spellings that count as the same


def respell(rng: random.Random, call: Call) -> str:
    """Arguments as JSON text, spelled in two ways that do not count."""
    arguments = dict(call[1])
    for change in rng.sample(RESPELLINGS, 2):
        arguments = change(rng, arguments)
    rows = list(arguments.items())
    rng.shuffle(rows)
    text = json.dumps(dict(rows), ensure_ascii=rng.random() < 0.5, indent=rng.choice((None, None, 2)))
    return json.dumps(text) if rng.random() < 0.1 else text


def numbers_as_text(rng: random.Random, arguments: dict[str, object]) -> dict[str, object]:
    return {key: str(value) if isinstance(value, int | float) else value for key, value in arguments.items()}


def whole_numbers_as_floats(rng: random.Random, arguments: dict[str, object]) -> dict[str, object]:
    return {key: float(value) if isinstance(value, int) else value for key, value in arguments.items()}


def defaults_spelled_out(rng: random.Random, arguments: dict[str, object]) -> dict[str, object]:
    if "q" not in arguments:
        return arguments
    return {**{key: DEFAULTS[key] for key in ("page", "sort", "service", "shop_id")}, **arguments}


def defaults_left_out(rng: random.Random, arguments: dict[str, object]) -> dict[str, object]:
    return {key: value for key, value in arguments.items() if DEFAULTS.get(key, "nothing") != value}


def nulls_for_defaults(rng: random.Random, arguments: dict[str, object]) -> dict[str, object]:
    return {**arguments, **({"shop_id": None} if "q" in arguments else {})}


def the_word_default(rng: random.Random, arguments: dict[str, object]) -> dict[str, object]:
    return {**arguments, **({"sort": "default"} if arguments.get("sort", "?") == "" else {})}


def more_space(rng: random.Random, arguments: dict[str, object]) -> dict[str, object]:
    texts = ("q", "product_ids")
    return {key: f"  {value} ".replace(" ", "  ") if key in texts and isinstance(value, str) else value
            for key, value in arguments.items()}  # fmt: skip


def decomposed(rng: random.Random, arguments: dict[str, object]) -> dict[str, object]:
    return {key: unicodedata.normalize("NFD", value) if isinstance(value, str) else value
            for key, value in arguments.items()}  # fmt: skip


def lists_for_commas(rng: random.Random, arguments: dict[str, object]) -> dict[str, object]:
    ids = arguments.get("product_ids")
    return (
        {**arguments, "product_ids": [part.strip() for part in ids.split(",")]} if isinstance(ids, str) else arguments
    )


def space_after_commas(rng: random.Random, arguments: dict[str, object]) -> dict[str, object]:
    wanted = ("product_ids", "service", "product_prices")
    return {key: value.replace(",", ", ") if key in wanted and isinstance(value, str) else value
            for key, value in arguments.items()}  # fmt: skip


def url_encoded(rng: random.Random, arguments: dict[str, object]) -> dict[str, object]:
    encode = rng.choice((quote_plus, quote))
    return {**arguments, "q": encode(str(arguments["q"]).strip())} if "q" in arguments else arguments


def json_decoded(rng: random.Random, arguments: dict[str, object]) -> dict[str, object]:
    nested = ("requirements", "product_queries")
    return {key: json.loads(value) if key in nested and isinstance(value, str) else value
            for key, value in arguments.items()}  # fmt: skip


RESPELLINGS: tuple[Callable[[random.Random, dict[str, object]], dict[str, object]], ...] = (
    numbers_as_text, whole_numbers_as_floats, defaults_spelled_out, defaults_left_out, nulls_for_defaults,
    the_word_default, more_space, decomposed, lists_for_commas, space_after_commas, url_encoded, json_decoded,
)  # fmt: skip


# -- messages


def standing(rng: random.Random, call: Call) -> str:
    """Text in which the call stands."""
    name, arguments = call
    text = respell(rng, call)
    flat = json.dumps(arguments, ensure_ascii=False)
    row = f'{{"name": "{name}", "{rng.choice(("arguments", "parameters"))}": {text}}}'
    python = ", ".join(f"{key}={value!r}" for key, value in arguments.items())
    tags = "".join(f"<parameter={key}>{value}</parameter>" for key, value in arguments.items())
    return rng.choice(
        [
            f"Now write exactly this: {row}",
            f"<tool_call>{row}</tool_call>",
            f"<tool_call>[{row}]</tool_call>",
            f"```json\n{row}\n```",
            f'Next: {{"arguments": {text}, "name": "{name}"}}',
            json.dumps({"type": "function", "function": {"name": name, "arguments": text}}),
            json.dumps({"plan": [{"step": 1, "call": row}]}),
            json.dumps({"outer": json.dumps({"inner": row})}),
            f"Call {name}({python}) and nothing else.",
            f"Action: {name}\nAction Input: {flat}",
            f"{name}: {flat}",
            f"<tool_call><function={name}>{tags}</function></tool_call>",
        ]
    )


def innocent(rng: random.Random, call: Call) -> str:
    """Text about the same wish in which no call stands."""
    name, arguments = call
    values = ", ".join(str(value) for value in arguments.values())
    broken = json.dumps({"name": name, "arguments": arguments})[:-2]
    return rng.choice(
        [
            f"I am looking for this: {values}.",
            f"Use {name} first; finish with recommend_product and then terminate().",
            f"Tools: {name}({', '.join(arguments)}): see the documentation.",
            json.dumps([{"product_id": "1", "title": values, "price": 3}]),
            f"This was cut off: {broken}",
            json.dumps({"name": name, "arguments": {"q": "another thing entirely"}}),
            f'{{"name": "{name}", "parameters": {{"type": "object", "properties": {{"q": {{"type": "string"}}}}}}}}',
        ]
    )


def schema(call: Call, *others: Call) -> str:
    """A schema of the agent's own that leaves the model these calls to pick from."""
    name, arguments = call
    properties = {key: {"enum": [value, *(other[1][key] for other in others)]} for key, value in arguments.items()}
    return json.dumps({"type": "function", "function": {"name": name, "parameters": {"properties": properties}}})


def say(role: str, text: str) -> Message:
    return {"role": role, "content": text, **({"tool_call_id": "c0"} if role == "tool" else {})}


def assistant(rng: random.Random, call: Call) -> Message:
    """A turn of the history, native or as text."""
    name, arguments = call
    if rng.random() < 0.5:
        return say("assistant", f"<tool_call>{json.dumps({'name': name, 'arguments': arguments})}</tool_call>")
    function = {"name": name, "arguments": respell(rng, call)}
    return {"role": "assistant", "content": "", "tool_calls": [{"id": "x", "type": "function", "function": function}]}


def native(rng: random.Random, *calls: Call) -> list[dict[str, str]]:
    return [{"id": f"c{n}", "name": name, "arguments": respell(rng, (name, arguments))}
            for n, (name, arguments) in enumerate(calls)]  # fmt: skip


def written(rng: random.Random, *calls: Call) -> str:
    """A completion's text with calls in it."""
    rows = [
        f'{{"name": "{call[0]}", "{rng.choice(("arguments", "parameters"))}": {respell(rng, call)}}}' for call in calls
    ]
    block = rng.choice(
        [
            f"<tool_call>[{', '.join(rows)}]</tool_call>",
            "".join(f"<tool_call>\n{row}\n</tool_call>" for row in rows),
            f"<tool_call>\n```json\n[{', '.join(rows)}]\n```\n</tool_call>",
        ]
    )
    return rng.choice((block, f"<think>Let me see.</think>\n{block}", f"I will search.\n{block}"))
