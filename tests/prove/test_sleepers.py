"""Nobody waits for sleepers: 50 and 250 of them before the real queue, 20 before a whole node; some ten minutes."""

from __future__ import annotations

import asyncio

import pytest
from msgspec.structs import replace

from arena.chain.keys import generate_signer
from arena.policies import PAPER
from arena.race.schedule import qualified_within_ms
from arena.records.sequencer import Sequencer
from arena.store.embedded import start_embedded
from arena.store.postgres import PostgresStore
from neurons.demo.demo import DemoAgent
from tests.arena.log_stand import HOST, Clock
from tests.arena.queue_stand import served_ms
from tests.neurons.arena_stand import (
    SMALL,
    build_small_catalogue,
    lay_run,
    register_and_submit,
    short_folder,
)
from tests.neurons.test_race_end_to_end import race_to_the_end

SLEEPER = """
import time
def agent_main(problem):
    time.sleep(20)
"""


@pytest.mark.prove
@pytest.mark.parametrize(("sleepers", "workers"), [(50, 8), (250, 32)])
async def test_the_last_to_commit_is_qualified_in_time_however_many_sleep(sleepers: int, workers: int) -> None:
    agents, signer = {f"sleeper{number}": 59_000 for number in range(sleepers)}, generate_signer()
    agents["honest"] = 40_000
    with short_folder() as state:
        server = await asyncio.to_thread(start_embedded, state)
        try:
            store = await PostgresStore.open(server.dsn_for(signer.hotkey), signer.hotkey)
            sequencer = Sequencer(store, signer, Clock(), HOST)
            took_ms = await served_ms(store, sequencer, server.owner_dsn, PAPER, workers, agents)
            await store.close()
        finally:
            server.stop()
    print(f"{sleepers} sleepers, {workers} workers: {took_ms / 3_600_000:.2f} h")
    assert took_ms <= qualified_within_ms(PAPER, len(agents), workers)


@pytest.mark.prove
def test_an_honest_agent_that_commits_behind_twenty_sleepers_races() -> None:
    policy = replace(
        SMALL,
        limits=replace(SMALL.limits, agent_time_ms=4_000),
        qualifying=replace(SMALL.qualifying, worker_ms=8_000),
        race=replace(SMALL.race, qualifying_grace_ms=90_000),
    )
    sleepers = tuple(DemoAgent(f"sleeper{n}", f"//sleeper{n}", f"{SLEEPER}# {n}\n") for n in range(20))
    with short_folder() as base:
        run = lay_run(base, build_small_catalogue(base), policy=policy, names=("expert",))
        run = replace(run, agents=(*sleepers, *run.agents))
        asyncio.run(register_and_submit(run.settings, run.agents))
        view = race_to_the_end(run)
    names = {each.subject.agent_version_id: (each.name, each.state) for each in view.submissions}
    assert view.race.settlement is not None and view.race.settlement.state == "settled"
    racing = [names[row.agent_version_id] for row in view.race.settlement.standings]
    assert racing == [("expert", "qualified")]
    assert {state for name, state in names.values() if name != "expert"} <= {"accepted", "unqualified"}
