"""A miner that submits, asks, withdraws, repeats itself and meets pauses in any order: the door answers as a model of
ten lines does, and never in 5xx but for the pause."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from arena.chain.keys import generate_signer
from arena.door.service import PauseState, put_pause
from arena.store.postgres import PostgresStore
from arena.submissions.model import SignedSubmission
from tests.arena.door_stand import AGENT, WIDE_RULES, Miner, Stand, serving

VERSIONS = st.integers(0, 2)
UNKNOWN, WAITING, WITHDRAWN = "unknown", "waiting", "withdrawn"


class DoorMachine(RuleBasedStateMachine):
    """One new miner at an open door. `stand` is set by the test."""

    stand: Stand

    @initialize()
    def arrive(self) -> None:
        self.http = httpx2.Client(timeout=30)
        self.miner = asyncio.run(Miner(self.stand).register())
        self.states = dict.fromkeys(range(3), UNKNOWN)
        self.made: dict[int, SignedSubmission] = {}
        self.last: httpx2.Request | None = None
        self.is_paused = False

    def teardown(self) -> None:
        if getattr(self, "is_paused", False):
            self.pause()
        if hasattr(self, "http"):
            self.http.close()

    def send(self, request: httpx2.Request) -> tuple[int, dict]:
        self.last = request
        answer = self.http.send(request)
        return answer.status_code, answer.json()

    @rule(version=VERSIONS)
    def submit(self, version: int) -> None:
        made = self.made[version] = asyncio.run(self.miner.commit(f"{AGENT}# {version}\n"))
        status, told = self.send(self.miner.request(made))
        if self.is_paused:
            assert (status, told["code"]) == (503, "V2200")
        elif any(state == WAITING for other, state in self.states.items() if other != version):
            assert (status, told["code"]) == (409, "A1012")
        else:
            assert (status, told["agent_version_id"]) == (202, made.agent_version_id)
            self.states[version] = WAITING

    @rule(version=VERSIONS)
    def withdraw(self, version: int) -> None:
        self.state_is(version, "DELETE", WITHDRAWN if self.states[version] != UNKNOWN else UNKNOWN)

    @rule(version=VERSIONS)
    def ask(self, version: int) -> None:
        self.state_is(version, "GET", self.states[version])

    def state_is(self, version: int, method: str, state: str) -> None:
        made = self.made.get(version)
        target = f"/v1/submissions/{made.agent_version_id if made else 'ab' * 32}"
        status, told = self.send(self.miner.signed(method, target))
        if state == UNKNOWN:
            assert (status, told["code"]) == (404, "V2113")
        else:
            assert (status, told["state"]) == (200, state)
            self.states[version] = state

    @rule()
    def ask_for_all(self) -> None:
        status, told = self.send(self.miner.signed("GET", "/v1/submissions"))
        states = {version: state for version, state in self.states.items() if state != UNKNOWN}
        known = {self.made[version].agent_version_id: state for version, state in states.items()}
        assert (status, {each["agent_version_id"]: each["state"] for each in told}) == (200, known)

    @rule()
    def repeat(self) -> None:
        if self.last is not None:
            status, told = self.send(self.last)
            assert (status, told["code"]) == (401, "V2110")

    @rule()
    def pause(self) -> None:
        async def change() -> None:
            store = await PostgresStore.open(self.stand.dsn, self.stand.validator)
            await put_pause(store, PauseState(is_paused=not self.is_paused, reason="by the test", since_ms=1))
            await store.close()

        asyncio.run(change())
        self.is_paused = not self.is_paused


@pytest.fixture(scope="module")
def stand(postgres, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stand]:
    folder: Path = tmp_path_factory.mktemp("door")
    made = Stand(folder, "", f"//{generate_signer().hotkey}")
    made.dsn = postgres.dsn_for(made.validator)
    with serving(made, WIDE_RULES):
        yield made


@pytest.mark.parametrize("examples", [5, pytest.param(150, marks=pytest.mark.prove)])
def test_any_order_of_requests_is_answered_as_the_model_says(stand: Stand, examples: int) -> None:
    DoorMachine.stand = stand
    run_state_machine_as_test(
        DoorMachine, settings=settings(max_examples=examples, stateful_step_count=12, deadline=None)
    )
