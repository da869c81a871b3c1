"""The contract of a store, on real Postgres, connected as validators' own roles."""

from __future__ import annotations

import asyncio
import hashlib

import msgspec
import pytest

from arena.records.model import StoredCheckpoint
from arena.records.port import EVERY_STATE, AgreedStanding, AttemptUsage, HeadMovedError, StoredSubmission
from arena.store import connect
from arena.store.postgres import LEAVES_PER_PAGE, RECORDS_PER_PAGE, PostgresStore
from foundation.errors import ArenaError, Failure
from harness.inference.gateway import ModelUsage
from tests.arena.log_stand import SUBJECT, attempt, episode, settlement, subject


async def everything(store: PostgresStore, **wanted) -> list:
    return [record async for record in store.records(store.validator, **wanted)]


# -- the log


async def test_one_exclusive_store_of_a_hotkey_is_open_at_a_time(open_store, signer) -> None:
    first = await open_store(signer.hotkey, is_exclusive=True)
    with pytest.raises(ArenaError, match="V2024"):
        await open_store(signer.hotkey, is_exclusive=True)
    await first.close()
    await open_store(signer.hotkey, is_exclusive=True)


async def test_a_hotkey_is_not_waited_for_without_end(open_store, signer, postgres, monkeypatch) -> None:
    monkeypatch.setattr(connect, "COMMAND_TIMEOUT_S", 0.5)
    async with asyncio.timeout(20), connect.owner_transaction(postgres.owner_dsn) as owner:
        await owner.execute("lock table arena.head in exclusive mode")  # as the last append of a holder that is stopped
        with pytest.raises(ArenaError, match="V2021"):
            await open_store(signer.hotkey, is_exclusive=True)


async def test_records_are_streamed_in_pages_and_filtered(store, sequencer) -> None:
    await sequencer.append([attempt(n) for n in range(RECORDS_PER_PAGE + 3)])
    payloads, body = episode(1, race_id="other")
    await sequencer.append([*payloads, settlement("other")], [body])
    assert len(await everything(store)) == RECORDS_PER_PAGE + 7
    assert [r.seq for r in await everything(store, after_seq=RECORDS_PER_PAGE + 5)] == [506, 507]
    assert len(await everything(store, kinds=["attempt"])) == RECORDS_PER_PAGE + 4
    assert len(await everything(store, race_id="other")) == 4
    assert len(await everything(store, kinds=["verdict", "settlement"], race_id="other")) == 2


async def test_an_append_on_a_stale_head_is_refused_and_writes_nothing(store, sequencer) -> None:
    await sequencer.append([attempt(1)])
    stale = (await everything(store))[0]
    with pytest.raises(HeadMovedError, match="V2022"):
        await store.append([stale])
    forged = msgspec.structs.replace(stale, seq=2, prev="00" * 32)
    with pytest.raises(HeadMovedError):
        await store.append([forged])
    for seq in (2, 4):  # neither twice nor with a gap
        with pytest.raises(ArenaError, match="V2025"):
            await store.append([forged, msgspec.structs.replace(stale, seq=seq)])
    assert (await store.head()).seq == 1


@pytest.mark.parametrize(
    "hostile",
    [
        StoredSubmission(subject=SUBJECT, name="\ud800", state="waiting"),
        StoredSubmission(subject=SUBJECT, name="\0", state="waiting"),
        StoredSubmission(subject=SUBJECT, name="n", state="waiting", report="\0"),
        StoredSubmission(subject=SUBJECT, name="n", state="queued", report="\ud800"),
        StoredSubmission(subject=SUBJECT, name="n", state="waiting", submitted_ms=1 << 63),
    ],
    ids=["surrogate in name", "NUL in name", "NUL in text", "surrogate in text", "number too large"],
)
async def test_a_value_the_store_can_not_hold_is_a_failure_no_retry_mends(store, hostile) -> None:
    with pytest.raises(ArenaError, match="V2025") as caught:
        await store.put_submission(hostile, "")
    assert not caught.value.entry.is_retryable
    assert await store.submissions(EVERY_STATE) == []


# -- leaves, verdicts, checkpoints


async def test_leaves_are_the_records_without_their_contents(store, sequencer) -> None:
    head = await sequencer.append([attempt(n) for n in range(LEAVES_PER_PAGE + 3)])
    records = await everything(store)
    leaves = [leaf async for leaf in store.leaves(store.validator)]
    assert [(leaf.seq, leaf.prev, leaf.content_sha256) for leaf in leaves] == [
        (record.seq, record.prev, record.content_sha256) for record in records
    ]
    some = [leaf async for leaf in store.leaves(store.validator, after_seq=4, to_seq=7)]
    assert some == leaves[4:7]
    assert [leaf async for leaf in store.leaves(store.validator, after_seq=head.seq)] == []


async def test_verdicts_are_found_by_the_body_they_judge(store, sequencer) -> None:
    payloads, body = episode(1)
    other_payloads, other = episode(2)
    await sequencer.append([*payloads, *other_payloads], [body, other])
    await sequencer.append([payloads[2]])  # judged again
    records = await everything(store)
    assert await store.verdicts_on([body.body_sha256]) == [records[2], records[6]]
    assert await store.verdicts_on([other.body_sha256, body.body_sha256]) == [records[2], records[5], records[6]]
    assert await store.verdicts_on(["00" * 32]) == []
    assert await store.verdicts_on([body.body_sha256], "5nobody") == []


def checkpoint(store: PostgresStore, size: int, note: str = "note") -> StoredCheckpoint:
    return StoredCheckpoint(validator=store.validator, size=size, note=f"{note} {size} ✓", signed_ms=size * 1_000)


async def test_checkpoints_come_back_by_size_with_the_block_that_anchors_them(store) -> None:
    first, second = checkpoint(store, 3), checkpoint(store, 12)
    for point in (second, first, first):
        await store.put_checkpoint(point)
    assert await store.checkpoints() == [first, second]
    assert await store.checkpoints(after_size=3) == [second]
    sha256 = hashlib.sha256(first.note.encode()).hexdigest()
    for _ in range(2):
        await store.put_anchor(3, sha256, 77)
    anchored = msgspec.structs.replace(first, anchor_block=77, anchored_sha256=sha256)
    assert await store.checkpoints() == [anchored, second]
    assert await store.checkpoints("5nobody") == []


async def test_a_second_state_of_one_size_and_a_wrong_anchor_are_refused(store) -> None:
    point = checkpoint(store, 3)
    await store.put_checkpoint(point)
    sha256 = hashlib.sha256(point.note.encode()).hexdigest()
    await store.put_anchor(3, sha256, 77)
    for refused in (
        store.put_checkpoint(checkpoint(store, 3, "another")),
        store.put_checkpoint(msgspec.structs.replace(point, validator="5other")),
        store.put_anchor(3, sha256, 78),
        store.put_anchor(3, "00" * 32, 77),
        store.put_anchor(4, sha256, 77),
    ):
        with pytest.raises(ArenaError, match="V2022"):
            await refused
    assert await store.checkpoints() == [msgspec.structs.replace(point, anchor_block=77, anchored_sha256=sha256)]


# -- working state


async def test_submissions_come_back_in_order_and_by_state(store) -> None:
    first = StoredSubmission(subject=SUBJECT, name="a", state="review", submitted_ms=7, report='{"x":1}')
    second = StoredSubmission(subject=subject("b0"), name="b", state="accepted")
    waiting = StoredSubmission(subject=subject("c0"), name="c", state="waiting")
    for submission in (first, second, waiting):
        stands = await store.put_submission(submission, f"name = '{submission.name}'\n")
        assert msgspec.structs.replace(stands, received_ms=0) == submission and stands.received_ms > 1_700_000_000_000
    assert await store.source(second.subject.agent_version_id) == "name = 'b'\n"
    assert await store.source("nobody") is None
    assert [kept.source async for kept in store.sources()] == [b"name = 'a'\n", b"name = 'b'\n"]
    assert [row.name for row in await store.submissions()] == ["a", "b"]
    assert [row.name for row in await store.submissions(EVERY_STATE)] == ["a", "b", "c"]
    assert [row.name for row in await store.submissions(["accepted"])] == ["b"]
    failure = Failure(code="A1005", detail="why")
    agent = SUBJECT.agent_version_id
    assert not await store.set_submission_state(agent, "accepted", was="waiting")
    assert await store.set_submission_state(agent, "rejected", failure=failure, qualifying_e4=3, commitment_block=9)
    agreed = AgreedStanding(
        is_racing=False, state="held", accepts=1, rejects=1, speakers=3, needed=2, suite_passes=2, suite_finished=3,
        suite_needed=2,
    )  # fmt: skip
    await store.put_agreed(agent, agreed)
    (row,) = await store.submissions(["rejected"])
    assert (row.report, row.failure, row.qualifying_e4, row.agreed) == ('{"x":1}', failure, 3, agreed)
    assert row.subject.commitment_block == 9
    with pytest.raises(ArenaError, match="V2025"):
        await store.set_submission_state("nobody", "review")


async def test_one_row_stands_for_a_version_and_one_of_a_hotkey_waits(store) -> None:
    first, second = (StoredSubmission(subject=subject(name), name=name, state="waiting") for name in ("a0", "b0"))

    async def put(row: StoredSubmission, block: int, *, is_alone: bool = True) -> tuple[str, str, int]:
        row = msgspec.structs.replace(row, subject=msgspec.structs.replace(row.subject, commitment_block=block))
        stands = await store.put_submission(row, f"block = {block}", is_alone=is_alone)
        return stands.name, stands.state, stands.subject.commitment_block

    assert await put(first, 7) == ("a0", "waiting", 7)
    assert await put(first, 9) == ("a0", "waiting", 7)  # it is there already
    assert await put(second, 9) == ("a0", "waiting", 7)  # another of its hotkey waits
    assert await put(second, 9, is_alone=False) == ("b0", "waiting", 9)
    agent = first.subject.agent_version_id
    for state, again in (("withdrawn", 7), ("refused", 8)):
        assert await store.set_submission_state(agent, state, was="waiting")
        assert await store.source(agent) == ""
        assert await put(first, again, is_alone=False) == ("a0", "waiting", again)
        assert await store.source(agent) == f"block = {again}"
    await store.set_submission_state(agent, "refused")
    assert await put(first, 8, is_alone=False) == ("a0", "refused", 8)
    await store.set_submission_state(agent, "rejected")
    assert await put(first, 99, is_alone=False) == ("a0", "rejected", 8)


async def test_events_of_a_stream_are_numbered_without_gap_or_double(store) -> None:
    for index, event in enumerate(('{"a":1}', '{"b":"\\u0000"}')):
        await store.put_event("race", index, event)
    for wrong in (0, 1, 3):
        with pytest.raises(ArenaError, match="V2022"):
            await store.put_event("race", wrong, "{}")
    assert await store.events("race") == ['{"a":1}', '{"b":"\\u0000"}']
    assert await store.events("other") == []


async def test_accounts_of_attempts_are_kept_once_and_summed(store) -> None:
    def account(number: int, *rows: ModelUsage, race_id: str = "r") -> AttemptUsage:
        return AttemptUsage(attempt_id=f"a{number}", race_id=race_id, stage="race", agent_version_id="v", rows=rows)

    dear = ModelUsage(upstream="dear", model="m", requests=2, attempts=3, prompt_tokens=1 << 40, cost_micro_usd=7)
    unpriced = ModelUsage(upstream="own", model="m", requests=1, attempts=1, completion_tokens=5, latency_ms=9)
    await store.put_usage(account(1, dear, unpriced))
    await store.put_usage(account(1, msgspec.structs.replace(dear, requests=99)))
    await store.put_usage(account(2, dear))
    await store.put_usage(account(3, msgspec.structs.replace(unpriced, cost_micro_usd=0)))
    totals = {one.upstream: one for one in await store.usage_totals()}
    assert (totals["dear"].episodes, totals["dear"].requests, totals["dear"].attempts) == (2, 4, 6)
    assert (totals["dear"].prompt_tokens, totals["dear"].cost_micro_usd) == (2 << 40, 14)
    assert (totals["own"].episodes, totals["own"].latency_ms, totals["own"].cost_micro_usd) == (2, 18, None)
