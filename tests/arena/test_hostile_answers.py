"""Whoever a client of ours asks can cost it neither its memory nor its day: each ends with the code it promises."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import ExitStack

import msgspec
import pytest

from arena.api.client import TailClient
from arena.chain.keys import verify
from arena.chain.port import Metagraph, Neuron
from arena.door.client import DoorClient, find_doors
from arena.door.service import DoorState, PauseState
from foundation.errors import ArenaError
from tests.hostile_http import DRIPS, GUARD_S, Behaviour, HostileServer, bomb, ended, endless, says
from tests.keys import generate_signer

DEEP = b"[" * 200_000
LIES = {
    "zstd": bomb("zstd"),
    "gzip": bomb("gzip"),
    "compressed refusal": bomb("zstd", b"400 Bad"),
    "endless": endless(),
    "endless refusal": endless(b"400 Bad"),
    "deep": says(DEEP),
    "deep refusal": says(DEEP, b"400 Bad"),
}
HOSTILE = {**DRIPS, **LIES}


def failure_of(behave: Behaviour, work: Callable[[str], object]) -> ArenaError:
    with HostileServer(behave) as server:
        error = ended(lambda: work(server.url))
    assert isinstance(error, ArenaError), error
    return error


def tail(url: str) -> TailClient:
    return TailClient(url, verify_signature=verify, sleep=lambda _: None, silence_s=5.0, answer_s=0.3)


@pytest.mark.parametrize("which", HOSTILE)
def test_the_sizes_and_rows_of_logs(which: str) -> None:
    assert failure_of(HOSTILE[which], lambda url: tail(url).heads()).failure.code == "V2084"
    if which in ("refusal", *LIES):
        assert failure_of(HOSTILE[which], lambda url: list(tail(url).lines())).failure.code == "V2084"


async def test_one_hostile_door_keeps_nobody_from_the_others() -> None:
    """Every behaviour at once: each door has its reason, and the one that answers is found."""
    with ExitStack() as stack:
        servers = {which: stack.enter_context(HostileServer(behave)) for which, behave in HOSTILE.items()}
        hotkeys = {which: generate_signer().hotkey for which in (*HOSTILE, "honest")}
        state = DoorState(validator=hotkeys["honest"], netuid=1, policy="p", policy_sha256="", pause=PauseState())
        servers["honest"] = stack.enter_context(HostileServer(says(msgspec.json.encode(state))))
        neurons = tuple(
            Neuron(uid=uid, hotkey=hotkeys[which], has_validator_permit=True, stake_rao=10, endpoint=server.url)
            for uid, (which, server) in enumerate(servers.items())
        )
        async with asyncio.timeout(GUARD_S), DoorClient(answer_s=3.0) as client:
            found = await find_doors(client, Metagraph(netuid=1, block=1, tempo=1, neurons=neurons))
        by_url = {door.url: door for door in found}
        for which in HOSTILE:
            failure = by_url[servers[which].url].failure
            assert failure is not None and failure.code in ("U3040", "U3042"), which
        assert by_url[servers["honest"].url].validator == hotkeys["honest"]
