"""A validator's own word on submissions: the gate in the order of commitments, persons' decisions, expired holds."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace as with_changes
from pathlib import Path

import pytest
from msgspec.structs import replace

from arena.chain.port import Signer
from arena.gate.knowledge import make_knowledge
from arena.policies import PAPER
from arena.policy import Policy
from arena.race.schedule import embargo_ends_ms
from arena.records.body import decode_content
from arena.records.model import GateRecord
from arena.records.port import EVERY_STATE
from arena.submissions.submission import SignedSubmission, make_submission, waiting_row
from neurons.loops.node import suite_variants
from neurons.loops.run_loop import StopSignal
from neurons.race.episodes import EpisodeLoop
from neurons.race.intake import Intake, variant_seed
from neurons.race.log import QUALIFYING, RaceLog
from neurons.worker.ports import REQUESTS, encode_line
from problems.model import variant_id
from problems.titles import reward_titles
from tests.arena.chain_faults import set_finality_lag
from tests.arena.log_stand import settlement
from tests.arena.race_stand import race_events
from tests.keys import generate_signer
from tests.neurons.clock_stand import CATALOGUE, POLICY, SUITE, Desk, open_desk
from tests.neurons.test_restarts import Faulty

HOLD_BLOCKS = 50
RULES = replace(POLICY, admission=replace(PAPER.admission, hold_blocks=HOLD_BLOCKS))
PLAIN = "def agent_main(problem):\n    return None\n"
ODD = {  # each is held by a heuristic, and none is like another
    "odd": "def agent_main(problem):\n    return getattr(problem, problem['key'])\n",
    "other": f"class Other:\n    pass\n\n\n{PLAIN}\n\ndef put(name):\n    setattr(Other, name, [1, 2, 3])\n",
    "late": "def agent_main(problem):\n    for name in ('a', 'b'):\n        if hasattr(problem, name):\n"
    "            return getattr(problem, name + 'c')\n    return 0\n",
}
LONG = (Path(__file__).parents[1] / "harness" / "sn15_react_agent.py").read_text("utf-8")


@pytest.fixture
async def desk(server, tmp_path: Path) -> AsyncIterator[Desk]:
    async with open_desk(server, tmp_path) as made:
        await made.settle_in()
        made.policy = RULES
        restart(made)
        yield made


def restart(desk: Desk, rules: Policy = RULES) -> Intake:
    """A new process: nothing is remembered."""
    desk.start(rules)
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


async def handed(desk: Desk, name: str, source: str, signer: Signer | None = None) -> SignedSubmission:
    """A commitment whose source is handed in at once."""
    made = await commit(desk, name, source, signer)
    await desk.hand_in(made)
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
    await desk.hand_in(copy)
    await turns(intake, 2)
    (alone,) = await words(desk)
    assert (alone.subject.agent_version_id, alone.outcome) == (copy.agent_version_id, "accept")
    await desk.hand_in(first)
    await turns(intake)
    (original,) = await words(desk, first.agent_version_id)
    assert original.outcome == "accept" and await state(desk, first) == "accepted"
    again = (await words(desk, copy.agent_version_id))[-1]
    assert again.outcome != "accept" and again.neighbours_sha256 != alone.neighbours_sha256
    assert await state(desk, copy) in ("review", "rejected")
    (row,) = await desk.store.submissions(miner_hotkey=copy.hotkey)
    assert first.agent_version_id not in repr(row)  # nobody is named to whoever copied
    before = len(await words(desk))
    await turns(restart(desk))  # another process finds nothing to say
    assert len(await words(desk)) == before


async def test_by_classes_a_copy_passes_and_is_of_the_class_of_who_was_first_on_chain(desk):
    intake = restart(desk, replace(RULES, gate=replace(RULES.gate, class_e4=6_000)))
    miners = [generate_signer() for _ in range(2)]
    for miner in miners:
        await desk.chain.register(miner)
    made = [make_submission(miner, "agent", LONG, desk.time.ms) for miner in miners]
    copy, first = sorted(made, key=lambda each: each.agent_version_id)  # of one block: the smaller hash comes second
    for each in (first, copy):
        await desk.chain.commit(miners[made.index(each)], each.commitment_sha256)
    desk.time.pass_s(5)
    await desk.hand_in(copy)
    await turns(intake, 2)
    await desk.hand_in(first)
    await turns(intake)
    for each, heads, order in ((first, [first], 0), (copy, [copy, first], 1)):
        said = await words(desk, each.agent_version_id)
        assert {one.outcome for one in said} == {"accept"}
        assert [one.origin.head for one in said] == [head.agent_version_id for head in heads]
        assert {(one.origin.owner, one.origin.order) for one in said} == {(each.hotkey, order)}


async def test_an_agent_that_was_held_for_a_while_can_still_end_its_qualifying(desk):
    intake = restart(desk)
    first = await commit(desk, "first", LONG)
    near = await commit(desk, "near", LONG.replace("Ended with", "It ended with"))
    await desk.hand_in(near)
    await turns(intake)
    asked = await desk.store.open_items(QUALIFYING, "qualifying")
    assert asked and await state(desk, near) == "accepted"
    await desk.hand_in(first)
    await turns(intake)
    assert await state(desk, near) == "review"
    await desk.store.set_submission_state(near.agent_version_id, "accepted")
    await turns(restart(desk))
    assert await desk.store.open_items(QUALIFYING, "qualifying") == 2 * asked  # the other one's, too


async def test_a_persons_decision_is_said_once_and_a_hold_that_runs_out_is_none(desk):
    intake = restart(desk)
    odd, other, late = [await handed(desk, name, source) for name, source in ODD.items()]
    await turns(intake, 2)
    assert [(each.decided_by, each.outcome, each.hold) for each in await words(desk)] == [
        ("gate", "review", "heuristic")
    ] * 3
    await desk.store.set_submission_state(odd.agent_version_id, "accepted")
    await desk.store.set_submission_state(other.agent_version_id, "rejected")
    for _ in range(2):
        await turns(restart(desk), 2)
    for made, outcome in ((odd, "accept"), (other, "reject")):
        gate, person = await words(desk, made.agent_version_id)
        assert (person.decided_by, person.outcome, person.subject) == ("person", outcome, gate.subject)
    assert await state(desk, late) == "review"
    desk.time.pass_s(HOLD_BLOCKS)
    await turns(restart(desk))
    assert await state(desk, late) == "accepted" and len(await words(desk, late.agent_version_id)) == 1
    assert await state(desk, other) == "rejected"


async def test_a_kill_between_a_state_and_its_word_is_taken_for_no_persons_decision(desk, monkeypatch):
    intake = restart(desk)
    first, copy = await commit(desk, "first", LONG), await commit(desk, "copy", LONG)
    await desk.hand_in(copy)
    await turns(intake, 2)
    await desk.hand_in(first)
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


async def test_versions_of_one_coldkey_are_no_copies_of_each_other(desk, monkeypatch):
    intake = restart(desk)
    first, second, thief = [await commit(desk, name, LONG) for name in ("first", "second", "thief")]
    metagraph, asked = desk.chain.metagraph, []

    async def with_coldkeys(block=None):
        asked.append(block)
        found = await metagraph(block)
        shared = {first.hotkey: "the owner's", second.hotkey: "the owner's"}
        neurons = tuple(replace(each, coldkey=shared.get(each.hotkey, each.hotkey)) for each in found.neurons)
        return replace(found, neurons=neurons)

    monkeypatch.setattr(desk.chain, "metagraph", with_coldkeys)
    for made in (first, second, thief):
        await desk.hand_in(made)
    await turns(intake)
    assert [await state(desk, made) for made in (first, second, thief)] == ["accepted", "accepted", "rejected"]
    blocks = {each.subject.commitment_block for each in await words(desk)}
    assert blocks <= set(asked)  # each owner is the one at the commitment, whatever the chain says today


async def test_a_winners_code_is_free_from_the_block_at_which_its_embargo_ended(desk):
    intake = restart(desk)
    winner = await handed(desk, "winner", LONG)
    await turns(intake, 2)
    early = await commit(desk, "early", LONG.replace("Ended with", "It ended with"))
    closes_ms = desk.time.ms
    daily = replace(RULES, race=replace(RULES.race, closes_after_ms=None))  # a race without a calendar has no embargo
    promotion = replace(settlement("race-000001"), top_agent_version_id=winner.agent_version_id, is_promotion=True)
    for number, event in enumerate(race_events(daily, closes_ms, promotion, promotion)):
        await desk.store.put_event("race/race-000001", number, event)
    desk.time.ms = embargo_ends_ms(closes_ms, RULES.embargo)
    desk.time.pass_s(5)
    await desk.hand_in(early)
    built_on = await handed(desk, "built-on", LONG.replace("Ended with", "So it ended with"))
    again = await handed(desk, "again", f"{LONG}\n# again\n")
    await turns(restart(desk), 4)
    states = [await state(desk, made) for made in (early, built_on, again)]
    assert states == ["review", "accepted", "rejected"]
    words_on = [(await words(desk, made.agent_version_id))[-1] for made in (early, built_on)]
    assert words_on[0].neighbours_sha256 != words_on[1].neighbours_sha256
    said = len(await words(desk))
    await turns(restart(desk))  # another process reads the same reveals and finds nothing to say
    assert len(await words(desk)) == said


# -- what waits


async def test_a_later_commitment_kills_none_that_waits(desk):
    intake, miner = restart(desk), generate_signer()
    await handed(desk, "first", LONG, miner)
    await commit(desk, "second", PLAIN, miner)  # its file is handed in to nobody
    await turns(intake, 1)
    (row,) = await desk.store.submissions(EVERY_STATE, miner_hotkey=miner.hotkey)
    assert (row.state, row.failure) == ("accepted", None)


async def test_a_submission_waits_until_its_commitment_is_final(desk):
    intake = restart(desk)
    await set_finality_lag(desk.chain, 100)
    made = await handed(desk, "agent", LONG)
    await turns(intake, 1)
    (row,) = await desk.store.submissions(EVERY_STATE)
    assert row.state == "waiting"
    desk.time.pass_s(200)
    await turns(intake, 1)
    assert await state(desk, made) == "accepted"


async def test_what_the_chain_does_not_know_is_refused_and_its_source_dropped(desk):
    made = make_submission(generate_signer(), "agent", LONG, 1)
    await desk.chain.register(generate_signer())
    await desk.store.put_submission(waiting_row(made, 1), made.source)
    desk.time.pass_s(5)
    await turns(restart(desk), 1)
    (row,) = await desk.store.submissions(EVERY_STATE)
    assert (row.state, row.failure.code) == ("refused", "A1008")
    assert await desk.store.source(made.agent_version_id) == ""


async def test_a_submission_on_which_the_gate_fails_holds_up_nobody(desk, monkeypatch):
    intake = restart(desk)
    odd, good = await handed(desk, "odd", LONG), await handed(desk, "good", PLAIN)
    inspect = Intake.inspect

    async def failing(self, subject, *rest):
        if subject.agent_version_id == odd.agent_version_id:
            raise ValueError("a bug of ours")
        return await inspect(self, subject, *rest)

    monkeypatch.setattr(Intake, "inspect", failing)
    await turns(intake, 1)
    assert await state(desk, good) == "accepted"
    monkeypatch.undo()
    await turns(intake, 1)
    assert odd.agent_version_id not in {row.subject.agent_version_id for row in await desk.store.submissions()}
    desk.time.pass_s(700)
    await turns(intake, 1)
    assert await state(desk, odd) == "accepted"


# -- variants: a seed once its block is final, the job that goes out, and what a record says of it


BLOCKS = 3
VARIED = replace(POLICY, name="varied", qualifying=replace(POLICY.qualifying, variant_blocks=BLOCKS))


async def test_intake_enqueues_with_the_seed_and_the_variant_goes_out_with_its_titles(desk: Desk) -> None:
    desk.start(VARIED)
    desk.node = with_changes(desk.node, variants=suite_variants(SUITE, lambda: CATALOGUE))
    subject = await desk.submit("new", state="accepted")
    intake = Intake(desk.node, RaceLog(desk.store, QUALIFYING))
    await intake.turn()
    assert await desk.store.open_items(QUALIFYING, "qualifying") == 0
    desk.time.pass_s(BLOCKS)
    await intake.turn()
    await intake.turn()
    assert await desk.store.open_items(QUALIFYING, "qualifying") == len(SUITE)
    worker, seed = Faulty(["V2005"] * len(SUITE)), await variant_seed(desk.chain, VARIED, subject)
    assert seed
    loop = EpisodeLoop(with_changes(desk.node, pool=worker), StopSignal(desk.node.now_ms))  # type: ignore[arg-type]
    for _ in SUITE:
        await loop.turn()
    assert {job.problem.problem_id for job in worker.jobs} == {variant_id(one.problem_id, seed) for one in SUITE}
    for job in worker.jobs:
        assert job.titles is not None and job.titles.accepted.keys() == reward_titles((job.problem,))
        assert job.problem.query not in {one.query for one in SUITE}
        assert REQUESTS.decode(encode_line(job)) == job
