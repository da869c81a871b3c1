"""A copy of a log in its object store, so that a store that was restored from a backup goes on where the log ended.

Before anybody is shown a signed state of the log, the records up to it lie in the copy, beside their bodies. A store
that is behind it takes them from there when its node starts, each signature and link checked, before anything is
signed: a lost disk costs what no checkpoint covers yet, whose episodes run again. The newest races' events are there,
too. What else arrived after the backup (submissions, costs) comes from miners and peers again, or is gone.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec
import zstandard

from arena.chain.port import Verifier
from arena.records.body import LEVEL, decode_content, restore_frame
from arena.records.log import message_of
from arena.records.model import (
    AttemptRecord,
    BodyFrame,
    EvaluationRecord,
    RecordContent,
    SignedRecord,
    StoredCheckpoint,
)
from arena.records.port import WorkItem
from arena.store.objects import BodyObjects
from arena.store.postgres import PostgresStore
from foundation.codes import REQUEST_PROVOKED, Owner
from foundation.errors import ArenaError

PART_BYTES = 8 << 20  # of contents in one part of a copy
APPENDED_AT_ONCE = 64
RACES_COPIED = 3  # the newest: an earlier one has ended
OwnersOf = Callable[[str, Sequence[str]], Mapping[str, str]]  # by a race's id and events: by hotkey


class RaceEvent(msgspec.Struct, frozen=True, array_like=True):
    """One event of a stream: what a race had come to."""

    stream: str
    index: int
    event: str


class LogPart(msgspec.Struct, frozen=True, array_like=True):
    """Consecutive records of a log, and the signed state that they lead to; None where more of them follow first. With
    the state come the races' events since the one before, or more."""

    records: tuple[SignedRecord, ...]
    checkpoint: StoredCheckpoint | None = None
    events: tuple[RaceEvent, ...] = ()


async def read_events(store: PostgresStore, copied: Mapping[str, int]) -> tuple[RaceEvent, ...]:
    """The newest races' events but for the first `copied` ones of each stream. To be read before the log's end: what an
    event says was done stands in the log then. Raises ArenaError V2021."""
    if store.objects is None:
        return ()
    return tuple(
        [
            RaceEvent(stream, index, event)
            for stream in (await store.streams("race/"))[-RACES_COPIED:]
            for index, event in enumerate(await store.events(stream))
            if index >= copied.get(stream, 0)
        ]
    )


async def write_copy(
    store: PostgresStore, checkpoint: StoredCheckpoint, after_seq: int, events: tuple[RaceEvent, ...] = ()
) -> None:
    """Copy the records of `store`'s own log behind `after_seq`, up to a checkpoint. A store without an object store has
    no copy. Raises ArenaError V2021, V2028, V2029."""
    if store.objects is None:
        return
    part, size = list[SignedRecord](), 0
    async for record in store.records(store.validator, after_seq=after_seq):
        if record.seq > checkpoint.size:
            break
        if part and size + len(record.content) > PART_BYTES:
            await _put(store.objects, LogPart(tuple(part)))
            part, size = [], 0
        part.append(record)
        size += len(record.content)
    await _put(store.objects, LogPart(tuple(part), checkpoint, events))


async def take_copy(store: PostgresStore, verify_signature: Verifier, owners_of: OwnersOf) -> int:
    """Append to `store`'s own log what its copy holds behind it, with bodies, checkpoints, the ends of the work that
    made them and what races had come to, by which `owners_of` knows who is charged; returns how many records. One that
    is stopped goes on at the next start.

    Raises ArenaError V2080 where the copy is not this log's, or lacks a record or a body; V2021, V2028, V2029.
    """
    objects, head = store.objects, await store.head()
    if objects is None:
        return 0
    first, owners = head.seq, dict[str, str]()
    for name in await objects.log_parts(store.validator, head.seq - 1):  # of the last record itself may come events
        part = _decode(name, await objects.log_part(store.validator, name))
        records = [record for record in part.records if record.seq > head.seq]
        if records and (records[0].seq, records[0].prev) != (head.seq + 1, head.hash):
            raise ArenaError("V2080", f"the copy in {objects.location} does not go on from record {head.seq} to {name}")
        begun = {stream: len(await store.events(stream)) for stream in {each.stream for each in part.events}}
        for each in part.events:  # before the records, behind which the part is not looked at again
            if each.index == begun[each.stream]:
                await store.put_event(each.stream, each.index, each.event)
                begun[each.stream] += 1
        for stream in begun:
            owners |= owners_of(stream.removeprefix("race/"), await store.events(stream))
        for at in range(0, len(records), APPENDED_AT_ONCE):
            some = records[at : at + APPENDED_AT_ONCE]
            for record in some:
                if not verify_signature(store.validator, message_of(record), bytes.fromhex(record.signature)):
                    raise ArenaError("V2080", f"record {record.seq} of the copy is not signed by {store.validator}")
            contents = [decode_content(record.content) for record in some]
            asked = [one.payload for one in contents if isinstance(one.payload, AttemptRecord | EvaluationRecord)]
            frames = await _frames(store, objects, sorted({one.body_sha256 for one in asked} - {""}))
            await _end_work(store, contents, owners, {frame.body_sha256: frame.size for frame in frames})
            head = await store.append(some, frames)
        if part.checkpoint is not None:
            await store.put_checkpoint(part.checkpoint)
    return head.seq - first


async def _put(objects: BodyObjects, part: LogPart) -> None:
    last, content = part.records[-1], msgspec.msgpack.encode(part)
    await objects.put_log_part(last.validator, last.seq, zstandard.compress(content, LEVEL))


def _decode(name: int, frame: bytes) -> LogPart:
    try:
        return msgspec.msgpack.decode(restore_frame(frame, zstandard.frame_content_size(frame)), type=LogPart)
    except (zstandard.ZstdError, msgspec.DecodeError) as error:
        raise ArenaError("V2080", f"the copy's part up to record {name} is damaged: {error}") from error


async def _frames(store: PostgresStore, objects: BodyObjects, names: list[str]) -> list[BodyFrame]:
    found = await objects.get(store.validator, names)
    if missing := [name for name in names if name not in found]:
        raise ArenaError("V2080", f"body {missing[0]} is not in {objects.location}, and the log names it")
    frames = []
    for name, frame in found.items():
        size = 0
        with contextlib.suppress(zstandard.ZstdError):
            size = zstandard.frame_content_size(frame)
        if hashlib.sha256(restore_frame(frame, size)).hexdigest() != name:
            raise ArenaError("V2080", f"body {name} in {objects.location} is damaged")
        frames.append(BodyFrame(body_sha256=name, content=frame, size=size))
    return frames


async def _end_work(
    store: PostgresStore, contents: Iterable[RecordContent], owners: Mapping[str, str], body_bytes: Mapping[str, int]
) -> None:
    """Bring queue and leases to where these attempts left them: none is run again that the log holds, and each counts
    as it did (`arena.race.decider.after_fault`). Before the records are appended, since it may be done twice and they
    may not."""
    items, ends = list[WorkItem](), list[tuple[object, ...]]()
    for record in contents:
        if not isinstance(attempt := record.payload, AttemptRecord):
            continue
        item_id, _, fence = attempt.attempt_id.rpartition(":")
        items.append(WorkItem(item_id=item_id, subject=attempt.subject, context=attempt.context))
        fault, is_fault = attempt.failure, attempt.ended != "evaluated"
        is_counted = fault is not None and attempt.ended == "faulted" and fault.owner is Owner.VALIDATOR
        is_refused = fault is not None and fault.code == REQUEST_PROVOKED
        state = "done" if not is_fault else "closed" if attempt.is_closing else "open"
        used = (record.host.agent_time_ms, body_bytes.get(attempt.body_sha256, 0), record.host.episode_ms)
        ends.append((item_id, int(fence), state, is_fault, is_counted, is_refused, *used, record.recorded_ms))
    names = ("ids", "fences", "states", "faults", "counted", "refused", "agent_ms", "body_bytes", "worker_ms", "at_ms")
    if ends:
        await store.enqueue(items, owners)
        columns = (list(column) for column in zip(*ends, strict=True))
        await store.session.call("end_work", validator=store.validator, **dict(zip(names, columns, strict=True)))
