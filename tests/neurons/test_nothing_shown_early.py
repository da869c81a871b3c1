"""No score of a running race leaves its writer by the exchange before its settlement: every other validator and a
stranger ask at every step of a race, with drawn requests."""

from __future__ import annotations

import itertools
import random
from pathlib import Path

from arena.exchange.port import RowsQuestion, SettlementQuestion
from arena.records.body import decode_content
from arena.records.model import AttemptRecord, SettlementRecord
from arena.store.embedded import EmbeddedServer
from foundation.errors import ArenaError
from tests.simulation.world import HOUR_MS, Size, World

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


class Snoop:
    """Somebody who asks everywhere for what a race has brought so far."""

    def __init__(self, world: World) -> None:
        self.world, self.race_id, self.dice, self.tried = world, world.race_id(0), random.Random(SEED), 0

    async def look(self) -> list[int]:
        """Every desk, asked by every other validator and by a stranger, for every log it may have."""
        found: list[int] = []
        permitted = {desk.signer.hotkey for desk in self.world.desks}
        for desk in self.world.desks:
            desk.door.has_permit = permitted.__contains__
            size = (await desk.real_store.head()).seq
            callers = (permitted - {desk.signer.hotkey}) | {STRANGER}
            for caller, author, race_id in itertools.product(
                sorted(callers), sorted(permitted), (self.race_id, "", "race-000001")
            ):
                after = self.dice.randrange(size) if size and self.dice.random() < 0.5 else 0
                to_seq = self.dice.choice((size, size + 1, after + 1))
                self.tried += 1
                try:
                    question = RowsQuestion(validator=author, after=after, to=to_seq, race=race_id)
                    shown = [row async for row in await desk.door.rows(caller, question)]
                except ArenaError as error:
                    assert error.failure.code in ("V2111", "V2113")
                    continue
                assert caller != STRANGER
                contents = [bytes(row.content) if row.content is not None else None for row in shown]
                found += [row.seq for row, each in zip(shown, contents, strict=True) if is_score(each, self.race_id)]
        return found


async def test_no_score_is_readable_before_its_settlement_by_any_role_but_its_writer(
    server: EmbeddedServer, tmp_path: Path
) -> None:
    world = World(TINY, SEED, tmp_path)
    await world.open(server.dsn_for)
    moments, race_id, snoop = world.plan(0), world.race_id(0), Snoop(world)
    world.time.ms, had_results = moments.closing_ms - HOUR_MS, False
    while world.time.ms < moments.abandon_ms:
        for desk in world.desks:
            await desk.turn()
            if world.time.ms < moments.settling_ms:
                assert await snoop.look() == []
        evaluated = [record async for record in world.desks[0].real_store.records(race_id=race_id)]
        had_results |= bool(evaluated) and world.time.ms < moments.settling_ms
        if world.time.ms < moments.countersign_ms:
            for desk, other in itertools.permutations(world.desks, 2):
                assert not await desk.door.answer(other.signer.hotkey, SettlementQuestion(race=race_id))
        world.time.ms += HOUR_MS // 2
    assert had_results and snoop.tried > 500
    desk, other = world.desks[:2]  # the same questions are answered once the race is over: they were the right ones
    assert await desk.door.answer(other.signer.hotkey, SettlementQuestion(race=race_id))
    assert [seq for _ in range(10) for seq in await snoop.look()]  # few of the ranges drawn hold whole rows
    for desk in world.desks:
        await desk.real_store.close()
