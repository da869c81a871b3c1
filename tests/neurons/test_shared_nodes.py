"""Three validator processes share a race end to end: one gets the agents, all settle alike, the shadow pays nobody."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from harness.agents.registry import baseline_source, reference_agent
from neurons.cli.race import app as race_app
from neurons.demo import DemoAgent
from tests.neurons.arena_stand import short_folder
from tests.neurons.shared_nodes_stand import Network, SharedNode, wait_for

CLOSES_IN_MS = 26_000
SETTLED_S = 75.0
AGENTS = (
    DemoAgent(name="expert", uri="//Ada", source=baseline_source("scripted-expert"), about=""),
    DemoAgent(name="subtask", uri="//Dov", source=reference_agent("subtask").source, about=""),
)


@pytest.fixture(scope="module")
def base() -> Iterator[Path]:
    with short_folder() as folder:
        yield folder


def cli(*arguments: str) -> str:
    """What `arena race` prints. Fails with its output where it does not end with 0."""
    done = CliRunner().invoke(race_app, arguments)
    assert done.exit_code == 0, done.output
    return done.stdout


def has_settled(node: SharedNode) -> bool:
    return '"stage": "settled"' in node.log()


def test_nodes_that_share_a_race_settle_alike_whoever_got_the_agents(base: Path, small_catalogue: Path) -> None:
    network = Network(base, small_catalogue, CLOSES_IN_MS)
    first, second = SharedNode(network, "//First", 50_000), SharedNode(network, "//Second", 30_000)
    shadow = SharedNode(network, "//Shadow", 40_000, is_shadow=True)
    nodes = (first, second, shadow)
    agents = {first.submit(agent) for agent in AGENTS}
    with contextlib.ExitStack() as stack:
        process = stack.enter_context(first.running())
        wait_for("sources on the shelf", lambda: first.shelved() == len(AGENTS), first, process, 30)
        processes = [process, *(stack.enter_context(node.running()) for node in nodes[1:])]
        for node, running in zip(nodes, processes, strict=True):
            wait_for("settled", lambda node=node: has_settled(node), node, running, SETTLED_S)
        for node, running in zip(nodes[:2], processes, strict=False):
            wait_for("paid", lambda node=node: '"event": "weights"' in node.log(), node, running, 10)
        assert [node.shelved() for node in nodes] == [len(AGENTS)] * 3
        require_equal(nodes, agents)
    assert [process.returncode for process in processes] == [0, 0, 0]
    first_weights, second_weights, shadow_weights = (
        asyncio.run(network.chain.weights(node.signer.hotkey)) for node in nodes
    )
    assert first_weights == second_weights != ()
    assert shadow_weights == ()


def require_equal(nodes: tuple[SharedNode, ...], agents: set[str]) -> None:
    """Every node lists the same settlement, byte for byte, and settles it again to the same bytes."""
    listed = [cli("list", "--json", "--state-dir", str(node.folder)) for node in nodes]
    assert listed[0] == listed[1] == listed[2]
    (race,) = json.loads(listed[0])
    assert race["state"] == "settled"
    assert {row["agent_version_id"] for row in race["standings"]} == agents
    assert {log["validator"] for log in race["inputs"]["logs"]} == {node.signer.hotkey for node in nodes}
    for node in nodes:
        at = ("--state-dir", str(node.folder))
        assert "counted:" in cli("show", race["race_id"], *at)
        assert "equal, byte for byte" in cli("replay", race["race_id"], *at)
