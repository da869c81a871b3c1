"""The per-trace gates of the filter: each says of one trace whether it breaks one rule.

A gate is a pure function of a trace and the rules, so what a trace is rejected for does not depend on other
traces or on the order of the gates; the order here is cheap first. The rules are those of the paper: the coefficient
gate (paper section 5), the five format rejects (A.2) and the agentic split (paper section 5). Pools and leak clusters
are the guard's (`training.corpus.leak_guard`), which no ablation can switch off. Tokens are counted by
`training.corpus.tokens`.

Not a gate's business: what only a set can tell (duplicates, ranking), and repairing anything.
"""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

import msgspec

from harness.chat import Call, Message
from problems.score import parse_recommendation
from training.corpus.model import JUDGE, RejectCode, Rules, Trace

_WORD = re.compile(r"[^\W\d_]{3,}")
_QUERY_KEYS = ("q", "query")
_COPIED_WORDS = 8  # a product's name is shorter
_SPOKEN_E4 = 3_500  # of a search's words, in the text of its turn
_SWEEP_MIN = 4  # pages


def looks_subtask(trace: Trace) -> bool:
    """Whether the calls look written by the Python around the model: it makes no call at all; a quarter of its turns
    only talk; it opens with a silent search, and later texts do not name what is searched for; it searches for a
    stretch of the request as it stands; or page after page of one search, without a word between."""
    turns = [message for message in trace.messages if message.role == "assistant"]
    calling = [turn for turn in turns if turn.calls]
    if not calling or sum(not turn.calls for turn in turns[:-1]) * 4 >= len(turns):
        return True
    request = " ".join(trace.query.casefold().split())
    queries = [query_of(call) for turn in calling for call in turn.calls]
    if any(query.count(" ") >= _COPIED_WORDS - 1 and query in request for query in queries):
        return True
    speaking = [turn for turn in calling if _spoken_text(turn)]
    is_silent_search = not _spoken_text(turns[0]) and any(query_of(call) for call in turns[0].calls)
    return (is_silent_search and bool(speaking) and not _are_named(speaking)) or _is_sweep(calling)


def _spoken_text(turn: Message) -> str:
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


def _are_named(speaking: Sequence[Message]) -> bool:
    """Whether the turns search, and their own texts hold the words they search for; a word counts once a turn."""
    held = total = 0
    for turn in speaking:
        words = {word for call in turn.calls for word in _WORD.findall(query_of(call))}
        held += len(words.intersection(_WORD.findall(_spoken_text(turn).casefold())))
        total += len(words)
    return total > 0 and held * 10_000 >= _SPOKEN_E4 * total


def _is_sweep(calling: list[Message]) -> bool:
    """Whether one search's pages follow each other with nothing said from the second on."""
    length, before = 1, ""
    for turn in calling:
        is_silent = not _spoken_text(turn)
        for number, call in enumerate(turn.calls):
            query = query_of(call)
            length = length + 1 if query and query == before and (is_silent or number) else 1
            before = query
            if length >= _SWEEP_MIN:
                return True
    return False


Gates = Mapping[RejectCode, Callable[[Trace], bool]]  # by its code, whether a trace breaks a rule

AGENTIC_SHARE_E4 = 9_500  # docs/architecture.md#who-wrote-a-call
RECOMMEND, TERMINATE = "recommend_product", "terminate"
_HARNESS_KINDS = ("arena", "sn15")  # their recommend_product reads one comma-separated text and nothing else


def calls_of(trace: Trace) -> Iterator[Call]:
    """The tool calls of the assistant's turns, in order."""
    for message in trace.messages:
        if message.role == "assistant":
            yield from message.calls


def visible_text(message: Message) -> str:
    """What an assistant turn says beside its thinking: its content after the last closed, before an open `<think>`."""
    return message.content.rpartition("</think>")[2].partition("<think>")[0].strip()


def is_unjudged(trace: Trace) -> bool:
    """Whether a trace is of a source that no judge reads."""
    return JUDGE in trace.missing


def codes_by_rules(
    coefficient_e4: int | None, is_success: bool | None, rules: Rules, *, is_unjudged: bool
) -> Iterator[RejectCode]:
    """What depends on the rules' values, and so may differ between rules over traces that were read once: the judge's
    coefficient is below the threshold, or there is no verdict (paper section 5; not asked of a source that has no
    judge); the rules ask for a success, and the outcome was none (an ablation's)."""
    if not is_unjudged and (coefficient_e4 is None or coefficient_e4 < rules.coefficient_e4_min):
        yield "coefficient"
    if rules.is_success_needed and is_success is not True:
        yield "failed"


def _stops_thinking(trace: Trace) -> bool:
    """Whether the trace ends without a commitment (A.2, rule 5): its last call is neither recommend_product nor
    terminate, or it ends in an assistant turn that only thinks."""
    last_call = next((m.calls[-1] for m in reversed(trace.messages) if m.role == "assistant" and m.calls), None)
    if last_call is None or last_call.name not in (RECOMMEND, TERMINATE):
        return True
    last = trace.messages[-1]
    return last.role == "assistant" and not last.calls and not visible_text(last)


def is_paired(messages: Sequence[Message]) -> bool:
    """Whether every call is answered exactly once right after its turn, and every result answers one."""
    index = 0
    while index < len(messages):
        message, index = messages[index], index + 1
        if message.role == "tool":
            return False
        if message.role != "assistant":
            continue
        first = index
        while index < len(messages) and messages[index].role == "tool":
            index += 1
        answers = messages[first:index]
        if [call.id for call in message.calls] == [answer.call_id for answer in answers]:
            continue
        if Counter(call.id for call in message.calls) != Counter(answer.call_id for answer in answers):
            return False
    return True


def names_unknown(trace: Trace, known_ids: Collection[str] | None = None) -> bool:
    """Whether a recommendation is not a JSON object with ids that the search server returned or can return (A.2, rule
    3). `known_ids`: the ids that it can return, for traces that do not record what it returned."""
    surfaced = trace.facts.surfaced
    # a foreign row shows less than a record does, so what the catalogue has is good there too
    known = known_ids if surfaced is None or trace.source.kind != "arena" else None
    returnable = [ids for ids in (surfaced, known) if ids is not None]
    for call in calls_of(trace):
        if call.name == RECOMMEND:
            ids = recommended_ids(call.arguments, is_strict=trace.source.kind in _HARNESS_KINDS)
            if not ids or not all(any(one in some for some in returnable) for one in ids):
                return True
    return False


def recommended_ids(arguments: str, *, is_strict: bool) -> tuple[str, ...]:
    """The ids of a recommend_product call; empty when it has none that can be read.

    Strict is what the tool itself reads: `product_ids` as one comma-separated text. Foreign corpora also write a list
    of texts, or `product_id` (docs/benchmark.md#traces-met-elsewhere).
    """
    try:
        decoded = msgspec.json.decode(arguments)
    except (msgspec.DecodeError, RecursionError):
        return ()
    if not isinstance(decoded, dict):
        return ()
    value = decoded.get("product_ids")
    if not is_strict:
        value = decoded.get("product_id") if value is None else value
        if isinstance(value, list) and all(isinstance(one, str) for one in value):
            value = ",".join(value)
    return parse_recommendation(value)[0]


def recorded_split(trace: Trace) -> bool | None:
    """Whether the model wrote its own calls: by the record's own word, else by the emitters of its calls; None where
    neither is known. A rewritten run counts as one: code chose its calls, and thoughts that lead to them were asked for
    (paper, section 9)."""
    if trace.provenance == "rewritten" or trace.facts.is_agentic is not None:
        return trace.provenance == "rewritten" or trace.facts.is_agentic
    calls = list(calls_of(trace))
    return is_agentic(calls) if calls and all(call.emitter is not None for call in calls) else None


def is_agentic(calls: Sequence[Call]) -> bool:
    """Who wrote a call (docs/architecture.md), where the record does not say which calls surfaced the answer: the model
    wrote 0.95 of them, and every recommendation."""
    by_model = sum(call.emitter == "llm" for call in calls)
    if by_model * 10_000 < AGENTIC_SHARE_E4 * len(calls):
        return False
    return all(call.emitter == "llm" for call in calls if call.name == RECOMMEND)


def gates(known_ids: Collection[str] | None = None) -> Gates:
    """Every gate but the guard's, the token budget and what depends on the rules' values, cheap first.

    What the model said beside its calls does not count as unseen, no more than its thoughts: ReAct agents send neither
    back.
    """
    return {
        "not_one_path": lambda one: one.facts.is_linear is False and one.provenance == "verbatim",
        "view_incomplete": lambda one: one.rebuilt is not None and bool({*one.rebuilt.lacks} - {"remarks"}),
        "recommend_count": lambda one: sum(call.name == RECOMMEND for call in calls_of(one)) != 1,
        "think_stop": _stops_thinking,
        "pairing": lambda one: not is_paired(one.messages),
        "recommend_arguments": lambda one: names_unknown(one, known_ids),
        "subtask": lambda one: recorded_split(one) is False,
        "subtask_guess": lambda one: recorded_split(one) is None and looks_subtask(one),
    }


def codes_of(trace: Trace, rules: Rules, every: Gates) -> tuple[RejectCode, ...]:
    """Every rule of its own and of `every` that a trace breaks, sorted; the ones in `rules.off` are left out."""
    facts = trace.facts
    found = set(codes_by_rules(facts.coefficient_e4, facts.is_success, rules, is_unjudged=is_unjudged(trace)))
    found.update(code for code, breaks in every.items() if breaks(trace))
    return tuple(sorted(found.difference(rules.off)))
