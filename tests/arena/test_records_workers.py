"""Inspection in processes gives what inspection on a thread gives, and a process that dies is an error, not a gap."""

from __future__ import annotations

import asyncio
import os
import signal

import msgspec
import pytest

from arena.chain.keys import keypair_signer, verify
from arena.records.sequencer import Sequencer
from arena.records.verification import BATCH, verify_store
from foundation.errors import ArenaError
from tests.arena.log_stand import HOST, Clock, MemoryLog, episode

ALICE = keypair_signer("//Alice")
EPISODES = BATCH  # three records each: several batches


def made_log() -> MemoryLog:
    log = MemoryLog(ALICE.hotkey)

    async def fill() -> None:
        sequencer = Sequencer(log, ALICE, Clock(), HOST)
        for problem in range(EPISODES):
            payloads, body = episode(problem)
            await sequencer.append(payloads, [body])

    asyncio.run(fill())
    return log


def dies_on_the_last_record(hotkey: str, message: bytes, signature: bytes) -> bool:
    """A signature check in whose process something goes fatally wrong, once the log is nearly done."""
    if int.from_bytes(message[-72:-64], "big") == EPISODES * 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return verify(hotkey, message, signature)


def test_processes_find_what_one_thread_finds_in_a_sound_and_in_a_damaged_log() -> None:
    log = made_log()
    thread, processes = (asyncio.run(verify_store(log, verify, processes=count)) for count in (0, 2))
    assert thread == processes
    assert thread.is_ok
    for place, field, value in ((40, "content", b"{}"), (200, "signature", "00" * 64), (300, "prev", "00" * 32)):
        log.log[place] = msgspec.structs.replace(log.log[place], **{field: value})
    del log.log[350]
    name = next(iter(log.stored))
    log.stored[name] = msgspec.structs.replace(log.stored[name], content=b"other")
    thread, processes = (asyncio.run(verify_store(log, verify, processes=count)) for count in (0, 2))
    assert thread == processes
    assert {defect.rule for defect in thread.defects} >= {"content", "signature", "chain", "sequence", "body"}


def test_a_process_that_dies_ends_the_verification_with_v2052() -> None:
    with pytest.raises(ArenaError, match="V2052"):
        asyncio.run(verify_store(made_log(), dies_on_the_last_record, processes=2))
