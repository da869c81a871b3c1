"""An episode from its first call to its body: what is recorded, what is counted, and whose failure an end is."""

from __future__ import annotations

import json

import pytest

from foundation.codes.row import Owner
from foundation.errors import ArenaError
from harness.inference.port import GatewayAnswer
from harness.session import EpisodePorts, EpisodeRules, run_episode
from harness.tools.port import ToolOutcome
from harness.trace import Completion, FailedCompletion, ToolCall
from harness.work import WorkMeter
from tests.harness.episode_stand import IDS, StandGateway, StandToolbox, ports, problem, reply, rules
from tests.harness.jail_stand import WHY_NO_JAIL, best_sandbox, has_jail, reference_sandbox

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
    return "from arena_sdk import llm, tools\ndef agent_main(problem):\n" + "".join(f"    {line}\n" for line in lines)


def test_an_agentic_run_is_recorded_turn_by_turn():
    got = body(LOOP, StandGateway([SEARCH, RECOMMEND, TERMINATE]))
    assert [type(event) for event in got.events] == [Completion, ToolCall] * 3
    assert [event.step for event in got.events] == [1, 1, 2, 2, 3, 3]
    assert (got.stop, got.failure, got.recommended, got.unsurfaced) == ("terminated", None, (IDS[1],), ())
    assert got.is_agentic
    assert (got.totals.steps, got.totals.tool_calls, got.totals.llm_calls) == (3, 3, 3)
    assert (got.totals.prompt_tokens, got.totals.completion_tokens) == (30, 15)


def test_a_run_in_a_jail_and_one_without_have_the_same_body_hash():
    if not has_jail():
        pytest.skip(WHY_NO_JAIL)
    source = LOOP + "    # the same source\n"
    in_jail, without = (
        run_episode(source, problem(), ports(sandbox, StandGateway([SEARCH, RECOMMEND, TERMINATE])), rules())
        for sandbox in (best_sandbox(), reference_sandbox(source))
    )
    assert in_jail.body.body_hash() == without.body.body_hash()


# -- ends

ENDS = {
    "returned without an answer": (agent("return 1"), "returned", "A1060", {}),
    "terminated without an answer": (agent("tools.terminate()"), "terminated", "A1060", {}),
    "returned after recommending": (agent("tools.recommend_product('1')"), "terminated", None, {}),
    "raised": (agent("1 / 0"), "raised", "A1024", {}),
    "no memory": (agent("raise MemoryError"), "memory", "A1030", {}),
    "does not parse": ("def (", "load_failed", "A1002", {}),
    "has no agent_main": ("x = 1", "load_failed", "A1003", {}),
    "fails on import": ("import numpy\ndef agent_main(p): pass", "load_failed", "A1024", {}),
    "returned no JSON": (agent("return object()"), "not_json", "A1025", {}),
    "died": (agent("import os; os._exit(7)"), "died", "A1028", {}),
    "flooded": (agent("while True: print('x' * 9999)"), "output", "A1026", {}),
    "broke the protocol": (agent("import os; os.write(4, b'\\0\\0\\0\\1x'); llm.chat([])"), "protocol", "A1027", {}),
    "sent a huge frame": (agent("import os; os.write(4, b'\\xff' * 8); llm.chat([])"), "frame", "A1029", {}),
    "ran out of time": (agent("while True: pass"), "wall_clock", "A1020", {"agent_time_ms": 300}),
    "used up its tool calls": (agent("while 1: tools.find_product(q='x')"), "tool_calls", "A1022", {"tool_calls": 3}),
    "used up its steps": (LOOP, "steps", "A1021", {"steps": 4}),
    "used up its prompt tokens": (LOOP, "tokens", "A1023", {"prompt_tokens": 25}),
    "used up its completion tokens": (LOOP, "tokens", "A1023", {"completion_tokens": 9}),
}  # fmt: skip


@pytest.mark.parametrize("case", ENDS)
def test_every_end_has_its_reason_and_is_the_agents(case):
    source, stop, code, limits = ENDS[case]
    got = body(source, **limits)
    assert (got.stop, got.failure.code if got.failure else None) == (stop, code)
    assert got.failure is None or got.failure.owner is Owner.AGENT


def test_a_limit_is_counted_before_anything_is_executed():
    gateway = StandGateway()
    got = body(LOOP, gateway, steps=4)
    assert gateway.asked == got.totals.steps == 4
    assert body(agent("while True: tools.find_product(q='x')"), tool_calls=3).totals.tool_calls == 3


def test_after_terminate_no_call_is_executed_and_nothing_changes_the_end():
    lines = ("tools.recommend_product('1')", "tools.terminate()")
    for after in ("tools.recommend_product('2')", "llm.chat([{'role': 'user', 'content': 'x'}])", "1 / 0", "return 5"):
        gateway = StandGateway()
        got = body(agent(*lines, after), gateway)
        assert (got.stop, got.failure, got.recommended) == ("terminated", None, ("1",))
        assert (got.totals.tool_calls, gateway.asked) == (2, 0)


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


class FailingGateway(StandGateway):
    def __init__(self, error: Exception) -> None:
        super().__init__()
        self._error = error

    def chat(self, params: dict[str, object], *, completion_tokens_left: int) -> GatewayAnswer:
        raise self._error


class FailingToolbox(StandToolbox):
    def dispatch(self, name: str, arguments: str, work: WorkMeter | None = None) -> ToolOutcome:
        raise ArenaError("U3010", "shard 3")


@pytest.mark.parametrize(
    ("error", "code"), [(ArenaError("U3002", "503"), "U3002"), (ZeroDivisionError("a bug"), "V2004")]
)
def test_a_failing_model_side_is_raised_and_not_recorded(error, code):
    with pytest.raises(ArenaError) as caught:
        body(LOOP, FailingGateway(error))
    assert caught.value.failure.code == code and caught.value.owner is not Owner.AGENT


def test_a_failing_catalogue_is_raised_and_not_recorded():
    source = agent("tools.find_product(q='x')")
    failing = EpisodePorts(toolbox=FailingToolbox(), gateway=StandGateway(), sandbox=reference_sandbox(source))
    with pytest.raises(ArenaError) as caught:
        run_episode(source, problem(), failing, rules())
    assert caught.value.failure.code == "U3010"


@pytest.mark.parametrize(("source", "code"), [("x = '\ud800'", "A1001"), ("#" * 200, "A1004")])
def test_a_source_that_no_guest_takes_is_the_agents_and_never_started(source, code):
    with pytest.raises(ArenaError) as caught:
        run_episode(source, problem(), ports(best_sandbox()), rules(source_bytes=100))
    assert caught.value.failure.code == code


# -- the surfaced rule

FOUND = "tools.find_product(q='red lamp')"
WANTED = f"tools.recommend_product('{IDS[2]}')"
ESCAPED = "".join(f"\\\\u{ord(digit):04x}" for digit in IDS[2])
FULL_WIDTH = "".join(chr(0xFF10 + int(digit)) for digit in IDS[2])
SURFACED_CASES = {
    "found, then recommended": ((FOUND, WANTED), ()),
    "never found": ((WANTED,), (IDS[2],)),
    "found too late": ((WANTED, FOUND), (IDS[2],)),
    "recommended again once found": ((WANTED, FOUND, WANTED), ()),
    "only viewed": ((f"tools.view_product_information('{IDS[2]}')", WANTED), (IDS[2],)),
    "searched by its number": ((f"tools.find_product(q='{IDS[2]}')", WANTED), (IDS[2],)),
    "searched among words": ((f"tools.find_product(q='lamp {IDS[2]} red')", WANTED), (IDS[2],)),
    "smuggled elsewhere": ((f"tools.find_product(q='lamp', shop_id='{IDS[2]}')", WANTED), (IDS[2],)),
    "hidden by escapes in JSON in a string": (
        (f"tools.find_product(q='x', price='[\"{ESCAPED}\"]')", WANTED),
        (IDS[2],),
    ),
    "in full-width digits": ((f"tools.find_product(q='{FULL_WIDTH}')", WANTED), (IDS[2],)),
    "a neighbour of a searched number": ((f"tools.find_product(q='{IDS[0]}')", WANTED), ()),
    "one of two": ((FOUND, f"tools.recommend_product('{IDS[0]},9')"), ("9",)),
}


@pytest.mark.parametrize("case", SURFACED_CASES)
def test_an_id_counts_only_when_a_search_brought_it(case):
    lines, unsurfaced = SURFACED_CASES[case]
    assert body(agent(*lines)).unsurfaced == unsurfaced


def test_the_surfaced_rule_can_be_switched_off_by_policy():
    source = agent(f"tools.recommend_product('{IDS[2]}')")
    off = EpisodeRules(policy_sha256="0", catalogue_sha256="1", is_surfaced_rule_on=False)
    assert run_episode(source, problem(), ports(reference_sandbox(source)), off).body.unsurfaced == ()


# -- agentic or not


def test_calls_written_by_python_are_code_and_the_run_is_not_agentic():
    got = body(agent(FOUND, f"tools.recommend_product('{IDS[0]}')"), StandGateway())
    assert {event.emitter for event in got.events} == {"code"} and not got.is_agentic
