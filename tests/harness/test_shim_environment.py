"""SN15's present contract: an agent's turns in a jail, and what the session answers to envelopes of every kind."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from harness.limits import EpisodeLimits
from harness.tools.registry import environment_problem
from harness.trace import ToolCall
from problems.model import BUCKETS, Problem
from tests.harness.agent_stand import is_success, play, problems
from tests.harness.jail_stand import WHY_NO_JAIL, best_sandbox, has_jail, reference_sandbox
from tests.harness.test_shim_interface import guest

PROBLEMS = {problem.bucket: problem for problem in problems()}
AGENT = Path(__file__).with_name("sn15_environment_agent.py").read_text("utf-8")


@pytest.mark.parametrize("bucket", BUCKETS)
def test_an_agent_of_the_present_contract_runs_unmodified_in_a_jail_and_its_calls_are_the_models(bucket: str) -> None:
    if not has_jail():
        pytest.skip(WHY_NO_JAIL)
    episode = play(AGENT, PROBLEMS[bucket], best_sandbox(), profile="environment")
    body = episode.body
    assert (body.stop, body.failure) == ("terminated", None), episode.exit.output_tail
    calls = [event for event in body.events if isinstance(event, ToolCall)]
    assert body.is_agentic and {call.emitter for call in calls} == {"llm"}
    assert [call.name for call in calls][-2:] == ["recommend_product", "terminate"]
    assert is_success(body, PROBLEMS[bucket])
    told = [step["environment_result"]["calls"] for step in json.loads(body.claim)]
    assert [done["observation"]["done"] for turn in told for done in turn][-1] is True
    assert sum(map(len, told)) == len(calls)  # the turn that each step sent twice was executed once


def test_the_searches_of_the_older_contract_are_gone_and_an_undeclared_argument_is_left_out() -> None:
    source = """
from src.agent.proxy_client import ProxyClient
def agent_main(problem_data):
    proxy, environment = ProxyClient(), problem_data["environment"]
    gone = proxy.get("/search/find_product", {"q": "lamp", "page": 1})
    action = {"name": "find_product", "args": {"q": "lamp", "colour": "red"}}
    envelope = {**environment["binding"], "call_id": "a", "idempotency_key": "a", "turn": 1, "action": action}
    return [gone, proxy.post("/environment/call", envelope)["observation"]["error"]]
"""
    episode = play(source, PROBLEMS["product"], reference_sandbox(source), profile="environment")
    assert json.loads(episode.body.claim) == [None, None], episode.exit.output_tail
    assert "410" in episode.exit.output_tail
    (call,) = [event for event in episode.body.events if isinstance(event, ToolCall)]
    assert (call.ignored_parameters, json.loads(call.arguments)) == (("colour",), {"q": "lamp", "colour": "red"})


ENVELOPES = [
    ({"turn": 2}, 409),
    ({"turn": 0}, 422),
    ({"turn": True}, 422),
    ({"session_id": "another"}, 409),
    ({"tool_contract_version": "oro_task_tools_v2"}, 409),
    ({"call_id": ""}, 422),
    ({"idempotency_key": None}, 422),
    ({"calls": [], "action": None}, 422),
    ({"calls": [{"call_id": "b", "action": {}}]}, 422),
    ({"action": "find_product"}, 422),
    ({"calls": [{"call_id": "b", "action": {}}] * 2, "action": None}, 422),
    ({"calls": [{"call_id": f"{n}", "action": {}} for n in range(17)], "action": None}, 422),
    ({"tool_nonces": {"a": "b"}}, None),
]


def test_an_envelope_is_refused_as_sn15_refuses_it_and_extra_fields_are_passed_over() -> None:
    problem = Problem(problem_id="p", bucket="product", query="q", rewards=())
    told = guest(f"""
problem = json.loads({_problem_text(problem)!r})
sn15.open_problem(problem)
from src.agent.proxy_client import ProxyClient
client = ProxyClient()
good = {{**problem["environment"]["binding"], "call_id": "a", "idempotency_key": "a", "turn": 1,
        "action": {{"name": "find_product", "args": {{"q": "x"}}}}}}
out = []
for change in json.loads({json.dumps([change for change, _ in ENVELOPES])!r}):
    answer = client.post_verbose("/environment/call", {{**good, **change}})
    out.append(answer.error and answer.error["status"])
out.append(client.post_verbose("/environment/call", [1]).error["status"])
out.append(client.post_verbose("/environment/call", {{**good, "action": {{"name": "terminate"}}}}).error["status"])
out.append(len(problem["environment"]["policy_view"]["tools"]))
""")
    assert told["out"] == [*(status for _, status in ENVELOPES), 422, 409, 7]
    assert [params["name"] for _, params in told["sent"]] == ["find_product"]


def test_after_terminate_a_turns_other_calls_are_told_that_it_is_over() -> None:
    problem = Problem(problem_id="p", bucket="product", query="q", rewards=())
    told = guest(f"""
problem = json.loads({_problem_text(problem)!r})
sn15.open_problem(problem)
calls = [{{"call_id": n, "action": {{"name": name, "args": {{}}}}}} for n, name in
         (("1", "find_product"), ("2", "terminate"), ("3", "find_product"))]
session = sn15.session()
turn = {{**problem["environment"]["binding"], "call_id": "a", "idempotency_key": "a", "turn": 1, "calls": calls}}
out = [[done["observation"]["done"] for done in session.call(turn)["calls"]], session.call(turn)["replayed"]]
try:
    session.call({{**turn, "call_id": "b", "idempotency_key": "b", "turn": 2}})
except Exception as error:
    out.append([error.status, str(error)])
""")
    assert told["out"] == [[False, True, True], True, [409, "session already reached a terminal observation"]]
    assert [params["name"] for _, params in told["sent"]] == ["find_product", "terminate"]


def _problem_text(problem: Problem) -> str:
    return msgspec.json.encode(environment_problem(problem, EpisodeLimits())).decode()
