"""Words that the agent's program said before anybody else: they are no evidence, whatever a result says later.

Promise: pure, linear in the bytes sent. Whoever says a word first owns it: the shopper, a tool, the model or the
program. A table of results that the program shows in its own form says nothing first.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import orjson

from harness.trace import Completion, EvaluationBody, ToolCall
from judge.tokens import fold, numbers_in, tokenise


def planted_words(body: EvaluationBody) -> frozenset[str]:
    """The tokens that the program said first: in a request or in the arguments of a call that the model did not write.

    Only tokens that some completion says are kept: no other can be cited.
    """
    wanted: set[str] = set()
    for event in body.events:
        if isinstance(event, Completion):
            wanted |= _tokens(f"{event.reasoning}\n{event.content}")
    owned = _tokens(body.query)  # by anybody, in the order in which things were said
    planted: set[str] = set()
    read: set[int] = set()
    for event in body.events:
        if isinstance(event, Completion):
            fresh = {index for index in event.request if index < len(body.messages)} - read
            read |= fresh
            planted |= (_said([body.messages[index] for index in fresh]) & wanted) - owned
            own = _tokens(f"{event.reasoning}\n{event.content}") | _said([call.arguments for call in event.calls])
            owned |= planted | own
        elif isinstance(event, ToolCall):
            if event.emitter != "llm":
                planted |= (_said([event.arguments]) & wanted) - owned
            owned |= planted | (_tokens(event.result) & wanted)
    return frozenset(planted)


def _said(messages: Iterable[str]) -> set[str]:
    return {token for message in messages for text in _texts(message) for token in _tokens(text)}


def _tokens(text: str) -> set[str]:
    return set(tokenise(text)) | numbers_in(fold(text))


def _texts(message: str) -> Iterator[str]:
    """Every text in a JSON text, or the text itself where it is none."""
    try:
        waiting: list[object] = [orjson.loads(message)]
    except orjson.JSONDecodeError:
        waiting = [message]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            waiting += value.values()
        elif isinstance(value, list):
            waiting += value
        elif isinstance(value, str):
            yield value
        elif value is not None:
            yield str(value)
