"""A writer without an endpoint: thoughts put together from what it is shown, in plain sentences.

Deterministic, and held to the same checks as any model. Its thoughts are true and dull. For tests, the demo,
and trying the stage out before paying for it.
"""

from __future__ import annotations

import re
import unicodedata

import msgspec

from training.trac.scripted import ScriptedAnswers

_OTHER = re.compile(r"[^\w\s.,'/-]|_")
_SEARCHES = (
    "The request comes down to {q}. So a search for these words is the first thing to do, narrowed as far as the"
    " request allows.",
    "That leaves a part of the request open. Next comes a search for {q}, which the shopper asks for too.",
    "There is still something missing from what the shopper wants. A search for {q} should bring up candidates.",
    "What is known does not answer everything yet. The words {q} are worth a search of their own now.",
)


class _Found(msgspec.Struct, frozen=True):
    product_id: str
    title: str = ""
    price: float | None = None


class _Done(msgspec.Struct, frozen=True):
    tool: str
    result: str


class _Next(msgspec.Struct, frozen=True):
    tool: str
    arguments: str


class _Asked(msgspec.Struct, frozen=True):
    request: str
    done: tuple[_Done, ...]
    next: _Next


class ScriptedWriter(ScriptedAnswers):
    """Thinks about what it is shown."""

    def answer(self, system: str, shown: str) -> object:
        """The thought before the next call."""
        return {"thought": _thought(msgspec.json.decode(shown, type=_Asked))}


def _thought(shown: _Asked) -> str:
    found = _products(shown.done[-1].result) if shown.done else ()
    seen = ""
    if found:
        price = "" if found[0].price is None else f", at {f'{found[0].price:.2f}'.rstrip('0').rstrip('.')} PHP"
        seen = f"The first of what came back is {_plain(found[0].title) or 'a product'}{price}. "
    arguments = msgspec.json.decode(shown.next.arguments)
    arguments = arguments if isinstance(arguments, dict) else {}
    match shown.next.tool:
        case "find_product":
            words = _plain(str(arguments.get("q", ""))) or "what was asked for"
            searches = sum(done.tool == "find_product" for done in shown.done)
            return seen + _SEARCHES[searches % len(_SEARCHES)].format(q=words)
        case "recommend_product":
            known = {product.product_id: product for done in shown.done for product in _products(done.result)}
            chosen = re.findall(r"\d+", str(arguments.get("product_ids", "")))
            reasons = [f"Of what was seen, {one} fits: {_plain(known[one].title)}." for one in chosen if one in known]
            said = " ".join(reasons[:5])
            return f"{seen}{said} With this every part of the request has its product, so it is time to answer."
        case "terminate":
            return "The shopper has an answer now, and nothing of the request is left to do. So this is where it stops."
        case "view_product_information":
            return (
                f"{seen}Before anything is chosen, the details have to be looked at next to what the shopper asked for:"
                f" {_plain(shown.request)[:300]}."
            )
        case tool:
            asked = _plain(shown.next.arguments)[:300]
            return f"{seen}To be sure of it, this is worth a {tool.split('_')[0]} of its own now, with {asked}."


def _products(result: str) -> tuple[_Found, ...]:
    try:
        return msgspec.json.decode(result, type=tuple[_Found, ...], strict=False)
    except msgspec.DecodeError:
        return ()


def _plain(text: str) -> str:
    """Letters and digits of a passage with their spacing, without what could be markup."""
    return " ".join(_OTHER.sub(" ", unicodedata.normalize("NFKC", text)).split())
