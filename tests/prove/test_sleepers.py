"""Nobody wins by sleeping, copying or luck: 50 and 250 sleepers before the real queue, and a whole node."""

from __future__ import annotations

import asyncio
import itertools
import random
import subprocess

import pytest
from msgspec.structs import replace

from arena.chain.keys import keypair_signer
from arena.policies import PAPER
from arena.race.schedule import qualified_within_ms
from arena.records.log import agent_version_id
from arena.records.model import SettlementRecord
from arena.records.sequencer import Sequencer
from arena.store.embedded import start_embedded
from arena.store.location import read_location
from arena.store.postgres import PostgresStore
from foundation.canonical import text_hash
from harness.agents.registry import baseline_source
from neurons.demo.demo import WATCH_S, DemoAgent, DemoRun, running_validator
from neurons.race.log import RaceLog
from tests.arena.log_stand import HOST, Clock
from tests.arena.test_store_queue import served_ms
from tests.keys import generate_signer
from tests.neurons.arena_stand import SMALL, build_small_catalogue, lay_run, register_and_submit, short_folder
from tests.test_cli import arena

SLEEPER = """
import time
def agent_main(problem):
    time.sleep(20)
"""
GAMBLER = """
import random
from arena_sdk import tools
def agent_main(problem):
    words = [word for word in problem["query"].split() if len(word) > 4]
    found = tools.find_product(q=" ".join(random.sample(words, min(3, len(words)))))
    if found:
        tools.recommend_product(product_ids=random.choice(found)["product_id"])
    tools.terminate()
"""
# of an honest agent that gives up on every fifth problem
GIVES_UP = """
_whole = agent_main
def agent_main(problem):
    if sum(map(ord, problem["problem_id"])) % 5:
        _whole(problem)
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


async def settled_races(run: DemoRun, process: subprocess.Popen[bytes], count: int) -> list[SettlementRecord]:
    """The settlements of the first races, read through the validator's own role while it runs."""
    found: list[SettlementRecord] = []
    async with asyncio.timeout(1_800):
        while (location := read_location(run.folder)) is None:
            await asyncio.sleep(WATCH_S)
        store = await PostgresStore.open(location.dsn, location.validator)
        try:
            for number in range(1, count + 1):
                log = RaceLog(store, f"race-{number:06}")
                while log.settlement is None:
                    assert process.poll() is None, (run.folder / "validator.log").read_text()[-2_000:]
                    await asyncio.sleep(WATCH_S)
                    await log.refresh()
                found.append(log.settlement)
        finally:
            await store.close()
    return found


def words_of(seed: int) -> str:
    """Texts that nobody else has, as an agent's own prompt would be."""
    dice = random.Random(seed)
    words = ("".join(dice.choices("abdegiklmnoprstu", k=dice.randint(4, 9))) for _ in range(480))
    return "".join(f"RULE_{n} = {' '.join(itertools.islice(words, 8))!r}\n" for n in range(60))


RACE = replace(SMALL.race, qualifying_grace_ms=900_000, run_ms=1_800_000)  # for a host that others load
BETTER = f"{baseline_source('scripted-expert')}\n{words_of(1)}"
WORSE = f"{baseline_source('scripted-expert')}\n{words_of(2)}{GIVES_UP}"


@pytest.mark.prove
def test_the_better_of_two_honest_agents_is_crowned_and_paid_among_sleepers_copies_and_a_gambler() -> None:
    policy = replace(
        SMALL,
        limits=replace(SMALL.limits, agent_time_ms=4_000),
        qualifying=replace(SMALL.qualifying, worker_ms=16_000),
        race=replace(RACE, problems=24, batch_problems=30, worker_ms=400_000, seats=20),
        promotion=PAPER.promotion,
    )
    sources = {f"sleeper{number}": f"{SLEEPER}# {number}\n" for number in range(20)}
    sources |= {"gambler": GAMBLER, "worse": WORSE, "better": BETTER}
    for number in range(4):
        sources[f"copy{number}"] = BETTER + "".join(f"EXTRA_{number}_{line} = {line}\n" for line in range(6))
    agents = tuple(DemoAgent(name, f"//{name}", source) for name, source in sources.items())
    with short_folder() as base:
        run = replace(lay_run(base, build_small_catalogue(base), policy=policy, workers=6), agents=agents)
        asyncio.run(register_and_submit(run.settings, run.agents))
        with running_validator(run) as process:
            settlements = asyncio.run(settled_races(run, process, 3))
            copy = arena("status", "--wallet.hotkey", "//copy3", "--state-dir", str(run.folder)).stdout
    names = {agent_version_id(keypair_signer(one.uri).hotkey, text_hash(one.source)): one.name for one in agents}
    raced = [{names[row.agent_version_id] for row in one.standings} for one in settlements]
    assert all(names_of >= {"better", "worse"} and "sleeper" not in str(names_of) for names_of in raced), raced
    assert [names.get(one.top_agent_version_id) for one in settlements] == [None, "better", "better"]
    assert "it is too like" in copy
    last = settlements[-1]
    hotkeys = {name: keypair_signer(f"//{name}").hotkey for name in names.values()}
    assert last.places[0] == hotkeys["better"] and not {hotkeys[f"copy{n}"] for n in range(4)} & set(last.places)
    assert len(last.uids) > 1
