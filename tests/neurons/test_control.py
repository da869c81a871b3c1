"""The control agent on one validator: faults in its queue, their witnesses, and a policy whose control is unknown."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from msgspec.structs import replace

from arena.race.settlement.control import control_subject, witness_subject
from arena.store.embedded.server import EmbeddedServer
from foundation.errors import ArenaError, Failure
from neurons.loops.run_loop import StopSignal
from neurons.race.episodes import EpisodeLoop
from neurons.race.log import RaceLog
from tests.neurons.clock_stand import POLICY, Desk, open_desk

PATIENT = replace(POLICY, race=replace(POLICY.race, retry_ms=1, retry_max_ms=1))


async def work(desk: Desk, faulty: str) -> None:
    """Evaluate what can be claimed; every attempt at the faulty agent ends in a fault of the validator."""
    episodes = EpisodeLoop(desk.node, StopSignal(desk.node.now_ms))
    while leases := await desk.store.claim(1, 60_000, ("race",)):
        for lease in leases:
            if lease.item.subject.agent_version_id == faulty:
                await episodes._fault(lease, Failure(code="V2004", detail="provoked"))
            else:
                await desk._finish(lease, True)
        await asyncio.sleep(0.005)  # the wait before a retry passes by the server's clock


async def test_a_lone_validator_charges_what_its_control_did_not_meet(server: EmbeddedServer, tmp_path: Path):
    async with open_desk(server, tmp_path) as desk:
        desk.start(PATIENT)
        await desk.settle_in()
        good, faulty = await desk.submit("good"), await desk.submit("faulty")
        await desk.turn_until("running")
        await desk.clock.turn()
        await work(desk, faulty.agent_version_id)
        state = await desk.turn_until("settled")
        assert state.settlement is not None and state.settlement.void == ()
        rows = {row.agent_version_id: row for row in state.settlement.standings}
        assert (rows[faulty.agent_version_id].race_score_e4, rows[faulty.agent_version_id].faulted) == (0, 2)
        assert (rows[good.agent_version_id].race_score_e4, rows[good.agent_version_id].faulted) == (10_000, 0)
        log = RaceLog(desk.store, state.race_id)
        await log.refresh()
        ran = [row.record.subject for row in log.evaluations if row.record.subject.is_control]
        witness = witness_subject(PATIENT.race, faulty.agent_version_id)
        assert sorted(ran.count(each) for each in (control_subject(PATIENT.race), witness)) == [2, 2] and len(ran) == 4
        assert sum(row.record.is_closing for row in log.records.attempts) == 2
        assert len(log.records.attempts) == 2 * PATIENT.race.attempts


async def test_a_policy_whose_control_agent_is_not_shipped_starts_nothing(server: EmbeddedServer, tmp_path: Path):
    async with open_desk(server, tmp_path) as desk:
        desk.start(replace(POLICY, race=replace(POLICY.race, control_sha256="0" * 64)))
        await desk.settle_in()
        with pytest.raises(ArenaError, match="V2170"):
            await desk.clock.turn()
