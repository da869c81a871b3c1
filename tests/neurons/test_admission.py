"""A validator's own word on submissions: the gate in the order of commitments, persons' decisions, expired holds."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace as with_changes
from pathlib import Path

import pytest
from msgspec.structs import replace

from arena.chain.keys import generate_signer
from arena.chain.port import Signer
from arena.gate.knowledge import make_knowledge
from arena.policies import PAPER
from arena.race.state.schedule import embargo_ends_ms
from arena.records.body import decode_content
from arena.records.model import GateRecord, RaceInputs, SettlementRecord
from arena.submissions.model import SignedSubmission, make_submission
from neurons.race.intake import Intake
from neurons.race.log import QUALIFYING, RaceLog
from tests.neurons.clock_stand import POLICY, Desk, open_desk

HOLD_BLOCKS = 50
RULES = replace(POLICY, admission=replace(PAPER.admission, hold_blocks=HOLD_BLOCKS))
LONG = (Path(__file__).parents[1] / "harness" / "sn15_react_agent.py").read_text("utf-8")


@pytest.fixture
async def desk(server, tmp_path: Path) -> AsyncIterator[Desk]:
    async with open_desk(server, tmp_path) as made:
        await made.settle_in(0)
        made.policy = RULES
        restart(made)
        yield made


def restart(desk: Desk) -> Intake:
    """A new process: nothing is remembered."""
    desk.start(RULES)
    desk.node = with_changes(desk.node, knowledge=make_knowledge([], [], [], RULES.gate))
    return Intake(desk.node, RaceLog(desk.store, QUALIFYING, is_lasting=True))


async def commit(desk: Desk, name: str, source: str, signer: Signer | None = None) -> SignedSubmission:
    """A registered miner's commitment; its source is still its own."""
    miner = signer or generate_signer()
    await desk.chain.register(miner)
    made = make_submission(miner, name, source, desk.time.ms)
    await desk.chain.commit(miner, made.commitment_sha256)
    desk.time.pass_s(5)
    return made


async def words(desk: Desk, agent: str = "") -> list[GateRecord]:
    """What the log says of submissions."""
    found = [decode_content(record.content).payload async for record in desk.store.records(kinds=("gate",))]
    return [each for each in found if agent in ("", each.subject.agent_version_id)]


async def state(desk: Desk, made: SignedSubmission) -> str:
    rows = {row.subject.agent_version_id: row.state for row in await desk.store.submissions()}
    return rows[made.agent_version_id]


async def turns(intake: Intake, number: int = 3) -> None:
    for _ in range(number):
        await intake.turn()


async def test_a_source_that_comes_late_is_put_in_its_place(desk):
    intake = restart(desk)
    first, copy = await commit(desk, "first", LONG), await commit(desk, "copy", LONG)
    desk.inbox.put(copy)
    await turns(intake, 2)
    (alone,) = await words(desk)
    assert (alone.subject.agent_version_id, alone.outcome) == (copy.agent_version_id, "accept")
    desk.inbox.put(first)
    await turns(intake)
    (original,) = await words(desk, first.agent_version_id)
    assert original.outcome == "accept" and await state(desk, first) == "accepted"
    again = (await words(desk, copy.agent_version_id))[-1]
    assert again.outcome != "accept" and again.neighbours_sha256 != alone.neighbours_sha256
    assert await state(desk, copy) in ("review", "rejected")
    receipt = desk.inbox.receipt(copy.agent_version_id)
    assert receipt.state == await state(desk, copy)
    assert first.agent_version_id not in repr(receipt)  # nobody is named to whoever copied
    before = len(await words(desk))
    await turns(restart(desk))  # another process finds nothing to say
    assert len(await words(desk)) == before


async def test_a_kill_between_a_state_and_its_word_is_taken_for_no_persons_decision(desk, monkeypatch):
    intake = restart(desk)
    first, copy = await commit(desk, "first", LONG), await commit(desk, "copy", LONG)
    desk.inbox.put(copy)
    await turns(intake, 2)
    desk.inbox.put(first)
    append, left = desk.node.sequencer.append, [1]  # the word on the source that came late, then none any more

    async def dying(payloads, *rest):
        if not left:
            raise _Killed
        left.pop()
        return await append(payloads, *rest)

    monkeypatch.setattr(desk.node.sequencer, "append", dying)
    with pytest.raises(_Killed):
        await turns(intake)
    assert await state(desk, copy) != "accepted" and len(await words(desk, copy.agent_version_id)) == 1
    monkeypatch.undo()
    await turns(restart(desk))
    assert [each.decided_by for each in await words(desk, copy.agent_version_id)] == ["gate", "gate"]
    assert (await words(desk, copy.agent_version_id))[-1].outcome != "accept"
    assert await state(desk, copy) in ("review", "rejected")


class _Killed(Exception):
    """The process dies here."""


async def test_a_winners_code_is_free_from_the_block_at_which_its_embargo_ended(desk):
    intake = restart(desk)
    winner = await commit(desk, "winner", LONG)
    desk.inbox.put(winner)
    await turns(intake, 2)
    early = await commit(desk, "early", LONG.replace("Ended with", "It ended with"))
    closes_ms = desk.time.ms
    await desk.node.sequencer.append([_promotion(winner, closes_ms)])
    desk.time.ms = embargo_ends_ms(closes_ms, RULES.embargo)
    desk.time.pass_s(5)
    built_on = await commit(desk, "built-on", LONG.replace("Ended with", "So it ended with"))
    again = await commit(desk, "again", f"{LONG}\n# again\n")
    for made in (early, built_on, again):
        desk.inbox.put(made)
    await turns(restart(desk), 4)
    states = [await state(desk, made) for made in (early, built_on, again)]
    assert states == ["review", "accepted", "rejected"]
    words_on = [(await words(desk, made.agent_version_id))[-1] for made in (early, built_on)]
    assert words_on[0].neighbours_sha256 != words_on[1].neighbours_sha256
    said = len(await words(desk))
    await turns(restart(desk))  # another process reads the same reveals and finds nothing to say
    assert len(await words(desk)) == said


def _promotion(made: SignedSubmission, closes_ms: int) -> SettlementRecord:
    inputs = RaceInputs(
        policy="{}",
        problem_ids=(),
        closes_ms=closes_ms,
        field=(),
        validators=(),
        neurons=(),
        incumbent=None,
        history=(),
        eliminated=(),
        logs=(),
        beacon_network="",
        beacon_signature="",
        undrawn_why="",
    )
    return SettlementRecord(
        race_id="race-000001",
        policy_sha256=RULES.policy_sha256,
        closing_block=1,
        settling_block=2,
        beacon_round=0,
        seed="",
        batch_sha256="",
        record_set_sha256="",
        drawn=(),
        void=(),
        state="settled",
        standings=(),
        top_agent_version_id=made.agent_version_id,
        is_promotion=True,
        uids=(),
        weights_u16=(),
        inputs=inputs,
    )


# -- the inbox
