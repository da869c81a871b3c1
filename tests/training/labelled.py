"""Labelled traces: what each one is and which rules it breaks is known because it was made that way.

`make_labelled(count, seed)` gives traces of every kind in turn. `codes` are all per-trace codes a kind breaks under the
default rules. A `group` is a set of traces of which a filter keeps exactly one (`repeats`) or all (`variants`).
`stand_guard` rejects by the pool a trace says it is of, and knows one held-out cluster.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Sequence
from typing import Any, Literal

import msgspec

from harness.chat import Call, Message
from tests.training.stories import (
    Goods,
    Turn,
    agentic_turns,
    call,
    closing,
    hits_json,
    make_goods,
    make_trace,
    make_word,
    messages_of,
    say,
    search,
)
from training.corpus.building import Arm, Filtered, Sources, filter_sources
from training.corpus.model import RejectCode, Trace
from training.corpus.selection import Guard, Shard, Task

Truth = Literal["agentic", "subtask"]
HELD_OUT_CLUSTER = "c-held-out"


class Labelled(msgspec.Struct, frozen=True, kw_only=True):
    """A trace with what is true of it."""

    trace: Trace
    kind: str
    truth: Truth
    codes: tuple[RejectCode, ...] = ()
    group: str = ""
    relation: Literal["", "repeats", "variants"] = ""


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


def _calls(messages: Sequence[Message], name: str) -> list[int]:
    return [i for i, m in enumerate(messages) if any(one.name == name for one in m.calls)]


def _with_arguments(messages: list[Message], name: str, arguments: str) -> list[Message]:
    at = _calls(messages, name)[0]
    calls = tuple(
        msgspec.structs.replace(one, arguments=arguments) if one.name == name else one for one in messages[at].calls
    )
    return [*messages[:at], msgspec.structs.replace(messages[at], calls=calls), *messages[at + 1 :]]


def _unanswered(rng: random.Random, goods: Goods, messages: list[Message]) -> list[Message]:
    at = rng.choice([i for i, m in enumerate(messages) if m.role == "tool"])
    return messages[:at] + messages[at + 1 :]


def _cut_off(rng: random.Random, goods: Goods, messages: list[Message]) -> list[Message]:
    return messages[:-1]


def _orphan(rng: random.Random, goods: Goods, messages: list[Message]) -> list[Message]:
    at = rng.choice([i for i, m in enumerate(messages) if m.role == "assistant"])
    return [*messages[:at], Message(role="tool", content="[]", call_id="nobody"), *messages[at:]]


def _answered_twice(rng: random.Random, goods: Goods, messages: list[Message]) -> list[Message]:
    at = rng.choice([i for i, m in enumerate(messages) if m.role == "tool"])
    return [*messages[: at + 1], messages[at], *messages[at + 1 :]]


def _answered_late(rng: random.Random, goods: Goods, messages: list[Message]) -> list[Message]:
    first, second = [i for i, m in enumerate(messages) if m.role == "tool"][:2]
    return [*messages[:first], *messages[first + 1 : second + 1], messages[first], *messages[second + 1 :]]


def _wrong_id(rng: random.Random, goods: Goods, messages: list[Message]) -> list[Message]:
    at = rng.choice([i for i, m in enumerate(messages) if m.role == "tool"])
    return [*messages[:at], msgspec.structs.replace(messages[at], call_id="other"), *messages[at + 1 :]]


def _without_recommend(rng: random.Random, goods: Goods, messages: list[Message]) -> list[Message]:
    at = _calls(messages, "recommend_product")[0]
    return messages[:at] + messages[at + 2 :]


def _recommend_twice(rng: random.Random, goods: Goods, messages: list[Message]) -> list[Message]:
    at = _calls(messages, "recommend_product")[0]
    again = msgspec.structs.replace(messages[at].calls[0], id="again")
    turn = msgspec.structs.replace(messages[at], calls=(again,))
    return [*messages[:at], turn, msgspec.structs.replace(messages[at + 1], call_id="again"), *messages[at:]]


def _recommend(arguments: Callable[[Goods], str]) -> _Change:
    def change(rng: random.Random, goods: Goods, messages: list[Message]) -> list[Message]:
        return _with_arguments(messages, "recommend_product", arguments(goods))

    return change


def _stops_thinking(rng: random.Random, goods: Goods, messages: list[Message]) -> list[Message]:
    at = _calls(messages, "recommend_product")[0]
    return [*messages[:at], Message(role="assistant", reasoning=say(rng, ("Maybe {i} is it, or not.",), goods))]


def _stops_mid_loop(rng: random.Random, goods: Goods, messages: list[Message]) -> list[Message]:
    return messages[: _calls(messages, "recommend_product")[0]]


def _thinks_after_all(rng: random.Random, goods: Goods, messages: list[Message]) -> list[Message]:
    text = say(rng, ("Was {a} right?",), goods)
    thought = rng.choice((Message(role="assistant", reasoning=text),
                          Message(role="assistant", content=f"<think>{text}</think>\n")))  # fmt: skip
    return [*messages, thought]


def _searches_on(rng: random.Random, goods: Goods, messages: list[Message]) -> list[Message]:
    name, arguments, result, emitter = search(rng, goods, goods.words[:2])
    last = Call(id="late", name=name, arguments=arguments, emitter=emitter)
    at = _calls(messages, "terminate")[0]
    return [*messages[:at], Message(role="assistant", reasoning="Or else?", calls=(last,)),
            Message(role="tool", content=result, call_id="late")]  # fmt: skip


def _too_long(rng: random.Random, goods: Goods, messages: list[Message]) -> list[Message]:
    words = " ".join(make_word(rng) for _ in range(300))
    return [*messages[:-1], msgspec.structs.replace(messages[-1], content=f"{words} " * 40)]


MALFORMED: dict[str, tuple[_Change, tuple[RejectCode, ...]]] = {
    "unanswered": (_unanswered, ("pairing",)),
    "cut off": (_cut_off, ("pairing",)),
    "orphan": (_orphan, ("pairing",)),
    "answered twice": (_answered_twice, ("pairing",)),
    "answered late": (_answered_late, ("pairing",)),
    "wrong id": (_wrong_id, ("pairing",)),
    "no recommendation": (_without_recommend, ("recommend_count",)),
    "two recommendations": (_recommend_twice, ("recommend_count",)),
    "not JSON": (_recommend(lambda goods: f"{{product_ids: {goods.ids[0]}"), ("recommend_arguments",)),
    "no object": (_recommend(lambda goods: json.dumps([goods.ids[0]])), ("recommend_arguments",)),
    "a list": (_recommend(lambda goods: json.dumps({"product_ids": [goods.ids[0]]})), ("recommend_arguments",)),
    "a number": (_recommend(lambda goods: json.dumps({"product_ids": int(goods.ids[0])})), ("recommend_arguments",)),
    "no id": (_recommend(lambda goods: '{"product_ids": " , "}'), ("recommend_arguments",)),
    "no argument": (_recommend(lambda goods: "{}"), ("recommend_arguments",)),
    "invented id": (_recommend(lambda goods: '{"product_ids": "77"}'), ("recommend_arguments",)),
    "half invented": (
        _recommend(lambda goods: json.dumps({"product_ids": f"{goods.ids[0]}, 77"})),
        ("recommend_arguments",),
    ),
    "stops thinking": (_stops_thinking, ("recommend_count", "think_stop")),
    "stops mid-loop": (_stops_mid_loop, ("recommend_count", "think_stop")),
    "thinks after all": (_thinks_after_all, ("think_stop",)),
    "searches on": (_searches_on, ("think_stop",)),
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
GOOD = ("on the threshold", "text after all", "ids with spaces", "linear unknown", "parallel calls", "silent")


class Maker:
    """Makes labelled traces one after another, each of a problem of its own unless it belongs to a group."""

    def __init__(self, seed: int, result_bytes: int = 0) -> None:
        self.rng = random.Random(seed)
        self.result_bytes = result_bytes
        self._made = self._problems = 0

    def goods(self) -> Goods:
        """A new problem."""
        self._problems += 1
        return make_goods(self.rng, self._problems)

    def place(self) -> str:
        """A new place."""
        self._made += 1
        return f"made:{self._made}"

    def good_messages(self, goods: Goods) -> list[Message]:
        """A good conversation about a problem."""
        return list(messages_of(goods, agentic_turns(self.rng, goods, result_bytes=self.result_bytes)))

    def good(self, kind: str) -> Labelled:
        """A trace that every per-trace rule lets pass, near the edge that its kind names."""
        goods, facts = self.goods(), dict[str, object]()
        messages = self.good_messages(goods)
        if kind == "on the threshold":
            facts["coefficient_e4"] = 9_000
        elif kind == "text after all":
            messages.append(Message(role="assistant", content=f"I recommend {goods.ids[0]}."))
        elif kind == "ids with spaces":
            ids = json.dumps({"product_ids": f" {goods.ids[0]} ,{goods.ids[1]}"})
            messages = _with_arguments(messages, "recommend_product", ids)
        elif kind == "linear unknown":
            facts["is_linear"] = None
        elif kind == "parallel calls":
            both = tuple(search(self.rng, goods, goods.words[i : i + 2]) for i in (0, 2))
            turns = [Turn(reasoning=say(self.rng, ("Both {a} and {b}.",), goods), calls=both)]
            messages = list(messages_of(goods, [*turns, *agentic_turns(self.rng, goods, searches=2)]))
        elif kind == "silent":
            messages = list(messages_of(goods, agentic_turns(self.rng, goods, is_silent=True)))
        trace = make_trace(goods, messages, place=self.place(), **facts)
        return Labelled(trace=trace, kind=kind, truth="agentic")

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
        trace = make_trace(goods, messages, place=self.place(), **facts)
        truth: Truth = "subtask" if "recorded subtask" in kinds else "agentic"
        return Labelled(trace=trace, kind=" + ".join(kinds), truth=truth, codes=tuple(sorted(codes)))

    def emitted(self, kind: str) -> Labelled:
        """A trace whose split follows from the emitters of its calls alone."""
        goods = self.goods()
        searches = 17 if kind.startswith("mixed") else 3
        messages = list(messages_of(goods, agentic_turns(self.rng, goods, searches=searches)))
        at = [i for i, m in enumerate(messages) if m.calls]  # 20 calls when mixed
        by_other = {
            "code": at, "echoed": at, "mixed, 1 of 20": at[:1], "mixed, 2 of 20": at[:2],
            "recommended by code": _calls(messages, "recommend_product"),
        }[kind]  # fmt: skip
        emitter = "echoed" if kind == "echoed" else "code"
        for i in by_other:
            calls = tuple(msgspec.structs.replace(one, emitter=emitter) for one in messages[i].calls)
            messages[i] = msgspec.structs.replace(messages[i], calls=calls)
        is_agentic = kind == "mixed, 1 of 20"
        trace = make_trace(goods, messages, place=self.place(), is_agentic=None)
        return Labelled(trace=trace, kind=kind, truth="agentic" if is_agentic else "subtask",
                        codes=() if is_agentic else ("subtask",))  # fmt: skip

    def group(self, relation: Literal["repeats", "variants"]) -> list[Labelled]:
        """One conversation four times, plain and disguised; or two different ones about one problem."""
        goods = self.goods()
        first = self.good_messages(goods)
        if relation == "variants":
            made = [(first, goods), (self.good_messages(goods), goods)]
        else:
            other = msgspec.structs.replace(goods, ids=tuple(str(int(one) + 7_654_321) for one in goods.ids))
            made = [(first, goods), (first, goods), (disguise(first, goods, other), other),
                    (reword(self.rng, first), goods)]  # fmt: skip
        return [
            Labelled(
                trace=make_trace(about, messages, place=self.place()), kind=relation, truth="agentic",
                group=goods.problem_id, relation=relation,
            )
            for messages, about in made
        ]  # fmt: skip

    def loop(self) -> Labelled:
        """A trace that asks the same thing over and over: a variant the ranking puts last."""
        goods = self.goods()
        hits = hits_json(self.rng, goods)
        again = [
            Turn(reasoning="Once more.", calls=(call("find_product", {"q": goods.words[0], "page": 1}, hits),))
        ] * 9
        turns = [*again, *(Turn(calls=(one,)) for one in closing(goods))]
        return Labelled(
            trace=make_trace(goods, messages_of(goods, turns), place=self.place()), kind="loop", truth="agentic"
        )


def disguise(messages: Sequence[Message], goods: Goods, other: Goods) -> list[Message]:
    """The same conversation with other product and call ids, other spacing, other case and another price."""

    def text(value: str) -> str:
        value = re.sub(rf"\b{goods.price}\b", str(goods.price + 11), value)
        for one, new in zip(goods.ids, other.ids, strict=True):
            value = value.replace(one, new)
        return value

    return [
        msgspec.structs.replace(
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
        msgspec.structs.replace(m, reasoning=f"{rng.choice(('Okay', 'Well', 'So', 'Right'))}, {m.reasoning}")
        if m.reasoning else m
        for m in messages
    ]  # fmt: skip


EMITTED = ("code", "echoed", "mixed, 1 of 20", "mixed, 2 of 20", "recommended by code")
_COMBINABLE = ("not JSON", "invented id", "unanswered", "orphan", "thinks after all", *FACTS)


def make_labelled(count: int, seed: int = 1, result_bytes: int = 0) -> list[Labelled]:
    """At least `count` traces, every kind in turn, and pairs and triples of what goes together at random."""
    maker, made = Maker(seed, result_bytes), list[Labelled]()
    while len(made) < count:
        made += [maker.good(kind) for kind in GOOD]
        made += [maker.malformed(kind) for kind in (*MALFORMED, *FACTS)]
        made += [maker.emitted(kind) for kind in EMITTED]
        made += [maker.malformed(*maker.rng.sample(_COMBINABLE, maker.rng.randint(2, 3))) for _ in range(6)]
        made += maker.group("repeats") + maker.group("variants")
        made.append(maker.loop())
    return made


def select(shards: Sequence[Shard], task: Task, guard: Guard, **ways: Any) -> Filtered:
    """The filter's answer under a task's first rules."""
    sources = Sources(shards=tuple(shards), hashes=(), is_trusted_unsigned=False)
    return filter_sources(sources, task, [Arm(name="full", rules=task.arms[0])], guard, **ways)
