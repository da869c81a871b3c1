"""Three validator processes share a race end to end: one gets files and agents, all settle alike, the shadow pays
nobody."""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from foundation.errors import ArenaError
from harness.agents.registry import baseline_source, reference_agent
from neurons.cli.operator import app as operator_app
from neurons.cli.race import app as race_app
from neurons.demo.demo import DemoAgent
from neurons.health.status import read_node_file
from tests.neurons.arena_stand import short_folder
from tests.neurons.shared_nodes_stand import Network, SharedNode, stop_all, wait_for

SETTLED_S = 200.0  # a machine too busy for the first race may settle a later one
AGENTS = (
    DemoAgent("expert", "//Ada", baseline_source("scripted-expert")),
    DemoAgent("subtask", "//Dov", reference_agent("subtask").source),
)


def cli(*arguments: str) -> str:
    """What `arena race` prints. Fails with its output where it does not end with 0."""
    done = CliRunner().invoke(race_app, arguments)
    assert done.exit_code == 0, done.output
    return done.stdout


def settled_by(node: SharedNode) -> set[str]:
    """The races this node settled itself, by its own log."""
    events = [json.loads(line) for line in node.log().splitlines() if line.startswith('{"')]
    lacking = {event["race"] for event in events if event["event"] == "no settlement of ours"}
    return {event["race"] for event in events if event.get("stage") == "settled"} - lacking


def settled_of(agents: set[str], nodes: tuple[SharedNode, ...]) -> set[str]:
    """The races of just these agents that every node settled, from the logs of all: a log may be seconds too late."""
    hotkeys, races = {node.signer.hotkey for node in nodes}, set.intersection(*(settled_by(node) for node in nodes))
    found = {race: listed_race(nodes[0], race) for race in races}
    return {race for race in races if raced(found[race]) == agents and counted(found[race]) == hotkeys}


def raced(found: dict[str, Any]) -> set[str]:
    return {row["agent_version_id"] for row in found["standings"]}


def counted(found: dict[str, Any]) -> set[str]:
    """The validators whose logs a settlement was made from."""
    return {log["validator"] for log in found["inputs"]["logs"]}


def test_nodes_that_share_a_race_settle_alike_whoever_got_files_and_agents(small_catalogue: Path) -> None:
    with short_folder() as base, contextlib.ExitStack() as stack:
        network = Network(base, small_catalogue)
        first, second = SharedNode(network, "//First", 50_000), SharedNode(network, "//Second", 30_000)
        shadow = SharedNode(network, "//Shadow", 40_000, is_shadow=True)
        nodes = (first, second, shadow)
        race, processes = race_together(stack, network, nodes)
        require_files(nodes, network.policy.policy_sha256)
        stop_all(processes)
        assert [process.returncode for process in processes] == [0, 0, 0]
        first_weights, second_weights, shadow_weights = (
            asyncio.run(network.chain.weights(node.signer.hotkey)) for node in nodes
        )
        assert first_weights == second_weights != ()
        assert shadow_weights == ()
        require_named(first, race)


def race_together(
    stack: contextlib.ExitStack, network: Network, nodes: tuple[SharedNode, ...]
) -> tuple[str, list[subprocess.Popen[bytes]]]:
    """Start the nodes, hand files and agents to the first; a race that all settled alike, and the processes."""
    nodes[0].publish()
    committed = [(agent, network.commit(agent)) for agent in AGENTS]
    agents = {submission.agent_version_id for _, submission in committed}
    processes = [stack.enter_context(node.running()) for node in nodes]
    for agent, submission in committed:
        nodes[0].hand_in(agent, submission)
    wait_for("settled by all", lambda: bool(settled_of(agents, nodes)), nodes[0], processes[0], SETTLED_S)
    race = min(settled_of(agents, nodes))
    for node, running in zip(nodes, processes, strict=True):
        wait_for("paid", lambda node=node: node.is_shadow or '"event":"weights"' in node.log(), node, running, 60)
    require_equal(nodes, race, agents)
    return race, processes


def require_equal(nodes: tuple[SharedNode, ...], race: str, agents: set[str]) -> None:
    """Every node lists the same settlement, byte for byte, and settles it again to the same bytes."""
    found, *others = [listed_race(node, race) for node in nodes]
    assert others == [found, found]
    assert (found["state"], found["force"]) == ("settled", "own")
    assert (raced(found), counted(found)) == (agents, {node.signer.hotkey for node in nodes})
    for node in nodes:
        at = (race, "--state-dir", str(node.folder))
        assert "counted:" in cli("show", *at)
        assert "equal, byte for byte" in cli("replay", *at)


def require_files(nodes: tuple[SharedNode, ...], policy_sha256: str) -> None:
    """Every node runs under the operator's policy and holds the one release whole."""
    beats = [read_node_file(node.folder).beat for node in nodes]
    assert {beat.policy_sha256 for beat in beats if beat} == {policy_sha256}
    shown = [CliRunner().invoke(operator_app, ["publish", "--state-dir", str(node.folder)]).stdout for node in nodes]
    without_folders = {text.partition(" missing in ")[0] for text in shown}
    assert len(without_folders) == 1 and without_folders.pop().endswith("5 files, 0")


def listed_race(node: SharedNode, race: str) -> dict[str, Any]:
    """A race as `arena race list` has it. Canonical values: equal ones are equal bytes."""
    races = json.loads(cli("list", "--json", "--state-dir", str(node.folder)))
    return next(each for each in races if each["race_id"] == race)


def require_named(node: SharedNode, race: str) -> None:
    """Under another policy the race is ranked as it was raced; a counted log that is gone is named."""
    at = (race, "--state-dir", str(node.folder))
    assert "under paper:" in cli("replay", *at, "--policy", "paper")
    others = counted(listed_race(node, race)) - {node.signer.hotkey}
    shutil.rmtree(node.folder / "held")
    failed = CliRunner().invoke(race_app, ["replay", *at]).exception
    assert isinstance(failed, ArenaError) and failed.failure.code == "V2050"
    assert any(other in failed.failure.detail for other in others)
