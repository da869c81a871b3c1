"""The oracle's and the rewriter's models without an endpoint: annotators, an author, scripted shoppers, a writer.

Deterministic, and honest in form: every citation and figure is copied from what is shown, so the same checks run as
with a real model. Nothing they decide says anything about quality: the supervisor accepts a run that searches, the
writer's thoughts are true and dull. For tests, the demo, and trying the stages out before paying for them.
"""

from __future__ import annotations

import re
import unicodedata

import msgspec

from harness.inference.port import ModelReply
from harness.inference.scripted.model import MODELS, ScriptedUpstream
from judge.citations import QUOTE_LENGTH_MIN
from training.corpus.gates import json_fields

_SPAN = re.compile(r"^\[\[span (\d+) \| (\w+)(.*)\]\]\n((?:\| .*\n?)*)", re.MULTILINE)
_KINDS = re.compile(r"of kind: ([a-z or]+)\.")
_QUOTE_CHARS = 200
_SEARCH = "find_product"
_OTHER = re.compile(r"[^\w\s.,'/-]|_")
_SEARCHES = (
    "The request comes down to {q}. So a search for these words is the first thing to do, narrowed as far as the"
    " request allows.",
    "That leaves a part of the request open. Next comes a search for {q}, which the shopper asks for too.",
    "There is still something missing from what the shopper wants. A search for {q} should bring up candidates.",
    "What is known does not answer everything yet. The words {q} are worth a search of their own now.",
)


class ScriptedModels(ScriptedUpstream):
    """Plays every role: whom it answers as follows from what it is asked. Thread-safe: it has no state."""

    def complete(self, request: str) -> ModelReply:
        """The reply to a request."""
        fields = msgspec.json.decode(request)
        if fields["model"] in MODELS:  # a shopper
            return super().complete(request)
        system, shown = (message["content"] for message in fields["messages"][:2])
        if "You annotate" in system:
            answer = _annotation(system, _spans(shown))
        elif "You turn" in system:
            answer = _tasklet(_spans(shown))
        else:
            answer = {"thought": _thought(msgspec.json.decode(shown))}
        text = msgspec.json.encode(answer).decode()
        return ModelReply(
            model=fields["model"],
            content=text,
            prompt_tokens=sum(len(message["content"]) for message in fields["messages"]) // 4,
            completion_tokens=len(text) // 4,
            message=msgspec.json.encode({"role": "assistant", "content": text}).decode(),
        )


def _spans(shown: str) -> list[tuple[int, str, str]]:
    """(number, kind with the rest of the header, content) of each span."""
    return [
        (int(number), kind + header, "\n".join(line[2:] for line in lines.splitlines()))
        for number, kind, header, lines in _SPAN.findall(shown)
    ]


def _searches(spans: list[tuple[int, str, str]]) -> list[dict[str, object]]:
    """The arguments of each search."""
    return [json_fields(content) for _, header, content in spans if header.startswith("call") and _SEARCH in header]


def _annotation(system: str, spans: list[tuple[int, str, str]]) -> dict[str, object]:
    asked = _KINDS.search(system)
    kinds = tuple(asked[1].split(" or ")) if asked else ()
    quotes = [
        (number, line[:_QUOTE_CHARS].strip())
        for number, header, content in spans
        if header.startswith(kinds)
        for line in content.split("\n")
        if len(" ".join(line[:_QUOTE_CHARS].split())) >= QUOTE_LENGTH_MIN
    ]
    number, quote = quotes[-1] if quotes else (1, spans[0][2][:_QUOTE_CHARS])
    searches = len(_searches(spans))
    reply: dict[str, object] = {
        "score": min(1.0, 0.4 + 0.2 * searches),
        "citations": [{"span": number, "quote": quote}],
        "explanation": f"{searches} searches; the passage cited is where it is decided.",
    }
    return reply | ({"train_use_decision": searches > 0} if '"train_use_decision"' in system else {})


def _tasklet(spans: list[tuple[int, str, str]]) -> dict[str, object]:
    """The request itself, with the searches that were made added where it lacks their words."""
    query = spans[0][2]
    terms = [str(arguments["q"]) for arguments in _searches(spans) if arguments.get("q")]
    known = set(re.findall(r"\w+", query.casefold()))
    added = [term for term in terms if not set(re.findall(r"\w+", term.casefold())) <= known]
    prompt = f"{query} Words that describe it: {'; '.join(added)}" if added else query
    return {"prompt": prompt, "search_terms": terms or [query]}


def _thought(shown: dict[str, object]) -> str:
    """What may be thought before the next call, put together from what is known."""
    done: list[dict[str, str]] = msgspec.convert(shown["done"], list[dict[str, str]])
    call: dict[str, str] = msgspec.convert(shown["next"], dict[str, str])
    titles = [_titles(step["result"]) for step in done]
    last = next(iter(titles[-1].values()), "") if titles else ""
    seen = f"The first of what came back is {last}. " if last else ""
    arguments = json_fields(call["arguments"])
    match call["tool"]:
        case "find_product":
            words = _plain(str(arguments.get("q", ""))) or "what was asked for"
            searches = sum(step["tool"] == _SEARCH for step in done)
            return seen + _SEARCHES[searches % len(_SEARCHES)].format(q=words)
        case "recommend_product":
            known = {product: title for found in titles for product, title in found.items()}
            chosen = [one for one in re.findall(r"\d+", str(arguments.get("product_ids", ""))) if one in known]
            said = " ".join(f"Of what was seen, {one} fits: {known[one]}." for one in chosen[:5])
            return f"{seen}{said} With this every part of the request has its product, so it is time to answer."
        case "terminate":
            return "The shopper has an answer now, and nothing of the request is left to do. So this is where it stops."
        case _:
            return (
                f"{seen}Before anything is chosen, the details have to be looked at next to what the shopper asked for:"
                f" {_plain(str(shown['request']))[:300]}."
            )


def _titles(result: str) -> dict[str, str]:
    """Titles of the products in a result by id, in plain words."""
    try:
        rows = msgspec.json.decode(result, type=list[dict[str, object]])
    except msgspec.DecodeError:
        return {}
    return {str(row.get("product_id")): _plain(str(row.get("title", ""))) or "a product" for row in rows}


def _plain(text: str) -> str:
    """Letters and digits of a passage with their spacing, without what could be markup."""
    return " ".join(_OTHER.sub(" ", unicodedata.normalize("NFKC", text)).split())
