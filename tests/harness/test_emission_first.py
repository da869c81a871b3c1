"""Which calls stand in a request: the answers of asking every message and every menu, in steps that only add up."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from types import FrameType

import pytest
from hypothesis import given
from hypothesis import strategies as st

import harness.emission.first_version
from harness.emission.call_identity import CallKey, CallMenu
from harness.emission.call_reader import EVERY_CALL, CallReader
from harness.emission.first_version import StandingCalls
from harness.tools.registry import profile_schemas
from harness.trace import EmittedCall

READER = CallReader(profile_schemas("sn15"))
CROWD = "find_product " * 1_001


def says(text: str) -> str:
    return json.dumps({"role": "user", "content": text})


def call_of(arguments: dict[str, object], name: str = "find_product") -> EmittedCall:
    return EmittedCall(call_id="1", name=name, arguments=json.dumps(arguments))


def key_of(call: EmittedCall) -> CallKey:
    return READER.key(call.name, call.arguments)


def menu_of(choices: dict[str, list[str]], name: str = "find_product") -> dict[str, object]:
    return {"name": name, "parameters": {parameter: {"enum": values} for parameter, values in choices.items()}}


class EveryMessage:
    """The same questions, put to every message and every menu of the latest request in turn."""

    def __init__(self) -> None:
        self._messages: Sequence[str] = ()
        self._originated: set[CallKey] = set()

    def complete(self, messages: Sequence[str], calls: Sequence[EmittedCall]) -> None:
        self._messages = messages
        self._originated |= {key for key in map(key_of, calls) if not self.holds(key)}

    def holds(self, key: CallKey) -> bool:
        standing = [READER.standing_in(json.loads(message)) for message in self._messages]
        if any(EVERY_CALL in one.keys for one in standing):
            return True
        return key not in self._originated and any(
            key in one.keys or any(_is_on(menu, key) for menu in one.menus) for one in standing
        )

    def holds_alone(self, key: CallKey, messages: Sequence[str]) -> bool:
        standing = [READER.standing_in(json.loads(message)) for message in messages]
        return key not in self._originated and any(
            key in one.keys and {other.name for other in one.keys} == {key.name} and not one.menus for one in standing
        )


def _is_on(menu: CallMenu, key: CallKey) -> bool:
    choices = dict(menu.choices)
    is_listed = all(value in choices.get(parameter, ()) for parameter, value in key.arguments)
    return menu.name == key.name and bool(key.arguments) and is_listed


VALUES = st.sampled_from(["a", "b", "c", "7"])
NAMES = st.sampled_from(["find_product", "view_product_information", "terminate"])
ARGUMENTS = st.dictionaries(st.sampled_from(["q", "shop_id", "price"]), VALUES, max_size=3)
CHOICES = st.dictionaries(st.sampled_from(["q", "shop_id", "price"]), st.lists(VALUES, max_size=3), min_size=1)
CALLS = st.lists(st.builds(call_of, ARGUMENTS, NAMES), max_size=4)
WRITTEN = st.builds(
    lambda call: f'{{"name": "{call.name}", "arguments": {call.arguments}}}', st.builds(call_of, ARGUMENTS)
)
MESSAGES = st.lists(
    st.one_of(
        st.builds(lambda menus: says(json.dumps(menus)), st.lists(st.builds(menu_of, CHOICES, NAMES), max_size=4)),
        st.builds(says, WRITTEN),
        st.builds(lambda written, menu: says(f"{written} {json.dumps(menu)}"), WRITTEN, st.builds(menu_of, CHOICES)),
        st.just(says(CROWD)),
        st.just(says("a lamp")),
    ),
    max_size=5,
)


@given(st.lists(st.tuples(st.booleans(), MESSAGES, CALLS), max_size=4), CALLS)
def test_the_answers_are_those_of_asking_every_message(
    requests: list[tuple[bool, list[str], list[EmittedCall]]], asked: list[EmittedCall]
) -> None:
    """Requests that go on from the one before, and others."""
    indexed, plain, messages = StandingCalls(READER), EveryMessage(), []
    for goes_on, more, calls in requests:
        messages = messages + more if goes_on else more
        indexed.complete(messages, calls)
        plain.complete(messages, calls)
        for key in map(key_of, [*asked, *calls]):
            assert indexed.holds(key) == plain.holds(key)
            assert indexed.holds_alone(key, messages[1:]) == plain.holds_alone(key, messages[1:])


def steps_of(work: Callable[[], object]) -> int:
    """Lines of the module that run."""
    steps = 0

    def trace(frame: FrameType, event: str, _: object) -> object:
        nonlocal steps
        if frame.f_code.co_filename != harness.emission.first_version.__file__:
            return None
        steps += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)  # type: ignore[arg-type]
    try:
        work()
    finally:
        sys.settrace(before)
    return steps


def one_menu_each(size: int) -> list[str]:
    return [says(json.dumps(menu_of({"q": [f"other {place}"]}))) for place in range(size)]


def shared_menus(size: int) -> list[str]:
    """Every value of a call is on half of the menus, and no two values on the same half."""
    menus = [menu_of({"q": ["a"], "page": ["2" if place % 2 else "3"]}) for place in range(size)]
    return [says(json.dumps(menus[place : place + 50])) for place in range(0, size, 50)]


@pytest.mark.parametrize("make", [one_menu_each, shared_menus, lambda size: [says(f"{n:x}") for n in range(size)]])
def test_steps_grow_with_messages_and_calls_and_not_with_their_product(make: Callable[[int], list[str]]) -> None:
    def steps(messages: int, calls: int) -> int:
        given, written = make(messages), [call_of({"q": "a", "page": n + 2, "price": f"0-{n}"}) for n in range(calls)]
        standing = StandingCalls(READER)

        def episode() -> None:
            for number in range(3):
                standing.complete(given, written[number::3])
                for call in written:
                    standing.holds(key_of(call))
                    standing.holds_alone(key_of(call), given)

        return steps_of(episode)

    few, many_messages, many_calls, many = steps(100, 60), steps(800, 60), steps(100, 480), steps(800, 480)
    assert many_messages > few and many_calls > few
    assert many - few <= 1.1 * ((many_messages - few) + (many_calls - few))
