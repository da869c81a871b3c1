"""What a trace does, as the comparison of corpora sees it: its calls, how each ended, and what they asked for.

Pure. Where a trace names every call that was executed (an export's do), these are its calls, whoever made
them; else those of its conversation. A call ended in an `error` when its result says so, `empty` when a search found
nothing, `unanswered` when there is no result; else `ok`. What a problem demands is known only of problems that are
given; the words of a request are known of every trace.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Literal

import msgspec

from harness.chat import Call
from problems.model import Problem
from problems.pools.review_net import content_words
from training.corpus.filter.emitter_guess import query_of
from training.corpus.filter.trace_features import problem_key
from training.corpus.model import ExecutedTrace, Trace

Outcome = Literal["ok", "error", "empty", "unanswered"]
Demand = Literal["title", "price", "service", "option", "attribute", "shop", "budget"]

_SAYS_ERROR = ("error", "nothing was recommended", "traceback")
_WORD = re.compile(r"\w+")
_SAME_SHOP, _VOUCHER = "find_products_in_same_shop", "calculate_voucher"


class CallOutcome(msgspec.Struct, frozen=True, gc=False):
    """One call. `form` is the tool with the names of the arguments that were filled in."""

    tool: str
    form: str
    is_search: bool
    outcome: Outcome


class CallSequence(msgspec.Struct, frozen=True):
    """One trace. `asked`: content words of the request, `said`: how many of them some call's arguments hold.

    `demands`: what the problem demands, and what of it some call asked for, by kind; None where the problem is unknown.
    """

    problem: str
    steps: tuple[CallOutcome, ...]
    asked: int
    said: int
    demands: dict[Demand, tuple[int, int]] | None  # met, in all


def episodes_of(traces: Iterable[Trace], problems: Mapping[str, Problem]) -> Iterator[CallSequence]:
    """The episodes of traces; `problems` by id, as far as they are known."""
    return (episode_of(trace, problems.get(trace.facts.problem_id or "")) for trace in traces)


def episode_of(trace: Trace, problem: Problem | None) -> CallSequence:
    """The episode of one trace."""
    steps: list[CallOutcome] = []
    filled: list[list[tuple[str, str]]] = []
    for call, result in calls_made(trace):
        fields = list(_fields(_decoded(call.arguments), ""))
        filled.append(fields)
        names = ", ".join(sorted({name.partition(".")[0] for name, _ in fields}))
        is_search = bool(query_of(call))
        steps.append(
            CallOutcome(call.name, f"{call.name}({names})", is_search, outcome_of(result, is_search=is_search))
        )
    asked = content_words(trace.query)
    return CallSequence(
        problem=problem_key(trace),
        steps=tuple(steps),
        asked=len(asked),
        said=len(asked & content_words(" ".join(text for fields in filled for _, text in fields))),
        demands=None if problem is None else _demands(problem, {step.tool for step in steps}, filled),
    )


def outcome_of(result: str | None, *, is_search: bool) -> Outcome:
    """How a call ended, by its result: an object with `error`, a text that begins with an error, an empty list."""
    if result is None:
        return "unanswered"
    value = _decoded(result)
    if isinstance(value, dict) and value.get("error"):
        return "error"
    if isinstance(value, str) and value.lstrip().lower().startswith(_SAYS_ERROR):
        return "error"
    return "empty" if is_search and value in ([], {}, "", None) else "ok"


def is_recovered(steps: tuple[CallOutcome, ...], place: int) -> bool:
    """Whether a later call of the same tool ended well."""
    return any(later.tool == steps[place].tool and later.outcome == "ok" for later in steps[place + 1 :])


def calls_made(trace: Trace) -> Iterator[tuple[Call, str | None]]:
    """Each call with its result: of the whole run where the trace names it, else of the conversation."""
    if isinstance(trace, ExecutedTrace):
        for name, arguments, result in trace.executed:
            yield Call(id="", name=name, arguments=arguments), result
        return
    for number, message in enumerate(trace.messages):
        if message.role == "assistant":
            answers = itertools.takewhile(lambda one: one.role == "tool", trace.messages[number + 1 :])
            results = {one.call_id: one.content for one in answers}
            yield from ((call, results.get(call.id)) for call in message.calls)


def _demands(problem: Problem, tools: set[str], filled: list[list[tuple[str, str]]]) -> dict[Demand, tuple[int, int]]:
    said: dict[str, list[str]] = {}
    for name, text in (pair for fields in filled for pair in fields):
        said.setdefault(name.rpartition(".")[2], []).append(text.casefold())
    words = [_words(" ".join(text for _, text in fields)) for fields in filled]

    def holds(value: str, share: float = 1.0) -> bool:
        wanted = _words(value)
        return any(len(wanted & found) >= share * len(wanted) for found in words)

    found: dict[Demand, list[bool]] = {}
    for item in problem.rewards:
        if item.title:
            found.setdefault("title", []).append(any(holds(title, 0.5) for title in item.title))
        for _ in item.price:
            found.setdefault("price", []).append(bool(said.get("price")))
        for service in item.service:
            found.setdefault("service", []).append(any(service.casefold() in text for text in said.get("service", ())))
        for options in item.sku_options:
            found.setdefault("option", []).extend(map(holds, options.values()))
        for attributes in item.attributes:
            found.setdefault("attribute", []).extend(any(map(holds, values)) for values in attributes.values())
    if problem.bucket == "shop":
        found["shop"] = [bool(said.get("shop_id")) or _SAME_SHOP in tools]
    if problem.voucher is not None:
        found["budget"] = [_VOUCHER in tools]
    return {kind: (sum(met), len(met)) for kind, met in found.items()}


def _words(text: str) -> set[str]:
    return set(_WORD.findall(text.casefold()))


def _decoded(text: str) -> object:
    """The JSON value of a text; the text itself where it is none."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
        return text


def _fields(value: object, name: str) -> Iterator[tuple[str, str]]:
    """The values that were filled in, each with its dotted name; JSON within a text is opened."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _fields(inner, f"{name}.{key}" if name else str(key))
    elif isinstance(value, list):
        for inner in value:
            yield from _fields(inner, name)
    elif isinstance(value, str) and value[:1] in "[{" and not isinstance(inner := _decoded(value), str):
        yield from _fields(inner, name)
    elif value not in (None, ""):
        yield name, str(value)
