"""What the records of one race say about each other: evaluations, settlement, release and the commitments it opens."""

from __future__ import annotations

import asyncio

import msgspec

from arena.chain.keys import keypair_signer, verify
from arena.records.commitments import cluster_commitment
from arena.records.model import Context, Payload, ReleasedProblem, ReleaseRecord, SettlementRecord, StoredBody
from arena.records.sequencer import Sequencer
from arena.records.verification import verify_store
from tests.arena.log_stand import HOST, Clock, MemoryLog, episode, release, settlement

ALICE = keypair_signer("//Alice")
SALT, BATCH = "99" * 32, "77" * 32
CLUSTERS = {"p0001": "cluster-a", "p0002": "cluster-b", "p0003": "cluster-c"}


def context(problem: int, **changes: object) -> Context:
    """A race's context as the race makes it: batch named, cluster committed to."""
    problem_id = f"p{problem:04d}"
    sealed = Context(
        stage="race",
        race_id="r1",
        problem_id=problem_id,
        batch_sha256=BATCH,
        cluster_commitment=cluster_commitment(SALT, problem_id, CLUSTERS[problem_id]),
    )
    return msgspec.structs.replace(sealed, **changes)


def run(problem: int, **changes: object) -> tuple[list[Payload], StoredBody]:
    """An episode's records in that context."""
    payloads, body = episode(problem)
    return [msgspec.structs.replace(payload, context=context(problem, **changes)) for payload in payloads], body


def settled(**changes: object) -> SettlementRecord:
    drawn = msgspec.structs.replace(settlement(), batch_sha256=BATCH, drawn=("p0001", "p0002"))
    return msgspec.structs.replace(drawn, **changes)


def released(**changes: object) -> ReleaseRecord:
    problems = tuple(
        ReleasedProblem(problem_id=problem_id, pool="train", cluster_id=cluster)
        for problem_id, cluster in CLUSTERS.items()
    )
    of_batch = msgspec.structs.replace(release(), batch_sha256=BATCH, problems=problems, salt=SALT)
    return msgspec.structs.replace(of_batch, **changes)


def defects(*parts: tuple[list[Payload], StoredBody] | Payload) -> list[tuple[str, int]]:
    """(rule, seq) of what verification says about a log of these episodes and records."""
    log = MemoryLog(ALICE.hotkey)

    async def fill() -> None:
        sequencer = Sequencer(log, ALICE, Clock(), HOST)
        for part in parts:
            payloads, bodies = (part[0], [part[1]]) if isinstance(part, tuple) else ([part], [])
            await sequencer.append(payloads, bodies)

    asyncio.run(fill())
    return [(defect.rule, defect.seq) for defect in asyncio.run(verify_store(log, verify)).defects]


def test_a_race_whose_records_agree_has_no_defect() -> None:
    assert defects(run(1), run(2), settled(), released()) == []


def test_a_second_settlement_or_release_of_a_race_is_found() -> None:
    assert defects(run(1), settled(), settled()) == [("settlement", 5)]
    assert defects(run(1), released(), released()) == [("release", 5)]
    assert defects(settled(), settled(race_id="r2")) == []


def test_an_evaluation_of_another_batch_than_was_settled_is_found() -> None:
    assert defects(run(1), run(2, batch_sha256="00" * 32), settled()) == [("settlement", 4)]


def test_an_evaluation_of_a_problem_that_was_not_drawn_is_found_unless_the_race_was_cancelled() -> None:
    assert defects(run(1), run(3), settled()) == [("settlement", 4)]
    assert defects(run(1), run(3), settled(state="cancelled", drawn=())) == []


def test_a_settlement_that_contradicts_itself_is_found() -> None:
    assert defects(run(1), settled(uids=(0,))) == [("settlement", 4)]
    assert defects(run(1), settled(void=("p0003",))) == [("settlement", 4)]


def test_a_release_whose_salt_or_cluster_does_not_open_a_commitment_is_found() -> None:
    other = released(salt="98" * 32)
    assert defects(run(1), other) == [("release", 1)]
    moved = [msgspec.structs.replace(problem, cluster_id="cluster-b") for problem in released().problems]
    assert defects(run(1), run(2), released(problems=tuple(moved))) == [("release", 1)]
    assert defects(run(1), released(salt="salt")) == [("release", 4)]
    assert defects(run(1), released(salt="zz" * 32)) == [("release", 4)]


def test_a_release_without_a_problem_that_was_evaluated_or_drawn_is_found() -> None:
    only_second = tuple(problem for problem in released().problems if problem.problem_id != "p0001")
    assert defects(run(1), released(problems=only_second)) == [("release", 1)]
    assert defects(settled(), released(problems=only_second)) == [("release", 2)]


def test_a_release_of_another_batch_than_was_evaluated_or_settled_is_found() -> None:
    assert defects(run(1), released(batch_sha256="00" * 32)) == [("release", 1)]
    assert defects(settled(), released(batch_sha256="00" * 32)) == [("release", 2)]
