"""A race with one validator and one with three, on real parts, of which everything follows from nothing but this file.

A dump is all that a race leaves behind: events, contents of records, weights. Signatures are random, so the hashes of
signed notes stand in it by the order in which they are met. A validator may be killed at any write of its clocks.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path

import msgspec
import pytest

from arena.chain.keys import keypair_signer
from arena.chain.local import LocalSubtensor
from arena.race.machine import race_name, stream_of
from arena.race.schedule import race_number, timeline
from arena.records.port import Lease
from arena.records.sequencer import Sequencer
from arena.store.embedded import EmbeddedServer
from arena.store.postgres import PostgresStore
from tests.neurons import clock_stand, shared_stand
from tests.neurons.clock_stand import Desk, Time
from tests.neurons.shared_stand import CLOSES_MS, DAILY, HOUR_MS, SharedDesk, chain_at, enrol, submit

PLAN = timeline(CLOSES_MS, DAILY.race)
STEP_S = 1_800
_HASH = re.compile(r"\b[0-9a-f]{64}\b")
_WORDS = re.compile(r'"words":\{[^{}]*\}')  # a process that is killed forgets what it heard


class Killed(Exception):
    """The process dies here."""


class MortalStore:
    """A store whose owner dies at the n-th write of its clocks, right before or right after it."""

    def __init__(self, store: PostgresStore, at_write: int = 0, *, is_before: bool = False) -> None:
        self._store, self._at_write, self._is_before = store, at_write, is_before
        self.is_watched, self.writes = False, 0

    def __getattr__(self, name: str):
        found = getattr(self._store, name)
        if name not in ("put_event", "append", "enqueue", "close_items", "put_weights_result"):
            return found

        async def write(*given, **options):
            self.writes += self.is_watched
            is_last = self.is_watched and self.writes == self._at_write
            if is_last and self._is_before:
                raise Killed
            made = await found(*given, **options)
            if is_last:
                raise Killed
            return made

        return write


@contextmanager
def fixed(patch: pytest.MonkeyPatch, committed: set[str]) -> Iterator[None]:
    """Keys, attempt ids and names that are the same in every run; what validators commit is noted."""
    keys = (keypair_signer(f"//ends//{number}") for number in itertools.count())
    commit = LocalSubtensor.commit

    async def noted(chain: LocalSubtensor, signer, sha256: str):
        committed.add(sha256)
        return await commit(chain, signer, sha256)

    with patch.context() as inner:
        inner.setattr(clock_stand, "generate_signer", lambda: next(keys))
        inner.setattr(shared_stand, "generate_signer", lambda: next(keys))
        inner.setattr(Lease, "attempt_id", property(lambda lease: f"{lease.item.item_id}:1"))
        inner.setattr(LocalSubtensor, "commit", noted)
        inner.setattr(clock_stand, "Sequencer", partial(Sequencer, random_bytes=bytes))
        yield


@asynccontextmanager
async def opened(server: EmbeddedServer, names: Sequence[str], *kill: int | bool) -> AsyncIterator[list[MortalStore]]:
    """The stores of validators with these keys; the first dies as `kill` says (`MortalStore`)."""
    signers = [keypair_signer(name) for name in names]
    stores = [await PostgresStore.open(server.dsn_for(signer.hotkey), signer.hotkey) for signer in signers]
    at_write, is_before = kill or (0, False)
    try:
        yield [MortalStore(stores[0], int(at_write), is_before=bool(is_before)), *map(MortalStore, stores[1:])]
    finally:
        for store in stores:
            await store.close()


async def turn(desk: Desk, act) -> bool:
    """One turn of a clock; a process that is killed in it starts again, and the answer is False."""
    store = desk.store
    try:
        store.is_watched = True
        await act()
        return True
    except Killed:
        store.is_watched = False
        desk.start(desk.policy)
        if isinstance(desk, SharedDesk):
            await desk.checkpoints.open()
        return False
    finally:
        store.is_watched = False


class LoneRace:
    """Two races of a validator that can ask nobody: one with a winner, one in which nothing is solved."""

    def __init__(self, uri: str, folder: Path) -> None:
        self.uri, self.folder = uri, folder

    async def run(self, server: EmbeddedServer, patch: pytest.MonkeyPatch, *kill: int | bool) -> tuple[str, int]:
        """The dump, and how often its clocks wrote."""
        committed: set[str] = set()
        with fixed(patch, committed):
            async with opened(server, [self.uri], *kill) as (store,):
                desk = Desk(store, keypair_signer(self.uri), self.folder, Time())  # type: ignore[arg-type]
                await desk.settle_in()
                solved = (await desk.submit("good"), race_name(1))
                await desk.submit("weak")
                for _ in range(120):
                    for _ in range(6):  # more than follow from each other, with a kill among them
                        await turn(desk, desk.clock.turn)
                        await turn(desk, desk.weights.turn)
                    await desk.work(lambda lease: (lease.item.subject, lease.item.context.race_id) == solved)
                    if '"event":"released"' in "".join(await desk.store.events(stream_of(race_name(2)))):
                        break
                    desk.time.pass_s(1)
                return await dump([desk], (race_name(1), race_name(2)), committed), store.writes


class SharedRace:
    """One race of as many validators as there are keys, with two agents, all of them honest and there."""

    def __init__(self, uris: Sequence[str], folder: Path) -> None:
        self.uris, self.folder = uris, folder

    async def run(self, server: EmbeddedServer, patch: pytest.MonkeyPatch, *kill: int | bool) -> tuple[str, int]:
        """The dump, and how often the clocks of the first validator wrote."""
        committed: set[str] = set()
        race_id = race_name(race_number(CLOSES_MS, DAILY.race))
        with fixed(patch, committed):
            async with opened(server, self.uris, *kill) as stores:
                time, chain = Time(), None
                desks: list[SharedDesk] = []
                for uri, store in zip(self.uris, stores, strict=True):
                    chain = chain or chain_at(self.folder, time)
                    desks.append(SharedDesk(store, keypair_signer(uri), self.folder, time, chain))  # type: ignore[arg-type]
                await enrol(desks, (50, 30, 40)[: len(desks)], self.folder)
                for desk in desks:
                    await self._turn(desk, desks)
                await submit(desks, "good")
                await submit(desks, "weak")
                time.ms = CLOSES_MS - HOUR_MS
                while time.ms < PLAN.countersign_ms + 2 * HOUR_MS:
                    for desk in desks:
                        await self._turn(desk, desks)
                    time.pass_s(STEP_S)
                return await dump(desks, (race_id,), committed), stores[0].writes

    async def _turn(self, desk: SharedDesk, desks: Sequence[SharedDesk]) -> None:
        idle = 1
        while idle >= 0:
            before = await desk.store.events(stream_of(race_name(race_number(CLOSES_MS, DAILY.race))))
            is_alive = await turn(desk, desk.clock.turn)
            for other in desks:
                other.peers.services = {each.signer.hotkey: each.door for each in desks}
            await desk.clock.rest()
            await desk.work(desk.solves)
            after = await desk.store.events(stream_of(race_name(race_number(CLOSES_MS, DAILY.race))))
            idle = idle - (before == after) if is_alive else 3  # what was not written down is asked for again
        await desk.checkpoints.turn()
        await desk.anchors.turn()
        while not await turn(desk, desk.weights.turn):
            pass


async def dump(desks: Sequence[Desk], race_ids: Sequence[str], committed: set[str]) -> str:
    """Events, records and weights of all, as lines."""
    lines: list[str] = []
    for desk in desks:
        for race_id in race_ids:
            lines += await desk.store.events(stream_of(race_id))
        async for record in desk.store.records(desk.signer.hotkey):
            lines.append(f"{record.seq} {bytes(record.content).decode()}")
        results = [
            msgspec.json.encode(each).decode()
            for each in await desk.store.weights_results(100)
            if each.race_id in race_ids
        ]
        lines += [*reversed(results), str(await desk.chain.weights(desk.signer.hotkey))]
    names: dict[str, str] = {}

    def name_of(found: re.Match[str]) -> str:
        value = found.group()
        return names.setdefault(value, f"<commitment {len(names)}>") if value in committed else value

    return _HASH.sub(name_of, "\n".join(lines))


def whatever_is_killed(text: str) -> str:
    """A dump less what a kill may change: what a validator heard of others, and tries at weights of which the chain
    knew before the store did."""
    return "\n".join(_WORDS.sub("", line) for line in text.split("\n") if not line.startswith('{"race_id"'))
