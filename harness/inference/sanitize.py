"""The neutral request: of the length and shape of an agent's request, without a word of it.

Pure and deterministic. Model, tools, temperature and max_tokens are those of the request. Every character is
replaced by one of its kind and size: letters by words of the same length and case, digits by digits, the rest by a
comma or a character of as many bytes, so bytes are equal and tokens nearly so. The roles are the plainest that a
template takes. So an endpoint that refuses the agent's words, characters, roles or seed finds none of them here.
"""

from __future__ import annotations

import re
from typing import Any

import orjson

from foundation.canonical import foreign_text

_OPENING = "Please reply with the word OK, whatever else is written here. "
_KEPT = ("model", "max_tokens", "temperature", "tools", "tool_choice")
# Neutral words by their length; a longer run of letters is made of several.
_WORDS: dict[int, tuple[str, ...]] = {
    1: ("a",),
    2: ("to", "in", "of", "it", "on"),
    3: ("the", "and", "day", "one", "sea"),
    4: ("with", "from", "tree", "walk", "blue"),
    5: ("table", "river", "green", "house", "cloud"),
    6: ("summer", "garden", "window", "letter", "spring"),
    7: ("morning", "picture", "evening", "weather", "village"),
    8: ("mountain", "sentence", "building", "distance", "language"),
}
_LONGEST = max(_WORDS)
_DIGITS = "3141592653"
_RUN = re.compile(r"[A-Za-z]+|[0-9]+|[ \n]+|[\x00-\x7f]|[^\x00-\x7f]")
_BY_BYTES = {2: "é", 3: "的", 4: "🌳"}


def neutral_request(text: str, *, at_most_bytes: int = 0) -> str:
    """The neutral request of the shape of `text`, a rebuilt request as JSON; at most so many bytes, unless 0."""
    fields: dict[str, Any] = orjson.loads(text)
    roles = [message["role"] for message in fields["messages"]]
    texts: list[str] = []  # everything of each message that a template writes out
    for message in fields["messages"]:
        parts = [str(message.get("content") or "")]
        for call in message.get("tool_calls") or ():
            parts += (call["id"], call["function"]["name"], call["function"]["arguments"])
        parts.append(str(message.get("tool_call_id") or ""))
        texts.append("\n".join(filter(None, parts)))
    size = sum(len(words.encode()) for words in texts)
    room = max(0, at_most_bytes - (len(text.encode()) - size))
    if at_most_bytes and room < size:  # every message is shortened by the same share
        shown = [words.encode() for words in texts]
        texts = [words[: len(words) * room // size].decode(errors="ignore") for words in shown]
    # A leading system turn stays one; the rest takes turns from user to user. Where their number does not allow that,
    # the first two are one turn.
    system = 1 if roles[0] == "system" and len(roles) > 1 else 0
    if (len(texts) - system) % 2 == 0:
        texts[system : system + 2] = ["\n".join(texts[system : system + 2])]
    turns = [("system", words) for words in texts[:system]]
    turns += [("assistant" if index % 2 else "user", words) for index, words in enumerate(texts[system:])]
    messages = [{"role": role, "content": neutral_text(words) or "."} for role, words in turns]
    last = messages[-1]["content"]
    if len(last) >= 2 * len(_OPENING):
        messages[-1]["content"] = _OPENING + last[len(_OPENING) :]
    return foreign_text({name: fields[name] for name in _KEPT if name in fields} | {"messages": messages})


def plain_request(model: str) -> str:
    """The shortest request there is: what an endpoint answers as long as it answers anything."""
    return foreign_text({"model": model, "messages": [{"role": "user", "content": "Reply with OK."}], "max_tokens": 1})


def neutral_text(text: str) -> str:
    """`text` with every character replaced by a neutral one of its kind."""
    count = 0

    def replaced(found: re.Match[str]) -> str:
        nonlocal count
        run = found.group()
        first = run[0]
        if first in " \n":
            return run
        if first.isascii() and first.isalpha():
            count += 1
            return _words(run, count)
        if first.isascii() and first.isdigit():
            return (_DIGITS * (len(run) // len(_DIGITS) + 1))[: len(run)]
        size = len(first.encode())
        return _BY_BYTES[size] if size > 1 else "," if first.isprintable() else " "

    return _RUN.sub(replaced, text)


def _words(run: str, count: int) -> str:
    """Words of the length and the case of a run of letters."""
    words = ""
    while len(words) < len(run):
        choice = _WORDS[min(_LONGEST, len(run) - len(words))]
        words += choice[(count + len(words)) % len(choice)]
    if run.islower():
        return words
    return "".join(new.upper() if old.isupper() else new for old, new in zip(run, words, strict=True))
