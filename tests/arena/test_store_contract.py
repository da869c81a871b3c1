"""The contract of a store, on real Postgres, connected as validators' own roles."""

from __future__ import annotations

import asyncio
import itertools

import msgspec
import pytest

from arena.chain.keys import generate_signer, verify
from arena.chain.port import Signer
from arena.records.body import decode_content
from arena.records.chain import first_head
from arena.records.sequencer import Sequencer
from arena.records.verify import verify_store
from arena.store.embedded import EmbeddedServer
from arena.store.port import HeadMovedError, LeaseLostError, StoredBody, StoredSubmission, WeightsResult
from arena.store.postgres import RECORDS_PER_PAGE, PostgresStore
from problems.errors import ArenaError, Failure
from tests.arena.conftest import OpenStore
from tests.arena.log_stand import HOST, SUBJECT, Clock, attempt, episode, item, settlement, subject

LONG_MS = 60_000
_races = (f"race-{number}" for number in itertools.count())


@pytest.fixture
def race_id() -> str:
    """A race of this test alone: items are shared by everybody on the server."""
    return next(_races)


@pytest.fixture
def signer() -> Signer:
    return generate_signer()


@pytest.fixture
async def store(open_store: OpenStore, signer: Signer) -> PostgresStore:
    return await open_store(signer.hotkey)


@pytest.fixture
def sequencer(store: PostgresStore, signer: Signer) -> Sequencer:
    return Sequencer(store, signer, Clock(), HOST)


async def everything(store: PostgresStore, **wanted) -> list:
    return [record async for record in store.records(store.validator, **wanted)]


async def report_of(store: PostgresStore):
    """Verification of this store's own log (the server holds those of other tests too)."""

    class OwnLog:
        def __getattr__(self, name):
            return getattr(store, name)

        async def validators(self):
            return [store.validator]

    return await verify_store(OwnLog(), verify)


# -- the log


async def test_an_empty_log_ends_at_its_first_head(store: PostgresStore) -> None:
    assert await store.head() == first_head(store.validator)
    assert await everything(store) == []


async def test_what_is_appended_comes_back_byte_for_byte_and_verifies(store, sequencer) -> None:
    payloads, body = episode(1, result_bytes=40_000)
    head = await sequencer.append(payloads, [body])
    assert await store.head() == head
    assert await store.body(body.body_sha256) == body
    assert [record.seq for record in await everything(store)] == [1, 2, 3]
    report = await report_of(store)
    assert report.is_ok, report.defects
    assert report.logs[0].head == head


async def test_records_are_streamed_in_pages_and_filtered(store, sequencer) -> None:
    await sequencer.append([attempt(n) for n in range(RECORDS_PER_PAGE + 3)])
    payloads, body = episode(1, race_id="other")
    await sequencer.append([*payloads, settlement("other")], [body])
    assert len(await everything(store)) == RECORDS_PER_PAGE + 7
    assert [r.seq for r in await everything(store, after_seq=RECORDS_PER_PAGE + 5)] == [506, 507]
    assert len(await everything(store, kinds=["attempt"])) == RECORDS_PER_PAGE + 4
    assert len(await everything(store, race_id="other")) == 4
    assert len(await everything(store, kinds=["verdict", "settlement"], race_id="other")) == 2


async def test_any_text_an_agent_can_cause_is_stored(store, sequencer) -> None:
    payload = msgspec.structs.replace(attempt(1), failure=Failure(code="A1024", detail='\0 "\u2028 \ud7ff {\\u0000'))
    await sequencer.append([payload, msgspec.structs.replace(settlement(), reason="\0")])
    assert decode_content((await everything(store))[0].content).payload == payload
    hostile = StoredSubmission(subject=SUBJECT, name="\0", source="x = '\0'", state="rejected", submitted_block=1)
    await store.put_submission(hostile)
    assert await store.submissions() == [hostile]


async def test_the_same_body_may_be_stored_twice_and_is_kept_once(store, sequencer) -> None:
    payloads, body = episode(5)
    again, _ = episode(5, attempt_id="again:2")
    await sequencer.append(payloads[:2], [body])
    await sequencer.append(again[:1], [body])
    assert await store.bodies([body.body_sha256, "00" * 32]) == [body]


async def test_an_append_on_a_stale_head_is_refused_and_writes_nothing(store, sequencer) -> None:
    await sequencer.append([attempt(1)])
    stale = (await everything(store))[0]
    with pytest.raises(HeadMovedError, match="V2022"):
        await store.append([stale])
    forged = msgspec.structs.replace(stale, seq=2, prev="00" * 32)
    with pytest.raises(HeadMovedError):
        await store.append([forged])
    assert (await store.head()).seq == 1


async def test_a_batch_is_appended_whole_or_not_at_all(store, sequencer) -> None:
    payloads, _ = episode(77)
    with pytest.raises(ArenaError, match=r"V2022.*not stored"):
        await sequencer.append([attempt(1), *payloads])
    assert (await store.head()).seq == 0


async def test_two_processes_of_one_hotkey_interleave_without_gap_or_double(open_store, signer) -> None:
    stores = [await open_store(signer.hotkey) for _ in range(3)]
    sequencers = [Sequencer(store, signer, Clock(), HOST) for store in stores]
    await asyncio.gather(*(_append_each(sequencer, n * 10) for n, sequencer in enumerate(sequencers)))
    assert [record.seq for record in await everything(stores[0])] == list(range(1, 16))
    assert (await report_of(stores[0])).is_ok


async def _append_each(sequencer: Sequencer, first: int) -> None:
    for number in range(first, first + 5):
        await sequencer.append([attempt(number)])


async def test_a_changed_body_is_refused_by_reading_and_named_by_verification(store, sequencer, postgres) -> None:
    payloads, body = episode(9)
    await sequencer.append(payloads, [StoredBody(body_sha256=body.body_sha256, content=body.content)])
    from tests.arena.test_store_roles import as_owner

    await as_owner(
        postgres,
        "alter table arena.body disable trigger no_change",
        f"update arena.body set content = set_byte(content, 30, get_byte(content, 30) # 1)"
        f" where encode(sha256, 'hex') = '{body.body_sha256}'",
        "alter table arena.body enable trigger no_change",
    )
    with pytest.raises(ArenaError, match="V2050"):
        await store.body(body.body_sha256)
    report = await report_of(store)
    assert [(defect.seq, defect.rule) for defect in report.defects] == [(2, "body")]


# -- work


async def test_enqueuing_again_adds_nothing(store, race_id) -> None:
    items = [item(n, race_id) for n in range(3)]
    assert await store.enqueue(items) == 3
    assert await store.enqueue([*items, item(3, race_id)]) == 1
    assert await store.open_items(race_id, "race") == 4


async def test_race_items_are_claimed_before_qualifying_ones_in_the_order_they_came(store, race_id) -> None:
    await clear_queue(store)
    await store.enqueue([item(1, race_id, stage="qualifying"), item(2, race_id), item(3, race_id)])
    assert [lease.item.item_id for lease in await store.claim(9, LONG_MS)] == [
        f"{race_id}-race-2",
        f"{race_id}-race-3",
        f"{race_id}-qualifying-1",
    ]


async def test_only_the_stages_asked_for_are_claimed(store, race_id) -> None:
    await clear_queue(store)
    await store.enqueue([item(1, race_id), item(2, race_id, stage="qualifying")])
    assert [lease.item.context.stage for lease in await store.claim(9, LONG_MS, ["qualifying"])] == ["qualifying"]
    await clear_queue(store)


async def clear_queue(store: PostgresStore) -> None:
    """Take what other tests left, so that a test sees its own items only."""
    while await store.claim(100, LONG_MS):
        pass


async def test_an_item_goes_to_as_many_distinct_validators_as_it_asks_for(open_store, race_id) -> None:
    stores = [await open_store(f"5distinct{n}") for n in range(3)]
    for store in stores:
        await clear_queue(store)
    await stores[0].enqueue([item(1, race_id, copies=2)])
    claimed = [await store.claim(5, LONG_MS) for store in (stores[0], stores[0], stores[1], stores[2])]
    assert [len(leases) for leases in claimed] == [1, 0, 1, 0]
    assert claimed[0][0].fence < claimed[2][0].fence


async def test_concurrent_claims_never_share_an_item(open_store, race_id) -> None:
    stores = [await open_store(f"5worker{n % 2}") for n in range(4)]
    for store in stores:
        await clear_queue(store)
    await stores[0].enqueue([item(n, race_id) for n in range(40)])
    leases = [await asyncio.gather(*(store.claim(1, LONG_MS) for store in stores)) for _ in range(12)]
    ids = [lease.item.item_id for round_ in leases for claimed in round_ for lease in claimed]
    assert sorted(ids) == sorted(f"{race_id}-race-{n}" for n in range(40))


async def test_finishing_appends_and_closes_the_item_in_one_step(store, sequencer, race_id) -> None:
    lease = await claim_one(store, race_id)
    payloads, body = episode(1, race_id=race_id, attempt_id=lease.attempt_id)
    await sequencer.append(payloads, [body], finish=lease)
    assert await store.open_items(race_id, "race") == 0
    with pytest.raises(LeaseLostError, match="V2022"):
        await sequencer.append(payloads, [body], finish=lease)
    assert (await store.head()).seq == 3


async def claim_one(store: PostgresStore, race_id: str, ttl_ms: int = LONG_MS):
    await clear_queue(store)
    await store.enqueue([item(1, race_id)])
    (lease,) = await store.claim(1, ttl_ms)
    return lease


async def test_a_lease_that_ran_out_can_not_be_finished_and_its_records_are_not_written(
    store, sequencer, race_id
) -> None:
    lease = await claim_one(store, race_id, ttl_ms=1)
    await asyncio.sleep(0.01)
    payloads, body = episode(4711, race_id=race_id)  # a body no other test stores
    with pytest.raises(LeaseLostError, match="V2022"):
        await sequencer.append(payloads, [body], finish=lease)
    assert (await store.head()).seq == 0
    assert await store.body(body.body_sha256) is None


async def test_an_expired_lease_stays_listed_until_it_is_abandoned_with_its_record(store, sequencer, race_id) -> None:
    lease = await claim_one(store, race_id, ttl_ms=1)
    await asyncio.sleep(0.01)
    assert await store.claim(1, LONG_MS) == []  # its own attempt is owed a record first
    assert [owed.fence for owed in await store.expired()] == [lease.fence]
    await sequencer.abandon(lease, attempt(1))
    assert await store.expired() == []
    (again,) = await store.claim(1, LONG_MS)
    assert again.item == lease.item
    assert (again.attempts, again.fence > lease.fence) == (1, True)
    assert [record.seq for record in await everything(store, kinds=["attempt"])] == [1]


async def test_an_expired_lease_frees_its_item_for_other_validators_at_once(open_store, store, race_id) -> None:
    lease = await claim_one(store, race_id, ttl_ms=1)
    await asyncio.sleep(0.01)
    other = await open_store("5standin")
    assert [taken.item.item_id for taken in await other.claim(5, LONG_MS)] == [lease.item.item_id]
    assert [owed.fence for owed in await store.expired()] == [lease.fence]


async def test_a_fault_of_ours_abandons_a_running_lease_and_the_item_is_claimed_again(
    store, sequencer, race_id
) -> None:
    lease = await claim_one(store, race_id)
    await sequencer.abandon(lease, attempt(1, ended="faulted"))
    with pytest.raises(LeaseLostError):
        await sequencer.abandon(lease, attempt(1, ended="faulted"))
    (again,) = await store.claim(1, LONG_MS)
    assert again.attempts == 1
    assert (await store.head()).seq == 1


async def test_renewing_moves_the_expiry_and_keeps_the_fence(store, race_id) -> None:
    lease = await claim_one(store, race_id)
    renewed = await store.renew(lease, 10 * LONG_MS)
    assert renewed is not None
    assert (renewed.fence, renewed.expires_ms > lease.expires_ms) == (lease.fence, True)


async def test_a_lost_lease_can_not_be_renewed(open_store, store, race_id) -> None:
    lease = await claim_one(store, race_id, ttl_ms=1)
    await asyncio.sleep(0.01)
    assert await store.renew(lease, LONG_MS) is None
    thief = await open_store("5thief")
    assert await thief.renew(lease, LONG_MS) is None


async def test_a_released_lease_is_claimed_again_and_releasing_twice_changes_nothing(store, race_id) -> None:
    lease = await claim_one(store, race_id)
    await store.release(lease)
    await store.release(lease)
    (again,) = await store.claim(5, LONG_MS)
    assert again.item == lease.item
    assert await store.claim(5, LONG_MS) == []


# -- working state


async def test_submissions_come_back_in_order_and_by_state(store) -> None:
    first = StoredSubmission(subject=SUBJECT, name="a", source="x = 1\n", state="queued", submitted_block=3)
    second = StoredSubmission(subject=subject("b0"), name="b", source="y", state="accepted", submitted_block=4)
    for submission in (first, second):
        await store.put_submission(submission)
    assert await store.submissions() == [first, second]
    assert await store.submissions(["accepted"]) == [second]
    await store.set_submission_state(SUBJECT.agent_version_id, "rejected", '{"rule":"x"}')
    await store.set_submission_state(SUBJECT.agent_version_id, "rejected")
    assert (await store.submissions(["rejected"]))[0].report == '{"rule":"x"}'
    with pytest.raises(ArenaError, match="V2022"):
        await store.set_submission_state("nobody", "queued")


async def test_events_of_a_stream_are_numbered_without_gap_or_double(store) -> None:
    for index, event in enumerate(('{"a":1}', '{"b":"\\u0000"}')):
        await store.put_event("race", index, event)
    for wrong in (0, 1, 3):
        with pytest.raises(ArenaError, match="V2022"):
            await store.put_event("race", wrong, "{}")
    assert await store.events("race") == ['{"a":1}', '{"b":"\\u0000"}']
    assert await store.events("other") == []


async def test_weights_results_come_back_newest_first(store) -> None:
    results = [
        WeightsResult(race_id="r", block=n, uids=(0, 7), weights_u16=(65_535, n), status="ok", detail="d")
        for n in range(3)
    ]
    for result in results:
        await store.put_weights_result(result)
    assert await store.weights_results() == results[::-1]
    assert await store.weights_results(limit=1) == results[-1:]


async def test_working_state_is_each_validators_own(open_store, store) -> None:
    await store.put_event("race", 0, "{}")
    other = await open_store("5neighbour")
    assert await other.events("race") == []


async def test_a_server_that_is_away_is_a_coded_failure(postgres: EmbeddedServer) -> None:
    dsn = postgres.dsn_for("5away")
    with pytest.raises(ArenaError, match="V2021"):
        await PostgresStore.open(dsn.replace("host=/", "host=/nowhere/"), "5away")
    with pytest.raises(ArenaError, match="V2021"):
        await PostgresStore.open(dsn.replace("@/", "x@/"), "5away")
    with pytest.raises(ArenaError, match="V2021"):
        await PostgresStore.open("sqlite:///x", "5away")
