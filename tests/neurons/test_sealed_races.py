"""Races on an operator's sealed batches: opened by their draw, and by nothing else."""

from __future__ import annotations

import asyncio
import itertools
import json
import random
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from arena.bank.batch import seal, write_batch
from arena.bank.sealing import lock_batch, write_sealed
from arena.exchange.port import RowsQuestion, SettlementQuestion
from arena.race.schedule import closing_ms
from arena.records.body import decode_content
from arena.records.model import AttemptRecord, SettlementRecord
from arena.store.embedded import EmbeddedServer
from foundation.errors import ArenaError
from neurons.cli.race import app
from problems.synthesis import synthesize
from tests.arena.bank_stand import OPERATOR, TIMELOCK, open_bank
from tests.neurons.clock_stand import CATALOGUE, POLICY, Desk, open_desk
from tests.simulation.world import HOUR_MS, Size, World


@pytest.fixture
async def desk(server: EmbeddedServer, tmp_path: Path) -> AsyncIterator[Desk]:
    async with open_desk(server, tmp_path) as made:
        await made.settle_in()
        (tmp_path / "bank").mkdir()
        made.bank = open_bank(tmp_path / "bank", made.beacon)
        made.start(POLICY)
        yield made


def deliver(desk: Desk, seed: int = 1) -> Path:
    """The operator's batch for a race that opens now."""
    opens_with = desk.beacon.round_after(closing_ms(desk.time.ms, desk.policy.race))
    problems = synthesize(CATALOGUE, seed=seed, counts={"product": 3})
    batch = seal(f"slot-{seed}", problems, random.Random(seed).randbytes(32))
    sealed = lock_batch(batch, opens_with, timelock=TIMELOCK, signer=OPERATOR, made_ms=desk.time.ms)
    path = desk.folder / "bank" / f"slot-{seed}.sealed.json"
    write_sealed(path, sealed)
    return path


def released(desk: Desk, dsn: str, race: str = "race-000001", *more: str):
    return CliRunner().invoke(app, ["show", race, "--release", "--dsn", dsn, "--state-dir", str(desk.folder), *more])


async def test_a_sealed_batch_is_opened_by_its_draw_raced_and_released_and_the_command_checks_every_commitment(
    desk, server
):
    dsn = server.dsn_for(desk.signer.hotkey)
    deliver(desk)
    await desk.submit("good")
    opened = await desk.turn_until("open")
    with pytest.raises(ArenaError, match="P4001"):
        desk.bank.batch("race-000001")
    await desk.turn_until("running")
    batch = desk.bank.batch("race-000001")
    assert batch.batch_sha256 == opened.opened.batch.batch_sha256
    early = await asyncio.to_thread(released, desk, dsn)
    assert early.exit_code == 2 and "p_" not in early.stdout
    await desk.clock.turn()
    assert await desk.work() == 2 * POLICY.race.problems  # the agent's and the control's
    await desk.turn_until("settled")
    await desk.clock.turn()
    shown = await asyncio.to_thread(released, desk, dsn, "race-000001", "--json")
    found = json.loads(shown.stdout)["release"]
    assert shown.exit_code == 0 and found["batch"] == "kept" and not found["faults"] and not found["broken"]
    assert (found["record"]["salt"], len(found["record"]["problems"])) == (batch.salt, 3)
    path = desk.folder / "bank" / "race-000001.batch.json"
    other = seal("slot-1", synthesize(CATALOGUE, seed=9, counts={"product": 3}), random.Random(9).randbytes(32))
    write_batch(path, other)
    broken = await asyncio.to_thread(released, desk, dsn)
    assert broken.exit_code == 4 and "NOT as committed" in broken.stdout
    assert (await asyncio.to_thread(released, desk, dsn, "race-000009")).exit_code == 2


async def test_a_batch_that_does_not_open_costs_the_race_and_not_the_node(desk):
    path = deliver(desk)
    await desk.submit("good")
    await desk.turn_until("open")
    path.unlink()
    state = await desk.turn_until("cancelled", turns=120)
    assert state.draw is None and state.settlement is not None
    assert state.settlement.reason == "the batch did not open (P4014)"
    deliver(desk, seed=2)
    assert (await desk.turn_until("open", race=2, turns=1)).opened is not None


async def test_an_own_batch_that_was_tampered_with_ends_the_node(desk):
    deliver(desk)
    await desk.submit("good")
    await desk.turn_until("running")
    await desk.clock.turn()
    await desk.work()
    kept = desk.folder / "bank" / "race-000001.batch.json"
    kept.write_bytes(kept.read_bytes().replace(b'"salt":"', b'"salt":"00', 1))
    with pytest.raises(ArenaError, match="P4010"):
        for _ in range(10):
            await desk.clock.turn()
            desk.time.pass_s(1)


# -- every other validator and a stranger ask at every step of a race: no score is shown before its settlement


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
