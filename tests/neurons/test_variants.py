"""Variants at a node: a seed once its block is final, the job that goes out, and what a record says of it."""

from __future__ import annotations

import dataclasses

import pytest
from msgspec.structs import replace

from foundation.errors import Failure
from neurons.loops.node import suite_variants
from neurons.loops.run_loop import StopSignal
from neurons.race.episodes import EpisodeLoop
from neurons.race.intake import Intake, variant_seed
from neurons.race.log import QUALIFYING, RaceLog
from neurons.worker.ports import REQUESTS, EvaluateJob, Faulted, encode_line
from problems.model import variant_id
from problems.titles import reward_titles
from tests.neurons.clock_stand import CATALOGUE, POLICY, SUITE, Desk

BLOCKS = 3
VARIED = replace(POLICY, name="varied", qualifying=replace(POLICY.qualifying, variant_blocks=BLOCKS))


class Worker:
    """In place of the workers: takes jobs down, and fails them."""

    def __init__(self) -> None:
        self.jobs: list[EvaluateJob] = []

    async def run(self, job: EvaluateJob, spending: object) -> Faulted:
        self.jobs.append(job)
        return Faulted(failure=Failure(code="V2005"))


@pytest.fixture
async def varied(desk: Desk) -> Desk:
    """The desk's node under a policy with variants, with what draws them."""
    desk.start(VARIED)
    desk.node = dataclasses.replace(desk.node, variants=suite_variants(SUITE, lambda: CATALOGUE))
    return desk


async def serve(desk: Desk, worker: Worker, count: int) -> None:
    """Let the episode loop serve that many items."""
    loop = EpisodeLoop(dataclasses.replace(desk.node, pool=worker), StopSignal(desk.node.now_ms))  # type: ignore[arg-type]
    for _ in range(count):
        await loop.turn()


async def test_intake_enqueues_with_the_seed_and_the_variant_goes_out_with_its_titles(varied: Desk) -> None:
    subject = await varied.submit("new", state="accepted")
    intake = Intake(varied.node, RaceLog(varied.store, QUALIFYING))
    await intake.turn()
    assert await varied.store.open_items(QUALIFYING, "qualifying") == 0
    varied.time.pass_s(BLOCKS)
    await intake.turn()
    await intake.turn()
    assert await varied.store.open_items(QUALIFYING, "qualifying") == len(SUITE)
    worker, seed = Worker(), await variant_seed(varied.chain, VARIED, subject)
    assert seed
    await serve(varied, worker, len(SUITE))
    assert {job.problem.problem_id for job in worker.jobs} == {variant_id(one.problem_id, seed) for one in SUITE}
    for job in worker.jobs:
        assert job.titles is not None and job.titles.accepted.keys() == reward_titles((job.problem,))
        assert job.problem.query not in {one.query for one in SUITE}
        assert REQUESTS.decode(encode_line(job)) == job
