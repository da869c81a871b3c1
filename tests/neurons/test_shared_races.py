"""Three validators share two races: one lies, one is away, and the honest ones settle alike."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from arena.chain.keys import generate_signer
from arena.race.schedule import timeline
from arena.race.settle import inputs_again, settle, settlement_sha256
from arena.records.body import decode_content
from arena.records.model import SettlementRecord
from arena.store.postgres import PostgresStore
from foundation.canonical import canonical_bytes
from neurons.race.peers import RacePeers
from neurons.race.weights import WeightsLoop
from tests.arena.local_peers import PeerFault
from tests.neurons.clock_stand import Time
from tests.neurons.shared_stand import (
    CLOSES_MS,
    DAILY,
    HOUR_MS,
    LyingChain,
    SharedDesk,
    chain_at,
    enrol,
    flips,
    submit,
)

PLAN = timeline(CLOSES_MS, DAILY.race)
DAY_MS = 24 * HOUR_MS
STEP_S = 1_800


@pytest.fixture
async def desks(server, tmp_path: Path) -> AsyncIterator[list[SharedDesk]]:
    time, made = Time(), []
    chain, lying = chain_at(tmp_path, time), chain_at(tmp_path, time, LyingChain)
    for number in range(3):
        signer = generate_signer()
        store = await PostgresStore.open(server.dsn_for(signer.hotkey), signer.hotkey)
        made.append(SharedDesk(store, signer, tmp_path, time, lying if number == 2 else chain))
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


async def settlement_in_log(desk: SharedDesk, race_id: str) -> SettlementRecord:
    (found,) = [
        decode_content(record.content).payload
        async for record in desk.store.records(kinds=("settlement",), race_id=race_id)
    ]
    return found


async def test_a_liar_and_an_absence_leave_honest_validators_with_equal_settlements(desks):
    honest, away, liar = desks
    for desk in desks:
        await desk.turn()
    good, weak = await submit(desks, "good"), await submit(desks, "weak")
    liar.solves = flips(liar)
    liar.chain.lies_from_ms = PLAN.results_receipt_ms + 1
    await pass_until(desks, CLOSES_MS + HOUR_MS // 2)
    away.is_absent = True
    await pass_until(desks, PLAN.countersign_ms + HOUR_MS // 2)
    away.is_absent = False
    await pass_until(desks, PLAN.countersign_ms + 3 * HOUR_MS)

    first = [await desk.race(1) for desk in (honest, away)]
    assert [state.stage for state in first] == ["settled", "settled"]
    one, other = (state.settlement for state in first)
    assert canonical_bytes(one) == canonical_bytes(other)
    assert {row.agent_version_id for row in one.standings} == {good, weak}
    assert {log.validator for log in one.inputs.logs} >= {honest.signer.hotkey}

    # the second race: everybody is there, the liar shows nothing
    for desk in (honest, away):
        desk.peers.faults[liar.signer.hotkey] = PeerFault(is_withholding=True)
    liar.chain.lies_from_ms = PLAN.results_receipt_ms + DAY_MS + 1
    await pass_until(desks, PLAN.countersign_ms + DAY_MS + 3 * HOUR_MS)
    second = [await desk.race(2) for desk in (honest, away)]
    assert [state.stage for state in second] == ["settled", "settled"]
    assert settlement_sha256(second[0].settlement) == settlement_sha256(second[1].settlement)
    assert not second[0].is_adopted and not second[1].is_adopted
    counted = {log.validator for log in second[0].settlement.inputs.logs}
    assert counted == {honest.signer.hotkey, away.signer.hotkey}
    assert second[0].settlement.top_agent_version_id == good
    chain = honest.chain
    assert await chain.weights(honest.signer.hotkey) == await chain.weights(away.signer.hotkey) != ()
    await replays(honest, second[0].settlement, (one,))
    sample = honest.node.metrics.registry.get_sample_value
    # the liar's four in the first race, which it flips, and the four of the other honest one in the second
    assert [sample(f"arena_results_{name}_total") for name in ("compared", "differing")] == [8, 4]


async def test_one_validators_word_lets_nobody_in_and_keeps_nobody_out(desks):
    """All three qualify everything; the gates of two reject the evil agent, and the third says the opposite of them."""
    first, second, liar = desks
    for desk in desks:
        desk.gate = lambda name: "reject" if "evil" in name else "accept"
        await desk.turn()
    liar.gate = lambda name: "accept" if "evil" in name else "reject"
    good, evil = await submit(desks, "good"), await submit(desks, "evil")
    await pass_until(desks, PLAN.field_receipt_ms + HOUR_MS)
    fields = [(await desk.race(1)).field.field for desk in (first, second)]
    assert fields[0] == fields[1] and [each.subject.agent_version_id for each in fields[0]] == [good]
    (agreed,) = [row.agreed for row in await first.store.submissions() if row.subject.agent_version_id == evil]
    assert (agreed.is_racing, agreed.state, agreed.accepts, agreed.rejects) == (False, "rejected", 1, 2)
    assert (agreed.speakers, agreed.needed, agreed.suite_passes) == (3, 2, 3)


async def replays(desk: SharedDesk, settled: SettlementRecord, history: tuple[SettlementRecord, ...]) -> None:
    """What the log holds is enough to settle again, byte for byte."""
    record = await settlement_in_log(desk, settled.race_id)
    assert record == settled
    state = await desk.race(2)
    peers = RacePeers(desk.node)
    _, records = await peers.counted(peers.held(state, "results"), "results", state)
    again = settle(inputs_again(record, records.evaluations, records.verdicts, history))
    assert canonical_bytes(again) == canonical_bytes(record)


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
