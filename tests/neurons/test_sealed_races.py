"""Races on an operator's sealed batches: opened by their draw, and by nothing else."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from msgspec.structs import replace
from typer.testing import CliRunner

from arena.bank.batches.batch import seal, write_batch
from arena.bank.batches.sealed_file import lock_batch, write_sealed
from arena.bank.stock.sealed_stock import SealedStock
from arena.chain.keys import keypair_signer, verify
from arena.chain.timelock import LocalTimelock
from arena.race.state.items import qualifying_items
from arena.race.state.schedule import closing_ms
from arena.records.body import decode_content
from arena.records.model import ReleaseRecord
from arena.store.embedded.server import EmbeddedServer
from foundation.errors import ArenaError, Failure
from neurons.cli.bank import app
from neurons.loops.run_loop import StopSignal
from neurons.race.episodes import EpisodeLoop
from neurons.worker.protocol import LENGTH_BYTES, EvaluateJob, Faulted, decode_request, encode_frame
from problems.scoring.title_index import TitleIndex
from problems.scoring.title_matching import decode_accepted, reward_titles
from problems.suites.shipped import accept_lexically
from problems.synthesis.generator import synthesize
from tests.neurons.clock_stand import CATALOGUE, POLICY, SUITE, Desk, open_desk

OPERATOR = keypair_signer("//Operator")
TIMELOCK = LocalTimelock()
LATER = replace(POLICY, name="later", race=replace(POLICY.race, closes_after_ms=60_000))
SAME_CLOSE = replace(POLICY, name="same close", agentic_min_e4=9_000)


@pytest.fixture
async def desk(server: EmbeddedServer, tmp_path: Path) -> AsyncIterator[Desk]:
    async with open_desk(server, tmp_path) as made:
        await made.settle_in(races=0)
        (tmp_path / "bank").mkdir()
        made.stock = SealedStock(tmp_path / "bank", OPERATOR.hotkey, verify, TIMELOCK, made.beacon)
        made.start(POLICY)
        yield made


def deliver(desk: Desk, seed: int = 1, *, is_titled: bool = False) -> Path:
    """The operator's batch for a race that opens now."""
    opens_with = desk.beacon.round_after(closing_ms(desk.time.ms, desk.policy.race))
    problems = synthesize(CATALOGUE, seed=seed, counts={"product": 3})
    titles = accept_lexically(problems, TitleIndex(CATALOGUE), f"bank-{seed}") if is_titled else None
    batch = seal(f"slot-{seed}", problems, os.urandom(32), titles=titles)
    sealed = lock_batch(batch, opens_with, timelock=TIMELOCK, signer=OPERATOR, made_ms=desk.time.ms)
    path = desk.folder / "bank" / f"slot-{seed}.sealed.json"
    write_sealed(path, sealed)
    return path


async def test_a_sealed_batch_is_drawn_raced_settled_and_released_with_its_salt(desk):
    deliver(desk)
    await desk.submit("good")
    opened = await desk.turn_until("open")
    with pytest.raises(ArenaError, match="P4001"):
        desk.stock.batch("race-000001")
    await desk.turn_until("running")
    batch = desk.stock.batch("race-000001")
    assert batch.batch_sha256 == opened.opened.batch.batch_sha256
    await desk.clock.turn()
    assert await desk.work() == 2 * POLICY.race.problems  # the agent's and the control's
    await desk.turn_until("settled")
    await desk.clock.turn()
    (release,) = [decode_content(record.content).payload async for record in desk.store.records(kinds=("release",))]
    assert isinstance(release, ReleaseRecord)
    assert (release.salt, release.problems) == (batch.salt, batch.released_problems)


class Recorder:
    """In place of the workers: takes the jobs down and runs none."""

    def __init__(self) -> None:
        self.jobs: list[EvaluateJob] = []

    async def run(self, job: EvaluateJob) -> Faulted:
        self.jobs.append(job)
        return Faulted(job_id=job.job_id, failure=Failure(code="V2005"))


async def jobs_of(desk: Desk, count: int) -> list[EvaluateJob]:
    """What the episode loop sends to its workers next."""
    recorder = Recorder()
    loop = EpisodeLoop(dataclasses.replace(desk.node, pool=recorder), StopSignal(desk.node.now_ms))  # type: ignore[arg-type]
    for _ in range(count):
        await loop.turn()
    return recorder.jobs


@pytest.mark.parametrize("is_titled", [True, False])
async def test_an_episode_of_a_race_goes_out_with_the_titles_that_its_own_batch_held(desk, is_titled):
    """Without titles in the batch, which real networks refuse, the worker's own matcher is left to decide."""
    deliver(desk, is_titled=is_titled)
    await desk.submit("good")
    await desk.turn_until("running")
    await desk.clock.turn()
    jobs = await jobs_of(desk, POLICY.race.problems)
    assert len(jobs) == POLICY.race.problems
    for job in jobs:
        if is_titled:
            assert job.titles is not None and job.titles.name == "lexical/1@bank-1"
            assert job.titles.accepted.keys() == reward_titles((job.problem,))
            assert decode_request(encode_frame(job)[LENGTH_BYTES:]) == job
        else:
            assert job.titles is None


async def test_an_episode_of_qualifying_is_scored_with_the_suites_own_titles(desk):
    subject = await desk.submit("new", state="accepted")
    await desk.store.enqueue(qualifying_items(subject, [problem.problem_id for problem in SUITE], POLICY))
    jobs = await jobs_of(desk, 1)
    assert [(job.problem in SUITE, job.titles) for job in jobs] == [(True, None)]


async def test_a_source_that_was_changed_at_rest_is_never_run_and_the_attempt_says_why(desk):
    subject = await desk.submit("changed", state="accepted", kept="another source")
    await desk.store.enqueue(qualifying_items(subject, [SUITE[0].problem_id], POLICY))
    assert not await jobs_of(desk, 1)
    (attempt,) = [decode_content(record.content).payload async for record in desk.store.records(kinds=("attempt",))]
    assert (attempt.ended, attempt.failure.code) == ("faulted", "V2150")


async def test_accepted_titles_are_published_once_the_race_is_released_and_not_before(desk, server, tmp_path):
    dsn, out = server.dsn_for(desk.signer.hotkey), tmp_path / "titles-race-000001.json"
    deliver(desk, is_titled=True)
    await desk.submit("good")
    await desk.turn_until("running")
    early = await asyncio.to_thread(released, desk, dsn, "race-000001", "--titles", str(out))
    assert early.exit_code == 1 and not out.exists()
    await desk.clock.turn()
    await desk.work()
    await desk.turn_until("settled")
    await desk.clock.turn()
    shown = await asyncio.to_thread(released, desk, dsn, "race-000001", "--titles", str(out))
    assert shown.exit_code == 0, shown.output
    assert decode_accepted(out.read_bytes()) == desk.stock.batch("race-000001").titles
    assert (await asyncio.to_thread(released, desk, dsn, "race-000001", "--titles", str(out))).exit_code == 2


def released(desk: Desk, dsn: str, race: str = "race-000001", *more: str):
    return CliRunner().invoke(app, ["release", race, "--dsn", dsn, "--state-dir", str(desk.folder), *more])


async def test_the_release_command_opens_every_commitment_after_the_release_and_nothing_before(desk, server):
    dsn = server.dsn_for(desk.signer.hotkey)
    deliver(desk)
    await desk.submit("good")
    await desk.turn_until("running")
    early = await asyncio.to_thread(released, desk, dsn)
    assert early.exit_code == 1 and "running, not released" in early.stdout and "p_" not in early.stdout
    await desk.clock.turn()
    await desk.work()
    await desk.turn_until("settled")
    await desk.clock.turn()
    shown = await asyncio.to_thread(released, desk, dsn, "race-000001", "--json")
    found = json.loads(shown.stdout)
    assert shown.exit_code == 0 and found["batch"] == "kept" and not found["faults"]
    assert [row["cluster"] for row in found["problems"]] == ["kept"] * 3
    path = desk.folder / "bank" / "race-000001.batch.json"
    other = seal("slot-1", synthesize(CATALOGUE, seed=9, counts={"product": 3}), os.urandom(32))
    write_batch(path, other)
    broken = await asyncio.to_thread(released, desk, dsn)
    assert broken.exit_code == 4 and "NOT as committed" in broken.stdout
    assert (await asyncio.to_thread(released, desk, dsn, "race-000009")).exit_code == 1


async def test_without_a_batch_for_its_close_no_race_opens_and_the_node_waits_for_one(desk):
    await desk.submit("good")
    assert (await desk.clock.turn()).stage == "new"
    desk.time.pass_s(60)
    deliver(desk)
    assert (await desk.clock.turn()).stage == "open"


async def test_a_batch_for_an_earlier_close_is_never_raced(desk):
    deliver(desk)
    desk.time.pass_s(60)  # its round is out: whoever holds the file can read it
    assert (await desk.clock.turn()).stage == "new"
    assert not list((desk.folder / "bank").glob("*.batch.json"))


async def test_a_batch_that_does_not_open_costs_the_race_and_not_the_node(desk):
    path = deliver(desk)
    await desk.submit("good")
    await desk.turn_until("open")
    path.unlink()
    state = await desk.turn_until("cancelled", turns=120)
    assert state.draw is None and state.settlement is not None
    assert state.settlement.reason == "the batch did not open (P4027)"
    deliver(desk, seed=2)
    assert (await desk.turn_until("open", race=2, turns=1)).opened is not None


async def test_a_node_killed_between_opening_and_draw_draws_once_it_is_back(desk):
    deliver(desk)
    await desk.submit("good")
    state = await desk.turn_until("closed")
    desk.time.pass_s(5)
    beacon = await desk.beacon.fetch(state.closed.beacon_round)
    desk.stock.open("race-000001", beacon)
    desk.start(POLICY)
    assert (await desk.turn_until("running")).draw.beacon == beacon


async def test_a_policy_that_moves_the_close_does_not_take_over_a_race_with_a_sealed_batch(desk):
    deliver(desk)
    await desk.turn_until("open")
    desk.start(LATER)
    with pytest.raises(ArenaError, match=r"V2063.*race-000001"):
        await desk.clock.adopt_policy()
    desk.start(SAME_CLOSE)
    state = await desk.clock.turn()
    assert (state.stage, state.opened.policy) == ("open", SAME_CLOSE)
