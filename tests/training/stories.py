"""Shopping conversations by construction: seeded, canonical, with every fact known. What is wrong with a changed one is
`tests.training.labelled`'s business."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence

import msgspec

from harness.chat import Call, Message
from harness.tools.registry import profile_schemas
from harness.trace import Emitter
from training.corpus.model import SourceKind, Trace, TraceFacts, TraceSource, assemble_trace

TOOLS = profile_schemas("sn15")
_ONSETS = [*"bcdfghjklmnprstvwz", "br", "cr", "dr", "st", "tr", "pl"]
_VOWELS = [*"aeiou", "ai", "ou"]


class Turn(msgspec.Struct, frozen=True, kw_only=True):
    """One assistant turn and what its calls were answered: (name, arguments, result, emitter) each."""

    reasoning: str = ""
    content: str = ""
    calls: tuple[tuple[str, str, str, Emitter | None], ...] = ()


class Goods(msgspec.Struct, frozen=True, kw_only=True):
    """What a problem is about."""

    problem_id: str
    words: tuple[str, ...]  # content words of the query
    price: int
    ids: tuple[str, ...]  # what the searches show; the first is the answer


def make_word(rng: random.Random) -> str:
    """A word no other problem is likely to have."""
    return "".join(rng.choice(_ONSETS) + rng.choice(_VOWELS) for _ in range(rng.randint(2, 4)))


def make_goods(rng: random.Random, number: int) -> Goods:
    """A problem of its own."""
    return Goods(
        problem_id=f"p{number:05d}",
        words=tuple(make_word(rng) for _ in range(6)),
        price=rng.randint(30, 900),
        ids=tuple(str(rng.randint(10**8, 10**10)) for _ in range(8)),
    )


def query_text(goods: Goods) -> str:
    """The user's words."""
    return f"I am looking for a {' '.join(goods.words)} that costs less than {goods.price} PHP."


def hits_json(rng: random.Random, goods: Goods, result_bytes: int = 0) -> str:
    """A search page of the problem's products; `result_bytes`: make it about that long."""
    hits = [
        {"product_id": one, "title": " ".join(rng.sample(goods.words, 4)), "price": rng.randint(10, 999)}
        for one in goods.ids
    ]
    text = json.dumps(hits)
    if len(text) < result_bytes:
        filler = " ".join(make_word(rng) for _ in range(200))
        hits[-1]["title"] = (filler * ((result_bytes - len(text)) // len(filler) + 1))[: result_bytes - len(text)]
        text = json.dumps(hits)
    return text


def search(rng: random.Random, goods: Goods, words: Sequence[str], page: int = 1, emitter: Emitter | None = "llm",
           result_bytes: int = 0) -> tuple[str, str, str, Emitter | None]:  # fmt: skip
    """A find_product call with its result."""
    arguments = json.dumps({"q": " ".join(words), "page": page, "price": f"0-{goods.price}"})
    return "find_product", arguments, hits_json(rng, goods, result_bytes), emitter


def call(name: str, arguments: dict[str, object], result: str, emitter: Emitter | None = "llm") -> tuple[
    str, str, str, Emitter | None
]:  # fmt: skip
    """Any other call."""
    return name, json.dumps(arguments), result, emitter


def closing(goods: Goods, emitter: Emitter | None = "llm") -> tuple[tuple[str, str, str, Emitter | None], ...]:
    """recommend_product, then terminate."""
    return (
        call("recommend_product", {"product_ids": goods.ids[0]}, f"Recommended to the user: {goods.ids[0]}", emitter),
        call("terminate", {"status": "success"}, "Done.", emitter),
    )


_OPENERS = (
    "The user wants {a} with {b}, so a search for {q} should show what exists.",
    "Let me begin with {q}; {c} may be the rarer word among them.",
    "First I need candidates: {q} covers {a} and {b}.",
    "Nothing fits yet. {q} is closer to how sellers would write {c}.",
    "The results miss {b}; I will try {q} and watch the price below {p}.",
    "Perhaps {q} brings other shops that name {a} in their titles.",
)
_CHECKS = (
    "Product {i} has {a} and {b} in its title and costs less than {p}; its details decide.",
    "{i} looks right for {c}, but the variant is not clear, so I look at the details.",
)
_ENDS = (
    "{i} fits: {a}, {b} and a price below {p}. I recommend it.",
    "Comparing what I saw, {i} is the one with {b} and {c}; done.",
)


def say(rng: random.Random, forms: Sequence[str], goods: Goods, query: Sequence[str] = ()) -> str:
    """One sentence of an agent's thinking, and some more that no other has."""
    a, b, c = rng.sample(goods.words, 3)
    text = rng.choice(forms).format(a=a, b=b, c=c, p=goods.price, i=goods.ids[0], q=" ".join(query))
    own = " ".join(make_word(rng) for _ in range(rng.randint(6, 14)))
    return f"{text} Note {own}."


def agentic_turns(rng: random.Random, goods: Goods, *, searches: int = 0, is_silent: bool = False,
                  emitter: Emitter | None = "llm", result_bytes: int = 0) -> list[Turn]:  # fmt: skip
    """A model that thinks, searches, looks and recommends."""
    turns = []
    for number in range(searches or rng.randint(2, 5)):
        words = rng.sample(goods.words, rng.randint(2, 4))
        text = "" if is_silent else say(rng, _OPENERS, goods, words)
        found = search(rng, goods, words, 1 + number % 2, emitter, result_bytes)
        turns.append(Turn(reasoning=text, calls=(found,)))
    details = json.dumps({"product_id": goods.ids[0], "attributes": {"brand": goods.words[0]}})
    view = call("view_product_information", {"product_ids": goods.ids[0]}, details, emitter)
    turns.append(Turn(reasoning="" if is_silent else say(rng, _CHECKS, goods), calls=(view,)))
    last = closing(goods, emitter)
    turns.append(Turn(reasoning="" if is_silent else say(rng, _ENDS, goods), calls=last[:1]))
    turns.append(Turn(calls=last[1:]))
    return turns


def messages_of(goods: Goods, turns: Sequence[Turn], call_prefix: str = "call") -> tuple[Message, ...]:
    """System prompt, query, and the turns with their results."""
    messages = [
        Message(role="system", content="You are a shopping assistant. Use the tools."),
        Message(role="user", content=query_text(goods)),
    ]
    number = 0
    for turn in turns:
        calls = []
        for name, arguments, _, emitter in turn.calls:
            number += 1
            calls.append(Call(id=f"{call_prefix}-{number}", name=name, arguments=arguments, emitter=emitter))
        messages.append(Message(role="assistant", content=turn.content, reasoning=turn.reasoning, calls=tuple(calls)))
        messages += [
            Message(role="tool", content=result, call_id=one.id)
            for one, (_, _, result, _) in zip(calls, turn.calls, strict=True)
        ]
    return tuple(messages)


def make_trace(
    goods: Goods, messages: Sequence[Message], *, place: str, kind: SourceKind = "arena", **facts: object
) -> Trace:
    """A trace of these messages whose facts are those of a good one, but for `facts`."""
    known: dict[str, object] = {
        "problem_id": goods.problem_id,
        "cluster_id": f"c-{goods.problem_id}",
        "pool": "train",
        "bucket": ("product", "shop", "voucher")[int(goods.problem_id[1:]) % 3],
        "day": f"2026-09-{1 + int(goods.problem_id[1:]) % 28:02d}",
        "agent": f"agent-{int(goods.problem_id[1:]) % 7}",
        "team": f"team-{int(goods.problem_id[1:]) % 5}",
        "coefficient_e4": 9_125,
        "is_success": True,
        "is_agentic": True,
        "is_linear": True,
        "recommended": (goods.ids[0],),
        "surfaced": goods.ids,
        **facts,
    }
    return assemble_trace(
        TraceSource(kind=kind, place=place, sha256="ab" * 32, is_verified=True),
        messages,
        tools=TOOLS,
        query=query_text(goods),
        facts=TraceFacts(**known),
    )
