"""No score of a running race can be read by anybody but its writer: not by the exchange, not by the race CLI. Tried
at every step of a race, with drawn requests."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest
from typer.testing import CliRunner

from arena.exchange.port import RowsQuestion, SettlementQuestion
from arena.export.model import LogRow
from arena.records.body import decode_content
from arena.records.model import AttemptRecord, SettlementRecord
from arena.store.embedded import EmbeddedServer
from foundation.errors import ArenaError
from neurons.cli.race import app as race_app
from tests.neurons.shared_stand import HOUR_MS
from tests.simulation.world import Size, World

SEED = 11
TINY = Size(stakes=(40, 30, 29), miners=3, races=1, problems=3)
STRANGER = "5GrwvaEF5zXb26Fz9rcQpDWS57CtERHpNehXCPcNoHGKutQY"


def is_score(content: bytes | None, race_id: str) -> bool:
    """Whether a row says anything of a race's results; that an attempt was made says nothing of how it ended."""
    if content is None:
        return False
    decoded = decode_content(content)
    payload = decoded.payload
    if isinstance(payload, SettlementRecord):
        return payload.race_id == race_id
    context = getattr(payload, "context", None)
    return context is not None and context.race_id == race_id and not isinstance(payload, AttemptRecord)


def of_rows(found: list[LogRow], race_id: str) -> list[int]:
    """The numbers of the rows that tell a score."""
    return [row.seq for row in found if is_score(bytes(row.content) if row.content is not None else None, race_id)]


class Snoop:
    """Somebody who asks everywhere for what a race has brought so far."""

    def __init__(self, world: World, server: EmbeddedServer) -> None:
        self.world, self.server = world, server
        self.race_id = world.race_id(0)
        self.dice = random.Random(SEED)
        self.tried = 0

    async def by_the_exchange(self) -> list[int]:
        """Every desk, asked by every other validator and by a stranger, for every log it may have."""
        found: list[int] = []
        permitted = {desk.signer.hotkey for desk in self.world.desks}
        for desk in self.world.desks:
            desk.door.has_permit = permitted.__contains__
            size = (await desk.real_store.head()).seq
            for caller in (permitted - {desk.signer.hotkey}) | {STRANGER}:
                for author in permitted:
                    for race_id in (self.race_id, "", "race-000001"):
                        after = self.dice.randrange(size) if size and self.dice.random() < 0.5 else 0
                        to_seq = self.dice.choice((size, size + 1, after + 1))
                        found += await self._ask(desk, caller, author, race_id, after, to_seq)
        return found

    async def _ask(self, desk, caller: str, author: str, race_id: str, after: int, to_seq: int) -> list[int]:
        self.tried += 1
        try:
            shown = await desk.door.rows(caller, RowsQuestion(validator=author, after=after, to=to_seq, race=race_id))
            return of_rows([row async for row in shown], self.race_id)
        except ArenaError as error:
            assert error.failure.code in ("V2111", "V2113")
            return []

    async def settlements(self) -> list[str]:
        found = []
        for desk in self.world.desks:
            for other in self.world.desks:
                if other is not desk and await desk.door.answer(
                    other.signer.hotkey, SettlementQuestion(race=self.race_id)
                ):
                    found.append(desk.signer.hotkey)
        return found

    def at_the_terminal(self) -> str:
        """What `arena race` prints of the race as one validator's own role."""
        dsn = self.server.dsn_for(self.dice.choice(self.world.desks).signer.hotkey)
        said = ""
        for arguments in (["list", "--json"], ["show", self.race_id], ["replay", self.race_id]):
            done = CliRunner().invoke(race_app, [*arguments, "--dsn", dsn, "--state-dir", str(self.world.folder)])
            said += done.stdout
            self.tried += 1
        return said


async def test_no_score_is_readable_before_its_settlement_by_any_role_but_its_writer(
    server: EmbeddedServer, tmp_path: Path
) -> None:
    world = World(TINY, SEED, tmp_path)
    await world.open(server.dsn_for)
    moments, race_id = world.plan(0), world.race_id(0)
    world.time.ms = moments.closing_ms - HOUR_MS
    snoop, had_results = Snoop(world, server), False
    while world.time.ms < moments.abandon_ms:
        for desk in world.desks:
            await desk.turn()
            if world.time.ms < moments.settling_ms:
                assert await snoop.by_the_exchange() == []
        evaluated = [record async for record in world.desks[0].real_store.records(race_id=race_id)]
        had_results |= bool(evaluated) and world.time.ms < moments.settling_ms
        states = [await desk.race(1) for desk in world.desks]
        if world.time.ms < moments.countersign_ms:
            assert await snoop.settlements() == []
        if not any(state.proposed for state in states):
            assert race_id not in await asyncio.to_thread(snoop.at_the_terminal)
        world.time.ms += HOUR_MS // 2
    # the same questions are answered once the race is over: they were the right ones
    assert had_results and snoop.tried > 500
    assert len(await snoop.settlements()) > 0
    assert race_id in await asyncio.to_thread(snoop.at_the_terminal)
    assert await shown_afterwards(snoop) > 0
    for desk in world.desks:
        await desk.real_store.close()


async def shown_afterwards(snoop: Snoop) -> int:
    """Scores that the exchange shows to permit holders after the race, and to nobody else."""
    desk, other = snoop.world.desks[:2]
    state = await desk.race(1)
    size = state.stated("settling").size
    shown = await desk.door.rows(
        other.signer.hotkey, RowsQuestion(validator=desk.signer.hotkey, to=size, race=snoop.race_id)
    )
    found = of_rows([row async for row in shown], snoop.race_id)
    with pytest.raises(ArenaError, match="V2111"):
        await desk.door.rows(STRANGER, RowsQuestion(validator=desk.signer.hotkey, after=0, to=size, race=snoop.race_id))
    return len(found)
