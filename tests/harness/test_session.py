"""An episode from its first call to its body: what is recorded, what is counted and bounded, and whose failure an end
is."""

from __future__ import annotations

import json
from unittest.mock import Mock

import msgspec
import pytest

from foundation.codes import CODES, Owner
from foundation.errors import ArenaError
from harness.emission.attribution import emitters_of
from harness.emission.call_reader import CallReader
from harness.errors import classify_guest, stable_text
from harness.limits import EpisodeLimits, ModelPrice
from harness.sandbox.port import GuestExit
from harness.session import run_episode
from harness.trace import FailedCompletion, ToolCall
from tests.harness.episode_stand import IDS, SCHEMAS, StandGateway, ports, problem, reply, rules
from tests.harness.jail_stand import best_sandbox, needs_jail, reference_sandbox

LOOP = """
from arena_sdk import llm, tools
def agent_main(problem):
    messages = [{"role": "user", "content": problem["query"]}]
    while True:
        answer = llm.chat(messages, tools=tools.schemas())
        messages.append(answer.message)
        for call in answer.tool_calls:
            result = tools.execute(call["name"], call["arguments"])
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": result})
"""
SEARCH = reply(("find_product", {"q": "red lamp"}))
RECOMMEND = reply(("recommend_product", {"product_ids": IDS[1]}))
TERMINATE = reply(("terminate", {"status": "success"}))


def episode(source: str, gateway: StandGateway | None = None, **limits: int):
    return run_episode(source, problem(), ports(reference_sandbox(source), gateway), rules(**limits))


def body(source: str, gateway: StandGateway | None = None, **limits: int):
    return episode(source, gateway, **limits).body


def agent(*lines: str) -> str:
    head = "import os, time\nfrom arena_sdk import llm, tools\ndef agent_main(problem):\n"
    return head + "".join(f"    {line}\n" for line in lines)


@needs_jail
def test_a_run_in_a_jail_and_one_without_have_the_same_body_hash():
    source = LOOP + "    # the same source\n"
    in_jail, without = (
        run_episode(source, problem(), ports(sandbox, StandGateway([SEARCH, RECOMMEND, TERMINATE])), rules())
        for sandbox in (best_sandbox(), reference_sandbox(source))
    )
    assert in_jail.body.body_hash() == without.body.body_hash()
    called = tuple(event.emitter for event in without.body.events if isinstance(event, ToolCall))
    assert emitters_of(without.body, CallReader(SCHEMAS)) == called != ()  # as anybody says from the body


# -- ends


def test_after_terminate_no_call_is_executed_and_nothing_changes_the_end():
    lines = ("tools.recommend_product('1')", "tools.terminate()")
    for after in ("tools.recommend_product('2')", "llm.chat([{'role': 'user', 'content': 'x'}])", "1 / 0", "return 5"):
        gateway = StandGateway()
        got = body(agent(*lines, after), gateway)
        assert (got.stop, got.failure, got.recommended) == ("terminated", None, ("1",))
        assert (got.totals.tool_calls, gateway.asked) == (2, 0)


def test_what_is_found_after_it_was_recommended_does_not_count():
    recommend, search = f"tools.recommend_product('{IDS[1]}')", "tools.find_product(q='red lamp')"
    found = [body(agent(*lines)).unsurfaced for lines in ((search, recommend), (recommend, search))]
    assert found == [(), (IDS[1],)]


def test_a_malformed_tool_call_is_recorded_with_the_text_the_agent_got():
    source = agent("return [tools.execute('nope', '{}'), tools.execute('find_product', 'not json')]")
    got = body(source)
    assert [event.failure.code for event in got.events] == ["A1050", "A1050"]
    assert json.loads(got.claim) == [event.result for event in got.events]
    assert got.events[1].arguments == "not json"


def test_a_refused_request_is_recorded_and_the_agent_may_go_on():
    got = body(agent("try: llm.chat([])", "except Exception as error: return error.code"))
    assert got.claim == '"A1040"'
    assert got.events == (FailedCompletion(step=1, failure=got.events[0].failure),)
    assert (got.events[0].failure.code, got.totals.steps) == ("A1040", 0)


# -- faults of ours are never in a body


@pytest.mark.parametrize(
    ("error", "code"), [(ArenaError("U3002", "503"), "U3002"), (ZeroDivisionError("a bug"), "V2004")]
)
def test_a_failing_model_side_is_raised_and_not_recorded(error, code):
    with pytest.raises(ArenaError) as caught:
        body(LOOP, Mock(chat=Mock(side_effect=error)))
    assert caught.value.failure.code == code and caught.value.owner is not Owner.AGENT


@pytest.mark.parametrize(("source", "code"), [("x = '\ud800'", "A1001"), ("#" * 200, "A1004")])
def test_a_source_that_no_guest_takes_is_the_agents_and_never_started(source, code):
    with pytest.raises(ArenaError) as caught:
        run_episode(source, problem(), ports(best_sandbox()), rules(source_bytes=100))
    assert caught.value.failure.code == code


# -- what happened and when, against the code it gets

LIMITS = EpisodeLimits()

GUEST = [
    ("SyntaxError", "load", "A1002"),
    ("MissingAgentMainError", "load", "A1002"),
    ("ImportError", "load", "A1024"),
    ("SyntaxError", "raise", "A1024"),
    ("TypeError", "not_json", "A1027"),
]

BY_END = {
    "wall_clock": "A1020",
    "output": "A1026",
    "protocol": "A1027",
    "died": "A1028",
    "frame": "A1029",
    "memory": "A1030",
    "cpu": "A1030",
    "disk": "A1030",
    "resources": "A1030",
}

REFUSALS = [
    ("MemoryError: ", "memory", "A1030"),
    ("BlockingIOError: [Errno 11] Resource temporarily unavailable", "processes", "A1030"),
    ("OSError: [Errno 28] No space left on device", "disk", "A1030"),
]


@pytest.mark.parametrize(("name", "phase", "code"), GUEST)
def test_an_exception_of_the_agent_gets_the_code_of_its_phase(name, phase, code):
    _, failure = classify_guest(GuestExit(end="final", error=f"{name}: told", error_kind=phase), LIMITS)
    assert (failure.code, failure.detail) == (code, f"{name}: told")


def test_each_end_that_the_sandbox_reports_has_one_reason():
    for end, code in BY_END.items():
        stop, failure = classify_guest(GuestExit(end=end), LIMITS)
        assert (stop, failure.code) == (end, code)


@pytest.mark.parametrize("phase", ["load", "raise", "not_json"])
@pytest.mark.parametrize(("error", "stop", "code"), REFUSALS)
def test_an_agent_that_ends_by_a_refusal_ended_by_that_limit(error, stop, code, phase):
    got_stop, failure = classify_guest(GuestExit(end="final", error=error, error_kind=phase), LIMITS)
    assert (got_stop, failure.code, failure.detail) == (stop, code, "")


def test_details_hold_nothing_that_differs_between_hosts():
    assert stable_text("<x at 0x7f12ab34cd>") == stable_text("<x at 0x7fffffff0000>")
    assert stable_text("no file /tmp/tmpa1/x") == stable_text("no file /tmp/tmpb2/y")
    by_cgroup, by_watchdog = (GuestExit(end="resources", error=e) for e in ("memory", "SIGKILL"))
    assert classify_guest(by_cgroup, LIMITS) == classify_guest(by_watchdog, LIMITS)


# -- limits: each breach with a stop reason of its own, on real jails

MIB = 1 << 20
PRICES = (ModelPrice(model="stand", prompt_micro_usd=2_000_000, completion_micro_usd=6_000_000),)


ASK = "llm.chat([{'role': 'user', 'content': 'x'}])"
FORKS = ("for _ in range({}):", "    if os.fork() == 0: time.sleep(20)")
# limit -> (its value here, an agent that breaks it, stop reason, code); the jail's own are in the sandbox's tests
ROWS: dict[str, tuple[int, str, str, str]] = {
    "steps": (3, agent("while True:", f"    {ASK}"), "steps", "A1021"),
    "completions": (3, agent("while True:", f"    {ASK}"), "steps", "A1021"),
    "tool_calls": (3, agent("while True: tools.find_product(q='x')"), "tool_calls", "A1021"),
    "prompt_tokens": (25, agent("while True:", f"    {ASK}"), "tokens", "A1021"),
    "completion_tokens": (9, agent("while True:", f"    {ASK}"), "tokens", "A1021"),
    "cost_micro_usd": (120, agent("while True:", f"    {ASK}"), "cost", "A1021"),
    "processes": (16, agent(*(line.format(60) for line in FORKS)), "processes", "A1030"),
    "disk_bytes": (4 * MIB, agent("open('note', 'wb').write(b'x' * (9 << 20))"), "disk", "A1030"),
    "host_work": (100_000, agent("while True: tools.find_product(q='x')"), "host_work", "A1021"),
    "rpc_bytes": (9_000, agent("while True: tools.find_product(q='x' * 999)"), "frame", "A1029"),
    "result_bytes": (900, agent("while True: tools.find_product(q='x')"), "results", "A1021"),
    "trace_bytes": (900, agent("while True: tools.find_product(q='x')"), "trace", "A1021"),
    "body_bytes": (900, agent("while True: tools.find_product(q='x')"), "body", "A1021"),
}


def jailed(source: str, gateway: StandGateway | None = None, **limits: object):
    chosen = EpisodeLimits(**{"agent_time_ms": 20_000, "prices": PRICES, **limits})
    given = msgspec.structs.replace(rules(), limits=chosen)
    return run_episode(source, problem(), ports(best_sandbox(), gateway), given).body


@needs_jail
@pytest.mark.parametrize("limit", ROWS)
def test_a_breach_has_its_own_stop_reason_and_is_the_agents(limit):
    value, source, stop, code = ROWS[limit]
    got = jailed(source, **{limit: value})
    assert (got.stop, got.failure and got.failure.code) == (stop, code), got
    assert got.failure.owner is Owner.AGENT and CODES[code].owner is Owner.AGENT


ROUND = ("while True:", f"    {ASK}", f"    {ASK}", f"    {ASK}", "    tools.find_product(q='x')")


@needs_jail
def test_where_completions_have_a_limit_of_their_own_a_step_is_a_round_of_completions_and_calls():
    got = jailed(agent(*ROUND), steps=2, completions=50)
    assert (got.stop, got.failure.detail, got.totals.steps, got.totals.tool_calls) == ("steps", "2 steps", 6, 2)
    got = jailed(agent(*ROUND), steps=20, completions=5)
    assert (got.stop, got.failure.detail, got.totals.steps) == ("steps", "5 completions", 5)
    got = jailed(agent(*ROUND), steps=2)
    assert (got.failure.detail, got.totals.steps, got.totals.tool_calls) == ("2 steps", 2, 0)


@needs_jail
def test_a_tool_call_over_its_limit_is_refused_and_nothing_reads_it():
    lines = ("try: tools.find_product(q='x' * 5000)", "except Exception as error: return error.code")
    got = jailed(agent(*lines), argument_bytes=1_000)
    assert (got.claim, got.events) == ('"A1050"', ())
