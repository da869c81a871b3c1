"""Foreign traces without emitters, whose truth is known by construction.

The hard ones are among them and weigh as much as the rest: models that never say a word, models that speak in forms,
and Python that has the model write its prose.
"""

from __future__ import annotations

import random

from tests.training.labelled import Maker, Truth
from tests.training.stories import (
    Goods,
    Turn,
    agentic_turns,
    call,
    closing,
    make_trace,
    make_word,
    messages_of,
    say,
    search,
)
from training.corpus.model import Trace

STYLES: dict[str, Truth] = {
    "thinks": "agentic",
    "silent": "agentic",
    "terse": "agentic",
    "starts silent": "agentic",
    "speaks in forms": "agentic",
    "answers at the end": "agentic",
    "narrator": "subtask",
    "judge of matches": "subtask",
    "form filler": "subtask",
    "silent sweep": "subtask",
    "classifier": "subtask",
    "copies the request": "subtask",
    "searches first": "subtask",
    "prose on demand": "subtask",
}


def make_dialogue(maker: Maker, style: str) -> Trace:
    """One dialogue of a style."""
    goods, rng = maker.goods(), maker.rng
    turns = _agentic(rng, goods, style) if STYLES[style] == "agentic" else _subtask(rng, goods, style)
    messages = messages_of(goods, turns)
    return make_trace(goods, messages, place=maker.place(), kind="sn15", is_agentic=None, is_linear=None)


def _agentic(rng: random.Random, goods: Goods, style: str) -> list[Turn]:
    turns = agentic_turns(rng, goods, is_silent=style == "silent", emitter=None)
    if style == "terse":
        return [Turn(reasoning=rng.choice(("Searching.", "Looking.", "Next.")), calls=turn.calls) for turn in turns]
    if style == "starts silent":
        return [Turn(calls=turns[0].calls), *turns[1:]]
    if style == "speaks in forms":
        return [_with_form(turn, "Let me look for {}.") for turn in turns]
    if style == "answers at the end":
        return [*turns, Turn(content=say(rng, ("I recommend {i} for {a}.",), goods))]
    return turns


def _with_form(turn: Turn, form: str) -> Turn:
    return Turn(reasoning=form.format(" ".join(turn.calls[0][1].split('"')[3:4])), calls=turn.calls)


def _subtask(rng: random.Random, goods: Goods, style: str) -> list[Turn]:
    searches = [search(rng, goods, rng.sample(goods.words, 3), emitter=None) for _ in range(rng.randint(3, 5))]
    ends = closing(goods, None)
    if style == "narrator":  # text about the last result stands with the next search
        return [Turn(calls=searches[:1])] + [
            Turn(content=_prose(rng, "The product found costs what the user can pay"), calls=(one,))
            for one in (*searches[1:], *ends)
        ]
    if style == "judge of matches":
        judged = [Turn(content='{"match": true, "score": 7}') for _ in range(4)]
        return [Turn(calls=tuple(searches)), *judged, Turn(calls=ends)]
    if style == "form filler":
        return [_with_form(Turn(calls=(one,)), "Searching for {} to find products.") for one in (*searches, *ends)]
    if style == "silent sweep":
        pages = [search(rng, goods, goods.words[:3], page, None) for page in (1, 2, 3, 4)]
        return [*(Turn(calls=(one,)) for one in pages), Turn(calls=ends)]
    if style == "classifier":
        return [Turn(content='{"intent": "product"}'), Turn(content='{"ok": 1}'), Turn(calls=(*searches, *ends))]
    if style == "copies the request":
        query = f"I am looking for a {' '.join(goods.words)} that costs"
        return [Turn(calls=(call("find_product", {"q": query, "page": 1}, "[]", None), *ends))]
    if style == "searches first":  # Python's search, then a model that goes on as if it had been its own
        return [Turn(calls=searches[:1]), *agentic_turns(rng, goods, emitter=None)]
    return agentic_turns(rng, goods, emitter=None)  # prose on demand: written by the model, after the fact


def _prose(rng: random.Random, start: str) -> str:
    return f"{start} {' '.join(make_word(rng) for _ in range(10))}."
