"""What the host accepts from a guest, and how it refuses everything else."""

from __future__ import annotations

import itertools
import json
import os
import struct
from typing import Literal

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.limits import EpisodeLimits
from harness.sandbox.port import BreachError, Final, FrameInbox, GuestConversation, GuestRequest, Pipes, encode_result

READY = {"jsonrpc": "2.0", "method": "ready", "params": {"python": "3.11.7"}}


def frame(message: object) -> bytes:
    body = message if isinstance(message, bytes) else json.dumps(message).encode()
    return struct.pack(">I", len(body)) + body


def request(request_id: object = 1, method: object = "tool.call", **more: object) -> dict[str, object]:
    return {"jsonrpc": "2.0", "id": request_id, "method": method, "params": {}, **more}


def read(*frames: bytes, limits: EpisodeLimits | None = None) -> list[object]:
    inbox = FrameInbox(limits or EpisodeLimits())
    inbox.feed(b"".join(frames))
    return list(inbox.messages())


def test_a_whole_conversation_is_read_in_order():
    final = {"jsonrpc": "2.0", "method": "final", "params": {"claim": [1]}}
    call = request(params={"name": "x"})
    assert read(frame(READY), frame(call), frame(final)) == [
        GuestRequest(jsonrpc="2.0", method="ready", params={"python": "3.11.7"}),
        GuestRequest(jsonrpc="2.0", id=1, method="tool.call", params={"name": "x"}),
        Final(claim=[1]),
    ]


@given(st.lists(st.integers(min_value=1, max_value=40), min_size=1, max_size=60))
def test_how_the_bytes_were_cut_does_not_matter(sizes):
    stream = frame(READY) + frame(request(1)) + frame(request(2, params={"text": "é" * 30}))
    inbox, got, position = FrameInbox(EpisodeLimits()), [], 0
    for size in [*sizes, len(stream)]:
        inbox.feed(stream[position : position + size])
        position += size
        got += list(inbox.messages())
    assert got == read(stream)


BAD_FRAMES = {
    "garbage": b"\xff\xfe\x00garbage",
    "NaN": b'{"jsonrpc":"2.0","id":1,"method":"tool.call","params":{"x":NaN}}',
    "too deep to read": b'{"jsonrpc":"2.0","id":1,"method":"tool.call","params":{"x":'
    + b"[" * 5000
    + b"]" * 5000
    + b"}}",
    "too deep to write": b'{"jsonrpc":"2.0","id":1,"method":"tool.call","params":{"x":'
    + b"[" * 400
    + b"]" * 400
    + b"}}",
    "another version": orjson.dumps(request(jsonrpc="1.0")),
    "params not an object": orjson.dumps(request(params=[1])),
    "an unknown key": orjson.dumps(request(extra=1)),
    "an unknown method": orjson.dumps(request(method="host.exec")),
    "an id that is a bool": orjson.dumps(request(True)),
    "an id that is a float": orjson.dumps(request(1.0)),
    "an id beyond 2^53": orjson.dumps(request(2**53)),
    "a reply never asked for": orjson.dumps({"jsonrpc": "2.0", "id": 1, "result": {}}),
    "a second ready": orjson.dumps(READY),
    "an unknown notice": orjson.dumps({"jsonrpc": "2.0", "method": "record", "params": {}}),
    "a final of unknown kind": orjson.dumps({"jsonrpc": "2.0", "method": "final", "params": {"kind": "won"}}),
}


@pytest.mark.parametrize("bad", BAD_FRAMES.values(), ids=BAD_FRAMES.keys())
def test_a_bad_frame_is_a_protocol_breach(bad):
    with pytest.raises(BreachError) as caught:
        read(frame(READY), frame(bad))
    assert caught.value.end == "protocol"


def test_many_small_frames_do_not_pass_the_byte_cap_of_the_episode():
    with pytest.raises(BreachError) as caught:
        read(*(frame(request(i)) for i in range(1, 100)), limits=EpisodeLimits(rpc_bytes=1000))
    assert caught.value.end == "frame"


def converse(sent: bytes, *, loop_s: float, call_s: float) -> tuple[str, int]:
    """How a guest that sent this and waits ends, on a clock that moves only where said: (end, agent ms)."""
    now = [0.0]
    loops = itertools.count()

    class Host:
        def call(self, method: str, params: dict[str, object]) -> object:
            now[0] += call_s
            return {}

    def spend_loop() -> Literal["memory"] | None:
        now[0] += loop_s
        return "memory" if next(loops) > 200 else None

    (reader, guest_writes), (guest_reads, writer), (output, printed) = os.pipe(), os.pipe(), os.pipe()
    os.write(guest_writes, sent)
    with os.fdopen(writer, "wb") as to, os.fdopen(reader, "rb") as back, os.fdopen(output, "rb") as out:
        pipes = Pipes(to_guest=to, from_guest=back, output=out)
        limits, first = EpisodeLimits(agent_time_ms=5_000), encode_result(0, {})
        ended = GuestConversation(
            pipes, limits, Host(), lambda: now[0], on_ready=lambda: first, broken_limit=spend_loop
        ).run()
    for descriptor in (guest_writes, guest_reads, printed):
        os.close(descriptor)
    return ended.end, ended.agent_time_ms


def test_reading_what_a_guest_sends_is_its_own_time_and_answering_it_is_not():
    ready = frame(READY)
    asking = ready + frame(request(1)) + frame(request(2))
    final = frame({"jsonrpc": "2.0", "method": "final", "params": {"claim": 1}})
    assert converse(ready, loop_s=1.0, call_s=0.0) == ("wall_clock", 5_000)
    assert converse(asking + final, loop_s=0.0, call_s=1_000.0) == ("final", 0)
