"""Labelled traces: what each one is and which rules it breaks is known because it was made that way.

`make_labelled(count, seed)` gives traces of every kind in turn: shopping conversations by construction, with every fact
known. `codes` are all per-trace codes a kind breaks under the default rules. A `group` is a set of traces of which a
filter keeps exactly one (`repeats`) or all (`variants`). `stand_guard` rejects by the pool a trace says it is of, and
knows one held-out cluster.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from harness.chat import Call, Message
from harness.tools.registry import profile_schemas
from harness.trace import Emitter
from training.corpus.building import Arm, FilterResult, Sources, filter_sources
from training.corpus.model import RejectCode, SourceKind, Trace, TraceFacts, TraceSource, assemble_trace
from training.corpus.selection import Guard, Shard, Task

replace = msgspec.structs.replace
HELD_OUT_CLUSTER = "c-held-out"
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


def hits_json(rng: random.Random, goods: Goods) -> str:
    """A search page of the problem's products."""
    return json.dumps(
        [
            {"product_id": one, "title": " ".join(rng.sample(goods.words, 4)), "price": rng.randint(10, 999)}
            for one in goods.ids
        ]
    )


_Called = tuple[str, str, str, Emitter | None]


def search(
    rng: random.Random, goods: Goods, words: Sequence[str], page: int = 1, emitter: Emitter | None = "llm"
) -> _Called:
    """A find_product call with its result."""
    arguments = json.dumps({"q": " ".join(words), "page": page, "price": f"0-{goods.price}"})
    return "find_product", arguments, hits_json(rng, goods), emitter


def call(name: str, arguments: dict[str, object], result: str, emitter: Emitter | None = "llm") -> _Called:
    """Any other call."""
    return name, json.dumps(arguments), result, emitter


def closing(goods: Goods, emitter: Emitter | None = "llm") -> tuple[_Called, ...]:
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
                  emitter: Emitter | None = "llm") -> list[Turn]:  # fmt: skip
    """A model that thinks, searches, looks and recommends."""
    turns = []
    for number in range(searches or rng.randint(2, 5)):
        words = rng.sample(goods.words, rng.randint(2, 4))
        text = "" if is_silent else say(rng, _OPENERS, goods, words)
        found = search(rng, goods, words, 1 + number % 2, emitter)
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


class Labelled(msgspec.Struct, frozen=True, kw_only=True):
    """A trace with what is true of it."""

    trace: Trace
    kind: str
    codes: tuple[RejectCode, ...] = ()
    group: str = ""  # of `repeats` or `variants`: a problem's id


def stand_guard(trace: Trace) -> tuple[RejectCode, ...]:
    """A leak guard that believes what the trace says of itself."""
    codes: list[RejectCode] = []
    if trace.facts.pool != "train":
        codes.append("pool")
    if trace.facts.cluster_id == HELD_OUT_CLUSTER:
        codes.append("leak")
    return tuple(codes)


# -- what is done to the messages of a good trace, and which codes that costs

_Change = Callable[[random.Random, Goods, list[Message]], list[Message]]


def _call_of(messages: Sequence[Message], name: str) -> int:
    """Where the first turn that makes this call stands."""
    return next(i for i, message in enumerate(messages) if any(one.name == name for one in message.calls))


def _in_place_of(role: str, put: Callable[[Message], list[Message]]) -> _Change:
    """Something else in place of one message of a role."""

    def change(rng: random.Random, goods: Goods, messages: list[Message]) -> list[Message]:
        at = rng.choice([i for i, message in enumerate(messages) if message.role == role])
        return [*messages[:at], *put(messages[at]), *messages[at + 1 :]]

    return change


def _without_recommend(rng: random.Random, goods: Goods, messages: list[Message]) -> list[Message]:
    at = _call_of(messages, "recommend_product")
    return messages[:at] + messages[at + 2 :]


def _recommend_twice(rng: random.Random, goods: Goods, messages: list[Message]) -> list[Message]:
    at = _call_of(messages, "recommend_product")
    turn = replace(messages[at], calls=(replace(messages[at].calls[0], id="again"),))
    return [*messages[:at], turn, replace(messages[at + 1], call_id="again"), *messages[at:]]


def _recommend(arguments: Callable[[Goods], str]) -> _Change:
    def change(rng: random.Random, goods: Goods, messages: list[Message]) -> list[Message]:
        at = _call_of(messages, "recommend_product")
        called = replace(messages[at].calls[0], arguments=arguments(goods))
        return [*messages[:at], replace(messages[at], calls=(called,)), *messages[at + 1 :]]

    return change


def _stops_thinking(rng: random.Random, goods: Goods, messages: list[Message]) -> list[Message]:
    at = _call_of(messages, "recommend_product")
    return [*messages[:at], Message(role="assistant", reasoning=say(rng, ("Maybe {i} is it, or not.",), goods))]


def _thinks_after_all(rng: random.Random, goods: Goods, messages: list[Message]) -> list[Message]:
    return [*messages, Message(role="assistant", content="<think>Was it right?</think>\n")]


def _searches_on(rng: random.Random, goods: Goods, messages: list[Message]) -> list[Message]:
    name, arguments, result, emitter = search(rng, goods, goods.words[:2])
    last = Message(role="assistant", calls=(Call(id="late", name=name, arguments=arguments, emitter=emitter),))
    return [*messages[: _call_of(messages, "terminate")], last, Message(role="tool", content=result, call_id="late")]


def _too_long(rng: random.Random, goods: Goods, messages: list[Message]) -> list[Message]:
    words = " ".join(make_word(rng) for _ in range(300))
    return [*messages[:-1], replace(messages[-1], content=f"{words} " * 40)]


_NOBODYS = Message(role="tool", content="[]", call_id="nobody")
MALFORMED: dict[str, tuple[_Change, tuple[RejectCode, ...]]] = {
    "unanswered": (_in_place_of("tool", lambda one: []), ("pairing",)),
    "orphan": (_in_place_of("assistant", lambda one: [_NOBODYS, one]), ("pairing",)),
    "answered twice": (_in_place_of("tool", lambda one: [one, one]), ("pairing",)),
    "no recommendation": (_without_recommend, ("recommend_count",)),
    "two recommendations": (_recommend_twice, ("recommend_count",)),
    "not JSON": (_recommend(lambda goods: f"{{product_ids: {goods.ids[0]}"), ("broken_call", "recommend_arguments")),
    "a list": (_recommend(lambda goods: json.dumps({"product_ids": [goods.ids[0]]})), ("recommend_arguments",)),
    "invented id": (_recommend(lambda goods: '{"product_ids": "77"}'), ("recommend_arguments",)),
    "stops thinking": (_stops_thinking, ("recommend_count", "think_stop")),
    "thinks after all": (_thinks_after_all, ("think_stop",)),
    "searches on": (_searches_on, ("recommend_count", "think_stop")),
    "too long": (_too_long, ("tokens",)),
}
FACTS: dict[str, tuple[dict[str, object], tuple[RejectCode, ...]]] = {
    "below the threshold": ({"coefficient_e4": 8_999}, ("coefficient",)),
    "no verdict": ({"coefficient_e4": None}, ("coefficient",)),
    "not one path": ({"is_linear": False}, ("not_one_path",)),
    "recorded subtask": ({"is_agentic": False}, ("subtask",)),
    "nothing surfaced": ({"surfaced": ()}, ("recommend_arguments",)),
    "nothing known to surface": ({"surfaced": None}, ("recommend_arguments",)),
    "pool": ({"pool": "eval"}, ("pool",)),
    "held-out cluster": ({"cluster_id": HELD_OUT_CLUSTER}, ("leak",)),
}
GOOD = ("on the threshold", "text after all", "ids with spaces", "parallel calls", "silent")
EMITTED = {"code": ("subtask",), "mixed, 1 of 20": (), "mixed, 2 of 20": ("subtask",)}
_COMBINABLE = ("a list", "invented id", "unanswered", "thinks after all", *FACTS)


class Maker:
    """Makes labelled traces one after another, each of a problem of its own unless it belongs to a group."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self._made = self._problems = 0

    def goods(self) -> Goods:
        """A new problem."""
        self._problems += 1
        return make_goods(self.rng, self._problems)

    def labelled(self, goods: Goods, messages: Sequence[Message], kind: str, *codes: RejectCode, group: str = "",
                 **facts: object) -> Labelled:  # fmt: skip
        """A trace at a new place."""
        self._made += 1
        trace = make_trace(goods, messages, place=f"made:{self._made}", **facts)
        return Labelled(trace=trace, kind=kind, codes=tuple(sorted(codes)), group=group)

    def good_messages(self, goods: Goods, **ways: Any) -> list[Message]:
        """A good conversation about a problem."""
        return list(messages_of(goods, agentic_turns(self.rng, goods, **ways)))

    def good(self, kind: str) -> Labelled:
        """A trace that every per-trace rule lets pass, near the edge that its kind names."""
        goods = self.goods()
        messages = self.good_messages(goods, is_silent=kind == "silent")
        if kind == "text after all":
            messages.append(Message(role="assistant", content=f"I recommend {goods.ids[0]}."))
        elif kind == "ids with spaces":
            spaced = _recommend(lambda goods: json.dumps({"product_ids": f" {goods.ids[0]} ,{goods.ids[1]}"}))
            messages = spaced(self.rng, goods, messages)
        elif kind == "parallel calls":
            both = tuple(search(self.rng, goods, goods.words[i : i + 2]) for i in (0, 2))
            turns = [Turn(reasoning=say(self.rng, ("Both {a} and {b}.",), goods), calls=both)]
            messages = list(messages_of(goods, [*turns, *agentic_turns(self.rng, goods, searches=2)]))
        facts = {"coefficient_e4": 9_000} if kind == "on the threshold" else {}
        return self.labelled(goods, messages, kind, **facts)

    def malformed(self, *kinds: str) -> Labelled:
        """A trace with one or several things wrong with its messages or facts."""
        goods = self.goods()
        messages, facts, codes = self.good_messages(goods), dict[str, object](), set[RejectCode]()
        for kind in kinds:
            if kind in MALFORMED:
                change, costs = MALFORMED[kind]
                messages = change(self.rng, goods, messages)
            else:
                changed, costs = FACTS[kind]
                facts |= changed
            codes.update(costs)
        if len(codes) > 1:
            codes.discard("tokens")  # is counted for what every other rule lets pass
        return self.labelled(goods, messages, " + ".join(kinds), *codes, **facts)

    def emitted(self, kind: str) -> Labelled:
        """A trace whose split follows from the emitters of its calls alone."""
        goods = self.goods()
        messages = self.good_messages(goods, searches=17)  # 20 calls
        at = [i for i, message in enumerate(messages) if message.calls]
        for i in at if kind == "code" else at[: int(kind.split()[1])]:
            messages[i] = replace(messages[i], calls=tuple(replace(one, emitter="code") for one in messages[i].calls))
        return self.labelled(goods, messages, kind, *EMITTED[kind], is_agentic=None)

    def group(self, relation: str) -> list[Labelled]:
        """One conversation four times, plain and disguised; or two different ones about one problem."""
        goods = self.goods()
        first = self.good_messages(goods)
        made = [(goods, first), (goods, self.good_messages(goods))]
        if relation == "repeats":
            other = replace(goods, ids=tuple(str(int(one) + 7_654_321) for one in goods.ids))
            made = [(goods, first), (goods, first), (other, disguise(first, goods, other))]
            made.append((goods, reword(self.rng, first)))
        return [self.labelled(about, messages, relation, group=goods.problem_id) for about, messages in made]


def disguise(messages: Sequence[Message], goods: Goods, other: Goods) -> list[Message]:
    """The same conversation with other product and call ids, other spacing, other case and another price."""

    def text(value: str) -> str:
        value = re.sub(rf"\b{goods.price}\b", str(goods.price + 11), value)
        for one, new in zip(goods.ids, other.ids, strict=True):
            value = value.replace(one, new)
        return value

    return [
        replace(
            m,
            content=text(m.content),
            reasoning=text(m.reasoning).upper().replace(" ", "  "),
            call_id=m.call_id and f"x{m.call_id}",
            calls=tuple(
                Call(id=f"x{one.id}", name=one.name, emitter=one.emitter,
                     arguments=json.dumps(dict(sorted(json.loads(text(one.arguments)).items())), indent=1))
                for one in m.calls
            ),
        )
        for m in messages
    ]  # fmt: skip


def reword(rng: random.Random, messages: Sequence[Message]) -> list[Message]:
    """The same conversation with a filler word in every thought."""
    return [
        replace(m, reasoning=f"{rng.choice(('Okay', 'Well', 'So', 'Right'))}, {m.reasoning}")
        if m.reasoning else m
        for m in messages
    ]  # fmt: skip


def make_labelled(count: int, seed: int = 1) -> list[Labelled]:
    """At least `count` traces, every kind in turn, and pairs and triples of what goes together at random."""
    maker, made = Maker(seed), list[Labelled]()
    while len(made) < count:
        made += [maker.good(kind) for kind in GOOD]
        made += [maker.malformed(kind) for kind in (*MALFORMED, *FACTS)]
        made += [maker.emitted(kind) for kind in EMITTED]
        made += [maker.malformed(*maker.rng.sample(_COMBINABLE, maker.rng.randint(2, 3))) for _ in range(6)]
        made += maker.group("repeats") + maker.group("variants")
    return made


class Stored:
    """A shard in memory that a process can be sent."""

    def __init__(self, rows: Sequence[Trace]) -> None:
        self._rows = tuple(rows)

    def __call__(self) -> tuple[Trace, ...]:
        return self._rows


def select(shards: Sequence[Shard], task: Task, guard: Guard, **ways: Any) -> FilterResult:
    """The filter's answer under a task's first rules."""
    sources = Sources(shards=tuple(shards), hashes=(), is_trusted_unsigned=False)
    return filter_sources(sources, task, [Arm(name="full", rules=task.arms[0])], guard, **ways)
