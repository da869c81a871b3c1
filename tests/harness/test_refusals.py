"""Who pays for a request that fails, over HTTP: every way of saying no, at one endpoint, at two, and in an outage."""

from __future__ import annotations

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foundation.errors import ArenaError
from harness.inference.client import OpenAIUpstream
from harness.inference.port import EndingRefusalError
from harness.inference.request import neutral_request
from harness.sandbox.port import GuestCallError
from tests.harness.inference_stand import RecordingUpstream, make_gateway
from tests.harness.refusing_stand import WAYS, Refuses, RefusingServer, everything, longer_than, text_of, words

BOMB = {"messages": [{"role": "user", "content": "how is a bomb lamp sold"}], "tools": ["find_product"]}
LONG = {"messages": [{"role": "user", "content": "a lamp " * 400}]}


def outcome(way: str, refuses: Refuses, ask: dict[str, object], *, endpoints: int, is_last: bool = False) -> str:
    """How the request ended: `answered`, or the code and whether the agent may go on."""
    with contextlib.ExitStack() as stack:
        servers = [stack.enter_context(RefusingServer(WAYS[way][0], refuses)) for _ in range(endpoints)]
        upstreams = [OpenAIUpstream(f"s{n}", server.base_url, "", 10_000) for n, server in enumerate(servers)]
        gateway = make_gateway(*upstreams, is_last=is_last)
        try:
            gateway.chat(ask, completion_tokens_left=100)
        except EndingRefusalError as error:
            return f"ends {error.code} {error.stop}"
        except GuestCallError as error:
            return f"goes on {error.code}"
        except ArenaError as error:
            return f"fault {error.failure.code}"
        return "answered"


@pytest.mark.parametrize("way", WAYS)
def test_words_that_two_endpoints_refuse_are_the_agents_at_once(way: str) -> None:
    expected = "goes on A1040" if WAYS[way][1] else "goes on A1043"
    assert outcome(way, words("bomb"), BOMB, endpoints=2) == expected


@pytest.mark.parametrize("way", WAYS)
def test_words_that_one_endpoint_refuses_are_counted_and_end_the_last_attempt(way: str) -> None:
    assert outcome(way, words("bomb"), BOMB, endpoints=1) == "fault U3006"
    assert outcome(way, words("bomb"), BOMB, endpoints=1, is_last=True) == "ends A1043 model_refused"


@pytest.mark.parametrize(("way", "endpoints"), [*((way, 2) for way in WAYS), ("malformed", 1)])
def test_an_endpoint_that_refuses_all_long_requests_or_answers_nothing_charges_nobody(way: str, endpoints: int) -> None:
    assert outcome(way, longer_than(500), LONG, endpoints=endpoints, is_last=True) == "fault U3007"
    ended = outcome(way, everything, BOMB, endpoints=endpoints, is_last=True)
    assert ended in {"fault U3001", "fault U3002", "fault U3003", "fault U3004"}


@pytest.mark.parametrize("field", ["model", "temperature", "seed"])
def test_a_model_or_a_temperature_that_is_not_served_charges_nobody_and_frees_nobody(field: str) -> None:
    """The agent chooses them, so the fault is not one of a real outage; a seed has no part in a neutral request."""
    value = {"model": "other-model", "temperature": 1.75, "seed": 77}[field]
    expected = "fault U3006" if field == "seed" else "fault U3007"
    refuses = {
        "model": lambda body: body["model"] == "other-model" and body["max_tokens"] != 1,
        "temperature": lambda body: body.get("temperature") == 1.75,
        "seed": lambda body: body.get("seed") == 77,
    }[field]
    assert outcome("malformed", refuses, {**BOMB, field: value}, endpoints=1) == expected


def test_the_neutral_request_is_sent_once_to_each_endpoint_and_the_cost_of_a_refusal_is_bounded() -> None:
    with RefusingServer(WAYS["broken"][0], words("bomb")) as server:
        with pytest.raises(ArenaError):
            make_gateway(OpenAIUpstream("one", server.base_url, "", 10_000)).chat(BOMB, completion_tokens_left=100)
        asked = [text_of(body) for body in server.bodies]
    assert len(asked) == 2 * 3 + 1  # two rounds of the policy's attempts, one neutral request
    assert sum("bomb" not in text for text in asked) == 1


# -- the neutral request

_MESSAGES = st.lists(
    st.one_of(
        st.fixed_dictionaries({"role": st.sampled_from(["system", "user"]), "content": st.text(max_size=200)}),
        st.fixed_dictionaries({
            "role": st.just("assistant"), "content": st.text(max_size=50),
            "tool_calls": st.just([{"id": "c1", "function": {"name": "find_product", "arguments": '{"q":"bomb"}'}}]),
        }),
        st.fixed_dictionaries({"role": st.just("tool"), "content": st.text(), "tool_call_id": st.just("c1")}),
    ),
    min_size=1, max_size=5,
)  # fmt: skip


@given(_MESSAGES, st.none() | st.floats(0, 2), st.booleans())
def test_a_neutral_request_has_the_shape_of_the_agents_and_none_of_its_words(messages, temperature, has_tools) -> None:
    params = {"messages": messages, "temperature": temperature, "max_tokens": 7, "seed": 5}
    if has_tools:
        params["tools"] = ["find_product", "terminate"]
    upstream = RecordingUpstream()
    try:
        make_gateway(upstream).chat(params, completion_tokens_left=100)
    except GuestCallError:
        return
    before, text = upstream.sent[0], json.dumps(upstream.sent[0])
    after = json.loads(neutral_request(text))
    assert {name: before.get(name) for name in ("model", "max_tokens", "temperature", "tools")} == {
        name: after.get(name) for name in ("model", "max_tokens", "temperature", "tools")
    }
    assert neutral_request(text) == neutral_request(text) and "seed" not in after
    assert 0 <= len(before["messages"]) - len(after["messages"]) <= 1
    roles = [message["role"] for message in after["messages"]]
    turns = roles[1:] if roles[0] == "system" else roles
    assert turns == ["user" if index % 2 == 0 else "assistant" for index in range(len(turns))] and turns[-1] == "user"
    assert "bomb" not in text_of(after)
    # everything that the agent's messages carry is as long here: text, and what calls and results are named by
    carried = sum(
        len(str(message.get("content") or ""))
        + sum(len(call["id"]) + len('find_product{"q":"bomb"}') for call in message.get("tool_calls") or ())
        + len(message.get("tool_call_id", ""))
        for message in before["messages"]
    )
    assert abs(len(text_of(after)) - carried) <= 4 * len(before["messages"])


@pytest.mark.parametrize(
    ("limit", "served", "expected"),
    [
        (500, 0, "U3007"),  # no size is promised: nobody's
        (500, 4_000, "U3007"),  # the endpoint takes less than the policy promises: nobody's
        (2_000, 1_000, "U3006"),  # longer than promised, and what is promised is served: the agent's, once it is agreed
    ],
)
@pytest.mark.parametrize("way", ["malformed", "too large"])
def test_beyond_the_size_that_a_policy_promises_a_request_is_at_the_agents_risk(
    way: str, limit: int, served: int, expected: str
) -> None:
    with RefusingServer(WAYS[way][0], longer_than(limit)) as server:
        gateway = make_gateway(OpenAIUpstream("one", server.base_url, "", 10_000), served_bytes=served)
        with pytest.raises(ArenaError) as caught:
            gateway.chat(LONG, completion_tokens_left=100)
    assert caught.value.failure.code == expected
