"""A ReAct agent written against SN15's public interface, unmodified, in a real jail, on all three buckets."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.catalogue.port import Catalogue
from harness.inference.client import OpenAIUpstream
from harness.inference.gateway import Gateway, Ledger, ledger_sha256
from harness.inference.port import InferenceRules
from harness.inference.scripted import MODELS, start_scripted_server
from harness.limits import EpisodeLimits
from harness.sandbox.port import Sandbox
from harness.session import Episode, EpisodePorts, EpisodeRules, run_episode
from harness.tools.registry import make_toolbox
from harness.trace import ToolCall
from problems.model import BUCKETS, Problem
from problems.outcome import OutcomeScore
from problems.score import score
from problems.synthesis import synthesize
from problems.title_index import TitleIndex
from problems.titles import LexicalTitles
from tests.harness.catalogue_stand import catalogue_of
from tests.harness.jail_stand import WHY_NO_JAIL, best_sandbox, has_jail, reference_sandbox
from tests.problems.stand import synthetic_shelf

REACT = Path(__file__).with_name("sn15_react_agent.py").read_text("utf-8")


def _shelf() -> TitleIndex:
    return synthetic_shelf(3_000, 5)


@functools.cache
def _problems() -> dict[str, Problem]:
    return {p.bucket: p for p in synthesize(_shelf(), seed=23, counts=dict.fromkeys(BUCKETS, 1))}


@pytest.fixture(scope="module")
def catalogue(tmp_path_factory: pytest.TempPathFactory) -> Catalogue:
    return catalogue_of(_shelf().products, tmp_path_factory.mktemp("shim"))


@pytest.fixture(scope="module")
def scripted() -> Iterator[str]:
    with start_scripted_server() as server:
        yield server.base_url


def run(
    source: str,
    problem: Problem,
    catalogue: Catalogue,
    base_url: str,
    sandbox: Sandbox,
    ledger: Ledger | None = None,
) -> Episode:
    toolbox = make_toolbox("sn15", catalogue, problem)
    gateway = Gateway(
        InferenceRules(models=MODELS, attempts=2),
        [OpenAIUpstream("test", base_url, "", 10_000)],
        toolbox.schemas,
        EpisodeLimits(),
        lambda _: None,
        ledger=ledger,
    )
    rules = EpisodeRules(policy_sha256="0" * 64, catalogue_sha256=catalogue.content_sha256, models=MODELS)
    return run_episode(source, problem, EpisodePorts(toolbox=toolbox, gateway=gateway, sandbox=sandbox), rules)


def tool_calls(episode: Episode) -> list[ToolCall]:
    return [event for event in episode.body.events if isinstance(event, ToolCall)]


@pytest.mark.parametrize("bucket", BUCKETS)
def test_an_sn15_react_agent_runs_unmodified_in_a_jail_and_its_calls_are_the_models(
    bucket: str, catalogue: Catalogue, scripted: str
) -> None:
    if not has_jail():
        pytest.skip(WHY_NO_JAIL)
    problem, ledger = _problems()[bucket], Ledger()
    episode = run(REACT, problem, catalogue, scripted, best_sandbox(), ledger=ledger)
    body = episode.body
    assert (body.stop, body.failure) == ("terminated", None), episode.exit.output_tail
    assert body.is_agentic and body.unsurfaced == ()
    assert {call.emitter for call in tool_calls(episode)} == {"llm"}
    names = [call.name for call in tool_calls(episode)]
    assert names[-2:] == ["recommend_product", "terminate"]
    assert not {"check_product_match", "calculate_voucher"} & set(names)  # the agent's own functions ran instead
    outcome = score(problem, body.recommended or (), catalogue.product, LexicalTitles(), unsurfaced=body.unsurfaced)
    assert isinstance(outcome, OutcomeScore) and outcome.is_success
    claimed = [call["name"] for step in json.loads(body.claim) for call in step["completion"]["message"]["tool_call"]]
    assert [name for name in claimed if name not in ("check_product_match", "calculate_voucher")] == names
    assert bucket == "shop" or len(claimed) > len(names)
    assert body.ledger_sha256 == ledger_sha256(ledger.lines())


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


def settled(lines: str, catalogue: Catalogue, scripted: str) -> Episode:
    source = AGENT + "".join(f"    {line}\n" for line in lines.splitlines())
    return run(source, _problems()["product"], catalogue, scripted, reference_sandbox(source))


def names_of(episode: Episode) -> list[str]:
    return [call.name for call in tool_calls(episode)]


SAID = """calls = [hits, said('recommend_product', product_ids=ids[0]), said('terminate')]
return [create_dialogue_step('t', calls, '', '', 1)]"""


def test_a_recommendation_that_only_stands_in_the_dialogue_becomes_a_recorded_call(
    catalogue: Catalogue, scripted: str
) -> None:
    episode = settled(SAID, catalogue, scripted)
    assert names_of(episode) == ["find_product", "recommend_product", "terminate"]
    assert {call.emitter for call in tool_calls(episode)} == {"code"}
    assert (episode.body.stop, episode.body.failure, episode.body.unsurfaced) == ("terminated", None, ())
    assert json.loads(episode.body.claim)[0]["completion"]["message"]["tool_call"][1]["result"] == "made up"


def test_the_surfaced_rule_holds_for_a_recommendation_from_the_dialogue(catalogue: Catalogue, scripted: str) -> None:
    target = _problems()["product"].rewards[0].product_id
    episode = settled(SAID.replace("hits, ", "").replace("ids[0]", repr(f"{target}9")), catalogue, scripted)
    assert episode.body.recommended == (f"{target}9",) and episode.body.unsurfaced == (f"{target}9",)


def test_the_last_recommendation_of_the_dialogue_wins_over_one_executed_before(
    catalogue: Catalogue, scripted: str
) -> None:
    lines = """r = execute_tool_call("recommend_product", {"product_ids": ids[0]})
return [create_dialogue_step("t", [r, said("recommend_product", product_ids=ids[1])], "", "", 1)]"""
    episode = settled(lines, catalogue, scripted)
    assert names_of(episode).count("recommend_product") == 2
    assert episode.body.recommended == (json.loads(tool_calls(episode)[0].result)[1]["product_id"],)
