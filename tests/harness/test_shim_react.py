"""A ReAct agent written against SN15's public interface, unmodified, in a real jail, on all three buckets."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from harness.inference.gateway import completed_lines, ledger_sha256
from harness.session import Episode
from harness.trace import ToolCall
from problems.model import BUCKETS
from tests.harness.agent_stand import is_success, play, problems
from tests.harness.jail_stand import WHY_NO_JAIL, best_sandbox, has_jail, reference_sandbox

PROBLEMS = {problem.bucket: problem for problem in problems()}
REACT = Path(__file__).with_name("sn15_react_agent.py").read_text("utf-8")


def tool_calls(episode: Episode) -> list[ToolCall]:
    return [event for event in episode.body.events if isinstance(event, ToolCall)]


@pytest.mark.parametrize("bucket", BUCKETS)
def test_an_sn15_react_agent_runs_unmodified_in_a_jail_and_its_calls_are_the_models(bucket: str) -> None:
    if not has_jail():
        pytest.skip(WHY_NO_JAIL)
    problem = PROBLEMS[bucket]
    episode = play(REACT, problem, best_sandbox())
    body = episode.body
    assert (body.stop, body.failure) == ("terminated", None), episode.exit.output_tail
    assert body.is_agentic and body.unsurfaced == ()
    assert {call.emitter for call in tool_calls(episode)} == {"llm"}
    names = [call.name for call in tool_calls(episode)]
    assert names[-2:] == ["recommend_product", "terminate"]
    assert not {"check_product_match", "calculate_voucher"} & set(names)  # the agent's own functions ran instead
    assert is_success(body, problem)
    claimed = [call["name"] for step in json.loads(body.claim) for call in step["completion"]["message"]["tool_call"]]
    assert [name for name in claimed if name not in ("check_product_match", "calculate_voucher")] == names
    assert bucket == "shop" or len(claimed) > len(names)
    assert body.ledger_sha256 == ledger_sha256(completed_lines(body.events))


AGENT = """
from src.agent.agent_interface import Tool, create_dialogue_step, execute_tool_call
from src.agent.proxy_client import ProxyClient
proxy = ProxyClient()
@Tool
def find_product(q, page=1):
    return proxy.get("/search/find_product", {"q": q, "page": page})
@Tool
def recommend_product(product_ids):
    return "ok"
@Tool
def terminate(status="success"):
    return "ok"
def said(name, **parameters):
    return {"name": name, "parameters": parameters, "tool_call_id": "x", "result": "made up"}
def agent_main(problem):
    hits = execute_tool_call("find_product", {"q": problem["query"][:40]})
    ids = [hit["product_id"] for hit in hits["result"]]
"""


def settled(lines: str) -> Episode:
    source = AGENT + "".join(f"    {line}\n" for line in lines.splitlines())
    return play(source, PROBLEMS["product"], reference_sandbox(source))


def names_of(episode: Episode) -> list[str]:
    return [call.name for call in tool_calls(episode)]


SAID = """calls = [hits, said('recommend_product', product_ids=ids[0]), said('terminate')]
return [create_dialogue_step('t', calls, '', '', 1)]"""


def test_a_recommendation_that_only_stands_in_the_dialogue_becomes_a_recorded_call() -> None:
    episode = settled(SAID)
    assert names_of(episode) == ["find_product", "recommend_product", "terminate"]
    assert {call.emitter for call in tool_calls(episode)} == {"code"}
    assert (episode.body.stop, episode.body.failure, episode.body.unsurfaced) == ("terminated", None, ())
    assert json.loads(episode.body.claim)[0]["completion"]["message"]["tool_call"][1]["result"] == "made up"


def test_the_surfaced_rule_holds_for_a_recommendation_from_the_dialogue() -> None:
    target = PROBLEMS["product"].rewards[0].product_id
    episode = settled(SAID.replace("hits, ", "").replace("ids[0]", repr(f"{target}9")))
    assert episode.body.recommended == (f"{target}9",) and episode.body.unsurfaced == (f"{target}9",)


def test_the_last_recommendation_of_the_dialogue_wins_over_one_executed_before() -> None:
    lines = """r = execute_tool_call("recommend_product", {"product_ids": ids[0]})
return [create_dialogue_step("t", [r, said("recommend_product", product_ids=ids[1])], "", "", 1)]"""
    episode = settled(lines)
    assert names_of(episode).count("recommend_product") == 2
    assert episode.body.recommended == (json.loads(tool_calls(episode)[0].result)[1]["product_id"],)
