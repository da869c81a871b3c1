"""Validators that share a race: one that says the opposite of two, and one alone that only watches."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from arena.chain.keys import generate_signer
from arena.race.schedule import timeline
from arena.store.postgres import PostgresStore
from neurons.race.weights import WeightsLoop
from tests.neurons.clock_stand import Time
from tests.neurons.shared_stand import (
    CLOSES_MS,
    DAILY,
    HOUR_MS,
    SharedDesk,
    chain_at,
    enrol,
    submit,
)

PLAN = timeline(CLOSES_MS, DAILY.race)
DAY_MS = 24 * HOUR_MS
STEP_S = 1_800


@pytest.fixture
async def desks(server, tmp_path: Path) -> AsyncIterator[list[SharedDesk]]:
    time, made = Time(), []
    chain = chain_at(tmp_path, time)
    for _ in range(3):
        signer = generate_signer()
        store = await PostgresStore.open(server.dsn_for(signer.hotkey), signer.hotkey)
        made.append(SharedDesk(store, signer, tmp_path, time, chain))
    await enrol(made, (50, 30, 40), tmp_path)
    yield made
    for desk in made:
        await desk.store.close()


async def pass_until(desks: list[SharedDesk], at_ms: int) -> None:
    """Let everybody turn while time passes."""
    time = desks[0].time
    while time.ms < at_ms:
        for desk in desks:
            await desk.turn()
        time.pass_s(STEP_S)


async def test_one_validators_word_lets_nobody_in_and_keeps_nobody_out(desks):
    """All three qualify everything; the gates of two reject the evil agent, and the third says the opposite of them."""
    first, second, liar = desks
    for desk in desks:
        desk.gate = lambda name: "reject" if "evil" in name else "accept"
        await desk.turn()
    liar.gate = lambda name: "accept" if "evil" in name else "reject"
    good, evil = [(await submit(desks, name)).agent_version_id for name in ("good", "evil")]
    await pass_until(desks, PLAN.field_receipt_ms + HOUR_MS)
    fields = [(await desk.race(1)).field.field for desk in (first, second)]
    assert fields[0] == fields[1] and [each.subject.agent_version_id for each in fields[0]] == [good]
    (agreed,) = [row.agreed for row in await first.store.submissions() if row.subject.agent_version_id == evil]
    assert (agreed.is_racing, agreed.state, agreed.accepts, agreed.rejects) == (False, "rejected", 1, 2)
    assert (agreed.speakers, agreed.needed, agreed.suite_passes) == (3, 2, 3)


async def test_a_shadow_settles_and_publishes_and_sets_no_weights(desks):
    alone, *others = desks
    for desk in others:
        await desk.chain.set_stake(desk.signer.hotkey, 0)
    alone.weights = WeightsLoop(alone.node, alone.clock, is_shadow=True)
    await alone.turn()
    await submit(desks[:1], "good")
    alone.time.ms = CLOSES_MS
    await pass_until(desks[:1], CLOSES_MS + 3 * HOUR_MS)
    assert (await alone.race(1)).stage == "settled"
    assert await alone.chain.weights(alone.signer.hotkey) == ()
    assert await alone.store.weights_results() == []
