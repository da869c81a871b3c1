"""The race clock and the weights loop on a real store, chain, beacon and bank: months unattended, in seconds."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from unittest import mock

import msgspec
import pytest
from msgspec.structs import replace

from arena.chain.keys import generate_signer
from arena.chain.port import Signer
from arena.policy import Policy
from arena.records.body import decode_content
from arena.records.model import SettlementRecord, Subject
from arena.store.port import StoredSubmission
from arena.submissions.model import SignedSubmission, make_submission
from foundation.canonical import text_hash
from foundation.errors import ArenaError
from neurons.loops.run_loop import StopSignal
from neurons.loops.watches import STALE_MS, ChainWatch
from neurons.race.weights import WeightsLoop
from neurons.settings.inputs import policy_of
from neurons.settings.settings import resolve
from problems.synthesis.generator import synthesize
from tests.arena.chain_faults import deregister
from tests.neurons.clock_stand import BLOCK_MS, CATALOGUE, POLICY, SOURCE, Desk

OTHER = replace(POLICY, name="other", race=replace(POLICY.race, closes_after_ms=20_000))


def solves(*names: str):
    """Only these agents solve anything."""
    return lambda lease: any(name.encode().hex() in lease.item.subject.agent_version_id for name in names)


# -- a race and its weights
async def test_a_race_runs_from_its_sealing_to_its_release_and_its_weights_are_set(desk):
    await desk.submit("good")
    await desk.submit("weak")
    await desk.turn_until("running")
    await desk.clock.turn()
    assert await desk.work(solves("good")) == 3 * POLICY.race.problems  # the control agent is the third
    state = await desk.turn_until("settled")
    assert (await desk.weights.turn()).status == "ok"
    assert await desk.chain.weights(desk.signer.hotkey) == tuple(
        zip(state.settlement.uids, state.settlement.weights_u16, strict=True)
    )
    await desk.turn_until("open", race=2)
    assert (await desk.clock.states())[0].is_finished


async def raced(desk: Desk, race: int = 1) -> None:
    await desk.turn_until("running", race=race)
    await desk.clock.turn()
    await desk.work(solves("good"))
    await desk.turn_until("settled", race=race)


async def test_weights_the_chain_refuses_hold_up_no_race(desk):
    await desk.submit("good")
    await raced(desk)
    await desk.chain.set_stake(desk.signer.hotkey, 0)  # the permit goes with it
    assert (await desk.weights.turn()).status == "failed"
    assert await desk.weights.turn() is None  # it waits for blocks
    await desk.turn_until("open", race=2)
    desk.time.pass_s(2)
    assert (await desk.weights.turn()).status == "failed"


async def test_weights_are_set_again_every_tempo_and_a_winner_that_left_is_paid_no_more(desk):
    winner = await desk.submit("good")
    await raced(desk)
    first = await desk.weights.turn()
    assert first.status == "ok" and len(first.uids) == 2
    assert await desk.weights.turn() is None
    await deregister(desk.chain, winner.miner_hotkey)
    stranger = generate_signer()
    await desk.chain.register(stranger)
    assert (await desk.chain.metagraph()).uid_of(stranger.hotkey) in first.uids  # the uid was recycled
    desk.time.pass_s(49)
    desk.start(desk.policy)  # a restart forgets nothing
    assert await desk.weights.turn() is None
    desk.time.pass_s(5)
    again = await desk.weights.turn()
    assert (again.status, again.uids, again.weights_u16) == ("ok", (0,), (65_535,))


async def test_the_next_settlement_supersedes_the_last_ones_weights(desk):
    await desk.submit("good")
    await raced(desk)
    await desk.weights.turn()
    await raced(desk, race=2)
    assert (await desk.weights.turn()).race_id == "race-000002"


async def test_without_a_settlement_no_weights_are_set(desk):
    assert await desk.weights.turn() is None
    await desk.clock.turn()
    assert await desk.weights.turn() is None


# -- settlement
async def test_items_nobody_finished_in_time_are_closed_with_the_settlement(desk):
    await desk.submit("good")
    await desk.submit("weak")
    await desk.turn_until("running")
    await desk.clock.turn()
    (lease,) = await desk.store.claim(1, 600_000, ("race",))
    desk.time.pass_s(POLICY.race.run_ms / 1_000)
    await desk.turn_until("settled", "cancelled")
    assert await desk.store.claim(50, 60_000, ("race",)) == []
    assert await desk.store.renew(lease, 60_000) is None


async def test_a_process_that_dies_between_settlement_record_and_event_settles_once(desk, monkeypatch):
    await desk.submit("good")
    await desk.turn_until("running")
    await desk.clock.turn()
    await desk.work()
    await desk.turn_until("settling")
    with monkeypatch.context() as patch:

        async def die(*_: object) -> None:
            raise ArenaError("V2021", "the process dies here")

        patch.setattr(desk.store, "put_event", die)
        with pytest.raises(ArenaError, match="V2021"):
            await desk.clock.turn()
    desk.start(POLICY)
    state = await desk.turn_until("settled")
    records = [decode_content(record.content).payload async for record in desk.store.records(kinds=("settlement",))]
    assert records == [state.settlement] and isinstance(records[0], SettlementRecord)


# -- what is missing waits by itself
async def test_a_beacon_that_does_not_answer_holds_up_the_draw_and_nothing_else(desk, monkeypatch):
    await desk.submit("good")
    asked: list[int] = []
    with monkeypatch.context() as patch:

        async def fail(number: int) -> None:
            asked.append(desk.time.ms)
            raise ArenaError("U3032", "no relay answers")

        patch.setattr(desk.beacon, "fetch", fail)
        state = await desk.turn_until("closed")
        for _ in range(30):
            state = await desk.clock.turn()
            desk.time.pass_s(1)
    assert state.field is not None and state.stage == "closed"
    assert 3 <= len(asked) <= 8  # the pauses grow
    await desk.turn_until("running", turns=70)


@pytest.mark.parametrize("unforeseen", [KeyError("Z"), OverflowError("too large"), TypeError("not hashable")])
async def test_a_bug_that_a_record_brings_out_delays_the_race_and_does_not_stop_the_node(desk, monkeypatch, unforeseen):
    await desk.submit("good")
    fail = mock.AsyncMock(side_effect=unforeseen)
    with monkeypatch.context() as broken:
        broken.setattr(desk.beacon, "fetch", fail)
        await desk.turn_until("closed")
        desk.time.pass_s(1)
        assert (await desk.clock.turn()).stage == "closed" and fail.await_count
    assert (await desk.turn_until("running", turns=70)).draw is not None


async def test_an_empty_or_unsound_bank_delays_races_and_does_not_stop_the_node(desk):
    await desk.submit("good")
    for file in (desk.folder / "bank").iterdir():
        file.unlink()
    assert (await desk.clock.turn()).stage == "new"
    desk.stock.add("small", synthesize(CATALOGUE, seed=8, counts={"product": 1}))
    desk.time.pass_s(60)
    assert (await desk.clock.turn()).stage == "new"
    (desk.folder / "bank" / "stock-a.jsonl").write_text("no problem\n")
    desk.time.pass_s(60)
    assert (await desk.clock.turn()).stage == "new"
    (desk.folder / "bank" / "stock-a.jsonl").unlink()
    desk.stock.add("b", synthesize(CATALOGUE, seed=9, counts={"product": 3}))
    desk.time.pass_s(60)
    assert (await desk.clock.turn()).stage == "open"


async def test_a_race_cancelled_before_its_draw_burns_no_problems(desk):
    await desk.turn_until("cancelled")
    await desk.turn_until("open", race=2)
    first, second = desk.stock.batch("race-000001"), desk.stock.batch("race-000002")
    assert first.problems == second.problems and first.salt != second.salt


async def test_no_weights_are_set_from_a_chain_that_stands_still_and_they_follow_once_it_moves(desk):
    await desk.submit("good")
    watch = ChainWatch(desk.node)
    desk.weights = WeightsLoop(desk.node, desk.clock, is_stale=watch.is_stale)
    assert not watch.is_stale()
    await raced(desk)
    await watch.turn()
    head = await desk.chain.block()

    async def standing() -> int:
        return head

    desk.chain.block = standing  # type: ignore[method-assign]  # an endpoint that hears no new blocks
    desk.time.pass_s(STALE_MS / 1_000 + 1)
    with pytest.raises(ArenaError, match=f"U3034.*race-000001 wait for a block after {head}"):
        await desk.weights.turn()
    assert await desk.store.weights_results() == []
    del desk.chain.block
    await watch.turn()
    assert (await desk.weights.turn()).status == "ok"


async def test_what_a_race_waits_for_is_told_and_forgotten_with_it(desk):
    drain = StopSignal(desk.time)
    stock = {path: path.read_bytes() for path in (desk.folder / "bank").iterdir() if path.is_file()}
    for path in stock:
        path.unlink()
    running = asyncio.create_task(desk.clock.run(drain))
    try:
        await until(lambda: "race SealBatch" in drain.waits)
        wait = drain.waits["race SealBatch"]
        assert (wait.code, wait.since_ms, wait.failures) == ("P4014", desk.time.ms, 1)
        for path, content in stock.items():
            path.write_bytes(content)
        desk.time.pass_s(60)
        await until(lambda: not drain.waits)
    finally:
        drain.set()
        await running


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not is_so():
            await asyncio.sleep(0.02)


# -- whom a closed race waits for
def put(desk: Desk, name: str) -> tuple[SignedSubmission, Signer]:
    """A submission, and its miner."""
    miner = generate_signer()
    submission = make_submission(miner, name, "def agent_main(problem):\n    return None\n", desk.time.ms)
    return submission, miner


async def closed(desk: Desk, race: int = 1) -> int:
    return (await desk.turn_until("closed", race=race)).closed.closing_block


async def test_a_closed_race_waits_for_agents_committed_by_its_close_and_not_for_ever(desk):
    await desk.submit("good")
    await desk.submit("slow", state="accepted")
    await closed(desk)
    desk.time.pass_s(5)
    assert (await desk.clock.turn()).field is None
    desk.time.pass_s(POLICY.race.qualifying_grace_ms / 1_000)
    assert (await desk.clock.turn()).field is not None


async def test_a_closed_race_does_not_wait_for_agents_committed_after_its_close(desk):
    await desk.submit("good")
    closing_block = await closed(desk)
    await desk.submit("late", state="accepted", block=closing_block + 1)
    desk.time.pass_s(1)
    assert (await desk.clock.turn()).field is not None


async def test_a_closed_race_waits_for_a_commitment_in_time_that_still_waits_for_the_gate(desk):
    await desk.submit("good")
    submission, miner = put(desk, "hurry")
    await desk.chain.register(miner)
    await desk.chain.commit(miner, submission.commitment_sha256)
    await desk.hand_in(submission)
    desk.time.pass_s(2)
    await closed(desk)
    desk.time.pass_s(1)
    assert (await desk.clock.turn()).field is None
    await desk.store.set_submission_state(submission.agent_version_id, "withdrawn", was="waiting")
    assert (await desk.clock.turn()).field is not None


async def test_an_agent_is_waited_for_by_one_race_only(desk):
    await desk.submit("good")
    await desk.submit("stuck", state="accepted")
    await closed(desk)
    desk.time.pass_s(POLICY.race.qualifying_grace_ms / 1_000)
    await raced(desk)
    await closed(desk, race=2)
    desk.time.pass_s(1)
    assert (await desk.clock.turn()).field is not None


# -- the policy of a race
async def test_a_new_policy_takes_over_before_the_close_and_agents_qualify_again_under_it(desk):
    agent = await desk.submit("good")
    await desk.clock.turn()
    desk.start(OTHER)
    state = await desk.clock.turn()
    assert (state.stage, state.opened.policy) == ("open", OTHER)
    assert [s.state for s in await desk.store.submissions()] == ["accepted"]
    await desk.qualify(agent)
    await desk.store.set_submission_state(agent.agent_version_id, "qualified")
    state = await desk.turn_until("running")
    assert [who.subject for who in state.field.field] == [agent]


async def failed(desk: Desk, name: str) -> tuple[Subject, Signer]:
    """An agent that failed its qualifying under the current policy, as its miner committed it."""
    miner = generate_signer()
    await desk.chain.register(miner)
    await desk.chain.commit(miner, "c3" * 32)
    subject = Subject(
        agent_version_id=name.encode().hex().ljust(64, "0"),
        miner_hotkey=miner.hotkey,
        agent_sha256=text_hash(SOURCE),
        commitment_block=await desk.chain.block(),
        commitment_sha256="c3" * 32,
    )
    stored = StoredSubmission(subject=subject, name=name, state="accepted")
    await desk.store.put_submission(stored, SOURCE)
    await desk.qualify(subject)
    await desk.store.set_submission_state(subject.agent_version_id, "unqualified")
    return subject, miner


async def test_an_agent_that_failed_under_another_policy_is_tried_again_while_its_miner_stands_for_it(desk):
    kept, _ = await failed(desk, "kept")
    _, miner = await failed(desk, "replaced")
    desk.time.pass_s(200)
    assert (await desk.chain.commit(miner, "d4" * 32)).status == "ok"
    desk.time.pass_s(BLOCK_MS / 1_000)
    await desk.clock.turn()
    assert {s.state for s in await desk.store.submissions()} == {"unqualified"}
    desk.start(OTHER)
    assert (await desk.clock.turn()).opened.policy == OTHER
    states = {s.name: s.state for s in await desk.store.submissions()}
    assert states == {"kept": "accepted", "replaced": "unqualified"}
    await desk.qualify(kept)
    await desk.store.set_submission_state(kept.agent_version_id, "unqualified")
    desk.start(replace(OTHER, name="third"))
    await desk.clock.turn()
    assert {s.name: s.state for s in await desk.store.submissions()}["kept"] == "accepted"


async def test_past_its_close_a_race_refuses_another_policy_and_names_the_file_to_start_with(desk):
    await desk.submit("good")
    await desk.turn_until("running")
    desk.start(OTHER)
    with pytest.raises(ArenaError, match=r"V2063.*race-000001") as caught:
        await desk.clock.adopt_policy()
    path = desk.folder / "policies" / f"{POLICY.policy_sha256}.json"
    assert str(path) in str(caught.value)
    kept = policy_of(resolve({"policy": str(path)}).settings)
    assert kept == POLICY
    desk.start(kept)
    await desk.clock.turn()
    await desk.work()
    state = await desk.turn_until("settled")
    assert state.settlement.policy_sha256 == POLICY.policy_sha256


async def test_a_race_opened_by_a_release_with_fewer_policy_fields_goes_on(desk):
    await desk.submit("good")
    state = await desk.turn_until("running")
    event = msgspec.json.decode((await desk.store.events("race/race-000001"))[0])
    del event["policy"]["race"]["retry_max_ms"]  # that release had no such field
    policy = msgspec.convert(event["policy"], Policy)
    assert policy.policy_sha256 == event["policy_sha256"] == state.opened.policy_sha256
    assert json.loads((desk.folder / "policies" / f"{policy.policy_sha256}.json").read_bytes())["name"] == "short"


async def test_the_top_agent_races_on_under_a_new_policy(desk):
    top = await desk.submit("good")
    await raced(desk)
    desk.start(OTHER)
    await desk.turn_until("open", race=2)
    state = await desk.turn_until("running", race=2)
    assert state.field.incumbent.agent_version_id == top.agent_version_id
    assert [who.subject for who in state.field.field] == [top]


# -- verdicts owed after the end
async def test_a_finished_race_keeps_its_owed_verdicts_within_reach_also_after_a_restart(desk):
    await desk.submit("good")
    await raced(desk)
    desk.start(POLICY)
    await desk.turn_until("open", race=2)
    logs = desk.clock.current_logs()
    assert len(logs) == 3  # qualifying, this race and the one before
    for log in logs:
        await log.refresh()
    assert [log.settlement is not None for log in logs] == [False, True, False]
