"""The sequencer: numbers, signatures, moved heads and lost replies."""

from __future__ import annotations

import contextlib

import pytest
from msgspec.structs import replace

from arena.chain.keys import keypair_signer, verify
from arena.records.body import BODY_BYTES_MAX, compress_bodies, decode_content
from arena.records.log import head_after
from arena.records.model import SignedRecord
from arena.records.port import HeadMovedError
from arena.records.sequencer import SIGNING_ATTEMPTS, Sequencer
from arena.records.verification import verify_store
from foundation.errors import ArenaError
from tests.arena.log_stand import HOST, START_MS, Clock, MemoryLog, attempt, episode, settlement

ALICE = keypair_signer("//Alice")


def stand() -> tuple[MemoryLog, Sequencer]:
    log = MemoryLog(ALICE.hotkey)
    return log, Sequencer(log, ALICE, Clock(), HOST)


async def test_records_are_numbered_timed_chained_and_signed_in_order() -> None:
    log, sequencer = stand()
    payloads, body = episode(1)
    head = await sequencer.append(payloads, [body])
    assert head.seq == 3
    assert [decode_content(record.content).payload for record in log.log] == payloads
    assert [decode_content(record.content).recorded_ms for record in log.log] == [START_MS + n for n in (1, 2, 3)]
    assert head_after(log.log[-1]) == head
    report = await verify_store(log, verify)
    assert report.is_ok, report.defects


async def test_a_moved_head_is_read_again_and_the_record_signed_again() -> None:
    log, first = stand()
    second = Sequencer(log, ALICE, Clock(), HOST)
    for number in range(4):
        await first.append([attempt(number)])
        await second.append([attempt(number, 2)])
    assert [record.seq for record in log.log] == list(range(1, 9))
    report = await verify_store(log, verify)
    assert report.is_ok, report.defects


async def test_a_head_that_never_stops_moving_is_refused_after_a_bounded_number_of_signatures() -> None:
    log, sequencer = stand()
    log.refusals = [HeadMovedError("V2022") for _ in range(SIGNING_ATTEMPTS + 5)]
    with pytest.raises(HeadMovedError):
        await sequencer.append([attempt(1)])
    assert len(log.refusals) == 5


async def test_nothing_and_a_body_under_another_name_or_too_large_are_refused() -> None:
    log, sequencer = stand()
    payloads, body = episode(1)
    for given, bodies in (((), []), (payloads, [replace(body, content=b"{}")])):
        with pytest.raises(ArenaError, match="V2025"):
            await sequencer.append(given, bodies)
    with pytest.raises(ArenaError, match="V2025"):
        await compress_bodies([replace(body, content=bytes(BODY_BYTES_MAX + 1))])
    assert log.log == []


class LateLog(MemoryLog):
    """A server that goes on committing after its client lost the connection: `late` appends commit at a later call."""

    def __init__(self, validator: str, late: int, commits_at: str) -> None:
        super().__init__(validator)
        self.late, self.commits_at = late, commits_at
        self.pending: list[list[SignedRecord]] = []

    async def head(self, validator=None):
        end = self.end
        if self.commits_at == "after the head is read":
            await self._commit()
        return end

    async def append(self, records, bodies=(), finish=None):
        if self.late:
            self.late -= 1
            self.pending.append(list(records))
            raise ArenaError("V2021", "connection reset")
        if self.commits_at == "before the next append":
            await self._commit()
        return await super().append(records, bodies, finish)

    async def _commit(self) -> None:
        while self.pending:
            with contextlib.suppress(HeadMovedError):
                await super().append(self.pending.pop(0))


@pytest.mark.parametrize("commits_at", ["after the head is read", "before the next append"])
async def test_an_append_that_commits_after_its_reply_was_lost_is_not_doubled(commits_at: str) -> None:
    log = LateLog(ALICE.hotkey, 1, commits_at)
    await Sequencer(log, ALICE, Clock(), HOST).append([settlement()])
    assert [decode_content(record.content).payload for record in log.log] == [settlement()]


async def test_an_append_repeated_by_its_caller_after_a_lost_reply_is_not_doubled() -> None:
    log, sequencer = stand()
    log.lost_replies = [ArenaError("V2021", "gone")]
    log.refusals = []
    log.head, answer = _away_once(log)
    with pytest.raises(ArenaError, match="V2021"):
        await sequencer.append([attempt(1)])
    log.head = answer
    await Sequencer(log, ALICE, Clock(), HOST).append([attempt(2)])  # another process writes in between
    await sequencer.append([attempt(1)])
    assert [decode_content(record.content).payload.attempt_id for record in log.log] == ["p1:1", "p2:1"]
    await sequencer.append([attempt(1)])  # the same words on purpose, later, are a record of their own
    assert len(log.log) == 3


def _away_once(log: MemoryLog):
    real, calls = log.head, []

    async def head(validator=None):
        calls.append(validator)
        if len(calls) > 1:
            raise ArenaError("V2021", "still gone")
        return await real()

    return head, real
