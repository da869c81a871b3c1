"""A guess at who wrote the calls of a trace whose source recorded no emitters. A guess, and labelled as one.

Pure, reads the conversation only, and is asked only where nothing was recorded. It looks for what a model does
not do while it drives: calls and words that never meet, words that are filled-in forms, calls whose words were never
thought of, pages turned without a look. What it finds is listed by name. Its precision and recall against recorded
emitters are measured in `tests/training`, figures in `training/corpus/README.md`; agents that imitate a model's prose
pass it, which is why the arena records emitters instead of guessing.
"""

from __future__ import annotations

import functools
import re
from typing import Literal

import msgspec

from harness.chat import Call, Message
from training.corpus.model import Trace

Sign = Literal[
    "no_calls",  # the model's turns hold no call at all
    "narration",  # turns in the middle that only talk: the program goes on without the model
    "opens_silent",  # searches before the first word, and later texts do not name what is searched for
    "copied_query",  # searches for a stretch of the request as it stands, eight words or more, grammar and all
    "form_text",  # the same sentence with other words filled in
    "unspoken_query",  # searches for words that the turn's own text, and it has some, does not hold
    "page_sweep",  # page after page of one search, without a word between
]

_WORD = re.compile(r"[^\W\d_]{3,}")
_QUERY_KEYS = ("q", "query")
_NARRATION_E4 = 2_500  # of the turns but the last
_COPIED_WORDS = 8  # a product's name is shorter
_FORMS_E4 = 5_000  # different forms among the turns that speak and call
_FORM_TURNS_MIN = 3  # turns that name what they call for; from fewer, nothing is said about forms
_SPOKEN_E4 = 3_500  # of a search's words, in the text of its turn
_TEXT_WORDS_MIN = 8  # a shorter text ("Searching.") need not name what it searches for
_SWEEP_MIN = 4  # pages


def looks_subtask(trace: Trace) -> bool:
    """Whether the calls look written by the Python around the model: a sign, and not only words that don't fit."""
    return any(sign != "unspoken_query" for sign in signs_of(trace))


def signs_of(trace: Trace) -> tuple[Sign, ...]:
    """The signs a trace shows, in the order of `Sign`."""
    turns = [message for message in trace.messages if message.role == "assistant"]
    calling = [turn for turn in turns if turn.calls]
    if not calling:
        return ("no_calls",)
    texts = [spoken_text(turn) for turn in calling]
    speaking = [(text, turn) for text, turn in zip(texts, calling, strict=True) if text]
    found: list[Sign] = []
    if sum(not turn.calls for turn in turns[:-1]) * 10_000 >= _NARRATION_E4 * len(turns):
        found.append("narration")
    is_silent_search = not spoken_text(turns[0]) and any(query_of(call) for call in turns[0].calls)
    if is_silent_search and speaking and not _are_named(speaking):
        found.append("opens_silent")
    request = " ".join(trace.query.casefold().split())
    queries = (query_of(call) for turn in calling for call in turn.calls)
    if any(query.count(" ") >= _COPIED_WORDS - 1 and query in request for query in queries):
        found.append("copied_query")
    if _is_form(speaking):
        found.append("form_text")
    long = [one for one in speaking if len(_WORD.findall(one[0])) >= _TEXT_WORDS_MIN]
    if any(words for _, words in map(_named, long)) and not _are_named(long):
        found.append("unspoken_query")
    if _is_sweep(calling):
        found.append("page_sweep")
    return tuple(found)


def spoken_text(turn: Message) -> str:
    """Everything a turn says, thought or said."""
    return f"{turn.reasoning} {turn.content}".strip()


def query_of(call: Call) -> str:
    """The search words of a `find_*` call, spacing and case evened out; "" for any other call."""
    return _query(call.arguments) if call.name.startswith("find_") else ""


@functools.lru_cache(maxsize=1024)  # every reading of a trace asks for its queries again
def _query(arguments: str) -> str:
    try:
        decoded = msgspec.json.decode(arguments)
    except (msgspec.DecodeError, RecursionError):
        return ""
    if not isinstance(decoded, dict):
        return ""
    text = next((value for key in _QUERY_KEYS if isinstance(value := decoded.get(key), str)), "")
    return " ".join(text.casefold().split())


def _named(spoken: tuple[str, Message]) -> tuple[int, int]:
    """How many of a turn's search words its own text holds, and how many there are; a word counts once a turn."""
    text, turn = spoken
    words = {word for call in turn.calls for word in _WORD.findall(query_of(call))}
    return len(words.intersection(_WORD.findall(text.casefold()))), len(words)


def _is_form(speaking: list[tuple[str, Message]]) -> bool:
    """Whether the texts are few forms, once the words of their own calls and all numbers are taken out."""
    forms: list[tuple[str, ...]] = []
    for text, turn in speaking:
        said = _WORD.findall(text.casefold())
        filled = {word for call in turn.calls for word in _WORD.findall(call.arguments.casefold())}
        if not filled.isdisjoint(said):
            forms.append(tuple(word for word in said if word not in filled))
    return len(forms) >= _FORM_TURNS_MIN and len(set(forms)) * 10_000 <= _FORMS_E4 * len(forms)


def _are_named(speaking: list[tuple[str, Message]]) -> bool:
    """Whether the turns search, and their texts hold the words they search for."""
    counts = [_named(one) for one in speaking]
    total = sum(words for _, words in counts)
    return total > 0 and sum(held for held, _ in counts) * 10_000 >= _SPOKEN_E4 * total


def _is_sweep(calling: list[Message]) -> bool:
    """Whether one search's pages follow each other with nothing said from the second on."""
    length, before = 1, ""
    for turn in calling:
        is_silent = not spoken_text(turn)
        for number, call in enumerate(turn.calls):
            query = query_of(call)
            length = length + 1 if query and query == before and (is_silent or number) else 1
            before = query
            if length >= _SWEEP_MIN:
                return True
    return False
