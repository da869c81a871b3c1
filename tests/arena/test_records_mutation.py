"""Nothing done to a log goes unseen: whatever is changed, dropped, doubled, swapped or cut, given where it must end."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import cache

import msgspec
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from arena.chain.keys import keypair_signer, verify
from arena.records.inspection import inspect
from arena.records.log import Checkpoint
from arena.records.model import Entry, Head
from arena.records.sequencer import Sequencer
from arena.records.verification import LogCheck, VerifyReport
from tests.arena.log_stand import HOST, Clock, MemoryLog, attempt, episode, release, settlement

ALICE, BOB = keypair_signer("//Alice"), keypair_signer("//Bob")
TEXTS = ("prev", "content_sha256", "signature", "validator")
BYTES = ("content", "body")


@cache
def whole() -> tuple[tuple[Entry, ...], Head, Checkpoint]:
    """A log that holds every kind, its end, and a checkpoint of it."""
    log = MemoryLog(ALICE.hotkey)

    async def fill() -> tuple[Entry, ...]:
        sequencer = Sequencer(log, ALICE, Clock(), HOST)
        await sequencer.append([attempt(0)])
        for problem in (1, 2):
            payloads, body = episode(problem)
            await sequencer.append(payloads, [body])
        await sequencer.append([settlement(), release()])
        entries = []
        for record in log.log:
            (body,) = [b for b in log.stored.values() if b.body_sha256 in record.content.decode()] or [None]
            is_evaluation = b'"kind":"evaluation"' in record.content
            fields = msgspec.structs.astuple(record)
            frame = (await log.frames([body.body_sha256]))[0] if body and is_evaluation else None
            entries.append(Entry(*fields, *((frame.content, frame.size) if frame else ())))
        return tuple(entries)

    entries = asyncio.run(fill())
    report = check(entries)
    assert report.is_ok, report.defects
    return entries, log.end, report.logs[0].checkpoint


def check(entries: Sequence[Entry], head: Head | None = None, points: Sequence[Checkpoint] = ()) -> VerifyReport:
    running = LogCheck(points)
    for entry in entries:
        running.take(inspect(entry, verify))
    if head:
        running.expect_head(ALICE.hotkey, head)
    return running.report()


def is_found(entries: Sequence[Entry], data: st.DataObject) -> VerifyReport:
    """The report of a damaged log, which has to be found with the head alone and with the checkpoint alone."""
    _, head, point = whole()
    report = check(entries, head) if data.draw(st.booleans()) else check(entries, None, [point])
    assert not report.is_ok
    return report


def changed(entry: Entry, field: str, data: st.DataObject) -> Entry:
    """The entry with one byte of a field changed to another."""
    value = getattr(entry, field)
    raw = bytearray(value if isinstance(value, bytes) else value.encode())
    raw[data.draw(st.integers(0, len(raw) - 1))] ^= data.draw(st.integers(1, 127))
    return msgspec.structs.replace(entry, **{field: bytes(raw) if isinstance(value, bytes) else raw.decode()})


def restored(entry: Entry) -> bytes | None:
    """The body in an entry's frame, or None when it is no frame."""
    try:
        return zstandard.ZstdDecompressor().decompress(entry.body or b"", max_output_size=entry.frame_size)
    except zstandard.ZstdError:
        return None


@settings(max_examples=300)
@given(st.data())
def test_any_changed_byte_of_any_field_is_found_and_its_record_named(data: st.DataObject) -> None:
    entries = list(whole()[0])
    place = data.draw(st.integers(0, len(entries) - 1))
    fields = [*TEXTS, *[field for field in BYTES if getattr(entries[place], field) is not None]]
    field = data.draw(st.sampled_from(fields))
    entries[place] = changed(entries[place], field, data)
    if field == "body" and restored(entries[place]) == restored(whole()[0][place]):
        return  # an unused bit of the frame's header: the body itself is the same
    assert place + 1 in {defect.seq for defect in is_found(entries, data).defects}


@given(st.data())
def test_any_other_number_of_a_record_or_size_of_a_frame_is_found(data: st.DataObject) -> None:
    entries = list(whole()[0])
    place = data.draw(st.integers(0, len(entries) - 1))
    seq = data.draw(st.integers(-(2**62), 2**62).filter(lambda seq: seq != place + 1))
    entries[place] = msgspec.structs.replace(entries[place], seq=seq)
    is_found(entries, data)
    framed = [number for number, entry in enumerate(whole()[0]) if entry.frame_size]
    place = data.draw(st.sampled_from(framed))
    entries = list(whole()[0])
    size = data.draw(st.integers(-(2**62), 2**62).filter(lambda size: size != entries[place].frame_size))
    entries[place] = msgspec.structs.replace(entries[place], frame_size=size)
    assert [(defect.rule, defect.seq) for defect in is_found(entries, data).defects] == [("body", place + 1)]


@given(st.data())
def test_any_dropped_doubled_swapped_or_moved_record_is_found(data: st.DataObject) -> None:
    entries = list(whole()[0])
    places = st.integers(0, len(entries) - 1)
    place, other = data.draw(st.tuples(places, places).filter(lambda pair: pair[0] != pair[1]))
    match data.draw(st.sampled_from(["drop", "double", "swap", "move"])):
        case "drop":
            del entries[place]
        case "double":
            entries.insert(other, entries[place])
        case "swap":
            entries[place], entries[other] = entries[other], entries[place]
        case "move":
            entries.insert(other, entries.pop(place))
    is_found(entries, data)


@given(st.data())
def test_any_part_of_a_log_without_the_rest_is_found(data: st.DataObject) -> None:
    entries = list(whole()[0])
    first = data.draw(st.integers(0, len(entries)))
    end = data.draw(st.integers(first, len(entries)).filter(lambda end: end - first < len(entries)))
    is_found(entries[first:end], data)


@given(st.data())
def test_any_field_taken_from_another_record_is_found(data: st.DataObject) -> None:
    entries = list(whole()[0])
    places = st.integers(0, len(entries) - 1)
    place, other = data.draw(st.tuples(places, places).filter(lambda pair: pair[0] != pair[1]))
    field = data.draw(st.sampled_from(["prev", "content_sha256", "signature", "content"]))
    entries[place] = msgspec.structs.replace(entries[place], **{field: getattr(entries[other], field)})
    assert place + 1 in {defect.seq for defect in is_found(entries, data).defects}


@given(st.data())
def test_a_dropped_or_cut_content_or_body_is_found(data: st.DataObject) -> None:
    entries = list(whole()[0])
    place = data.draw(st.sampled_from([number for number, entry in enumerate(entries) if entry.body is not None]))
    field = data.draw(st.sampled_from(BYTES))
    kept = data.draw(st.integers(0, len(getattr(entries[place], field)) - 1))
    value = data.draw(st.sampled_from([None, getattr(entries[place], field)[:kept]]))
    if field == "content" and value is None:
        return  # a stub, which says so itself
    entries[place] = msgspec.structs.replace(entries[place], **{field: value})
    assert place + 1 in {defect.seq for defect in is_found(entries, data).defects}


def test_a_log_signed_by_another_key_is_found() -> None:
    entries, head, _ = whole()
    renamed = [msgspec.structs.replace(entry, validator=BOB.hotkey) for entry in entries]
    assert check(renamed, head).defect_count >= len(entries)
