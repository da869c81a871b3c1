"""Releases N and N+1 in one race: a validator of another release beside two of this one.

`ARENA_PROVE_RELEASE` names the other's `arena`: `make install` in a clone of its commit, then `.venv/bin/arena` there.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess

import msgspec
import pytest
from msgspec.structs import replace

from arena.race.draw import permitted_validators
from tests.neurons.arena_stand import build_small_catalogue, short_folder
from tests.neurons.shared_nodes_stand import Network, SharedNode, stop_all, wait_for
from tests.neurons.test_shared_nodes import SETTLED_S, listed_race, race_together, settled_by


@pytest.mark.prove
def test_releases_settle_and_pay_alike_and_one_that_misses_a_policy_says_so_and_keeps_its_permit() -> None:
    if not (arena := os.environ.pop("ARENA_PROVE_RELEASE", "")):  # to a node it would be an unknown setting
        pytest.skip("ARENA_PROVE_RELEASE names no `arena` of another release")
    with short_folder() as base, contextlib.ExitStack() as stack:
        network = Network(base, build_small_catalogue(base), races=12)
        ours = first, second = SharedNode(network, "//First", 50_000), SharedNode(network, "//Second", 30_000)
        other = SharedNode(network, "//Other", 40_000, program=(arena, "validator"))

        def said(*words: str) -> str:
            return subprocess.run([arena, *words, "--state-dir", other.folder], capture_output=True, text=True).stdout

        race, (*processes, behind) = race_together(stack, network, nodes := (*ours, other))
        weights = [asyncio.run(network.chain.weights(node.signer.hotkey)) for node in nodes]
        assert weights[0] == weights[1] == weights[2] != ()
        assert "equal, byte for byte" in said("race", "replay", race)

        rules = replace(network.policy, race=replace(network.policy.race, lambda_e4=100))
        (base / "files" / "policy.json").write_bytes(msgspec.json.encode(rules))
        first.publish()
        wait_for("told", lambda: all('"code":"V2104"' in node.log() for node in nodes), other, behind, SETTLED_S)
        between = lambda: all(node.log().rpartition('"happened":"')[2].startswith("RaceOpened") for node in ours)  # noqa: E731
        wait_for("between two races", between, other, behind, SETTLED_S)
        stop_all(processes)
        before = settled_by(first) | settled_by(second)
        again, _ = [stack.enter_context(node.running()) for node in ours]
        wait_for("settled", lambda: bool(settled_by(first) & settled_by(second) - before), first, again, SETTLED_S)
        race = max(settled_by(first) & settled_by(second))
        assert (found := listed_race(first, race)) == listed_race(second, race)
        assert found["policy_sha256"] == rules.policy_sha256 and race not in settled_by(other)
        own = f'"race":"{max(settled_by(other))}","status":"ok"'
        wait_for("paid again", lambda: other.log().count(own) > 1, other, behind, SETTLED_S)
        told = ("2 heard, 2 under other rules", "U3036", "V2104")
        wait_for("said", lambda: all(words in said("validator", "status") for words in told), other, behind, SETTLED_S)
        permits = permitted_validators(asyncio.run(network.chain.metagraph()))
        assert {node.signer.hotkey for node in nodes} <= set(permits)
