"""`arena problems pool`: released problems of train or dev as a file; never a held-out one, nor one of its cluster."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner, Result

from arena.bank.batch import OpenBatch, seal, write_batch
from arena.bank.released_problems import released_pool
from arena.records.model import ReleaseRecord
from foundation.errors import ArenaError
from neurons.cli.presenter import EXIT_INTEGRITY, exit_code
from neurons.cli.problems import app
from problems.clusters import answer_marks
from problems.formats import read_problems
from problems.model import Bucket, Pool, Problem, RewardItem
from tests.arena.export_stand import ExportLog, export

replace = msgspec.structs.replace
ALL_POOLS: tuple[Pool, ...] = ("train", "dev", "eval")


def wish(number: int, *answers: int) -> Problem:
    """Problem `p<number>`; two with an answer in common share a leak cluster."""
    items = tuple(RewardItem(product_id=f"{7_000 + one}", title=(f"Steel Kettle mk{one}",)) for one in answers)
    bucket: Bucket = "product" if len(items) == 1 else "shop"
    return Problem(problem_id=f"p{number}", bucket=bucket, query=f"kettle number {number}", rewards=items)


def batch_of(race_id: str, dealt: dict[Pool, list[Problem]]) -> OpenBatch:
    """A batch whose clusters are the problems' own: what a bank without a partition would say of each."""
    problems = [problem for pool in dealt for problem in dealt[pool]]
    pools = [pool for pool in dealt for _ in dealt[pool]]
    return seal(race_id, problems, race_id.encode().ljust(32, b"."), pools=pools)


def release_of(batch: OpenBatch) -> ReleaseRecord:
    return ReleaseRecord(
        race_id=batch.race_id,
        batch_sha256=batch.batch_sha256,
        partition_sha256=batch.partition_sha256,
        problems=batch.released_problems,
        salt=batch.salt,
    )


class Node:
    """A validator's folder with open batches, and a signed export of what it released."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.log = folder, ExportLog()

    def add(self, batch: OpenBatch, *, is_released: bool = True, is_kept: bool = True) -> None:
        if is_kept:
            (self.folder / "bank").mkdir(parents=True, exist_ok=True)
            write_batch(self.folder / "bank" / f"{batch.race_id}.batch.json", batch)
        if is_released:
            self.log.add([release_of(batch)])

    def run(self, *more: object, pool: str = "train") -> Result:
        """The command over a fresh export; writes OUT/<pool>.jsonl in a folder that is not there yet."""
        if not (self.folder / "export").exists():
            export(self.log, self.folder / "export", signer=self.log.signer)
        words = ("pool", self.folder / "export", "--state-dir", self.folder, "--pool", pool, "--out", self.out(pool))
        return CliRunner().invoke(app, [str(word) for word in (*words, *more)])

    def out(self, pool: str = "train") -> Path:
        return self.folder / "problems" / f"{pool}.jsonl"

    def ids(self, pool: str = "train") -> list[str]:
        return [problem.problem_id for problem in read_problems(self.out(pool).read_bytes().splitlines())]


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def test_each_pool_comes_out_as_it_was_raced(node: Node) -> None:
    dealt = {"train": [wish(1, 1), wish(2, 2)], "dev": [wish(3, 3)], "eval": [wish(4, 4)]}
    node.add(batch_of("race-1", dealt))
    node.add(batch_of("race-2", {"train": [wish(5, 5)]}))
    result = node.run("--json")
    assert result.exit_code == 0, result.output
    shown = json.loads(result.stdout.splitlines()[-1])
    assert (shown["problems"], shown["races"], shown["left_out"]) == (3, ["race-1", "race-2"], [])
    assert read_problems(node.out().read_bytes().splitlines()) == (wish(1, 1), wish(2, 2), wish(5, 5))
    assert node.run(pool="dev").exit_code == 0
    assert node.ids("dev") == ["p3"]


@settings(max_examples=150, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from(ALL_POOLS), st.sets(st.integers(0, 7), min_size=1, max_size=2), st.integers(0, 2)),
        max_size=9,
    ),
    st.sampled_from(("train", "dev")),
    st.sets(st.integers(0, 8), max_size=2),
)
def test_nothing_that_comes_out_shares_an_answer_with_anything_held_out(deal, pool, named) -> None:  # type: ignore[no-untyped-def]
    """However pools are dealt, rightly or not: race 2 is never released, and some problems are held out by name."""
    wishes = [(one, wish(number, *answers), race) for number, (one, answers, race) in enumerate(deal)]
    batches = []
    for race in range(3):
        dealt = {one: [problem for p, problem, r in wishes if (p, r) == (one, race)] for one in ALL_POOLS}
        batches.append(batch_of(f"race-{race}", dealt))
    held_out = [problem for number, (_, problem, _) in enumerate(wishes) if number in named]
    taken = released_pool(pool, [release_of(one) for one in batches[:2]], batches, held_out=held_out)
    others = [problem for one, problem, _ in wishes if one != pool] + held_out
    forbidden = frozenset[str]().union(*(answer_marks(problem) for problem in others))
    released = {problem.problem_id for one, problem, race in wishes if one == pool and race < 2}
    out = {problem.problem_id for problem in taken.problems}
    assert all(forbidden.isdisjoint(answer_marks(problem)) for problem in taken.problems)
    assert out | {one.problem_id for one in taken.left_out} == released
    assert out.isdisjoint(problem.problem_id for problem in held_out)


def test_a_batch_that_is_not_what_was_released_is_refused(node: Node) -> None:
    batch = batch_of("race-1", {"train": [wish(1, 1)], "eval": [wish(2, 2)]})
    lie = tuple(replace(one, pool="train") for one in batch.released_problems)
    node.add(batch, is_released=False)
    node.log.add([replace(release_of(batch), problems=lie)])
    result = node.run()
    assert isinstance(result.exception, ArenaError) and result.exception.failure.code == "P4010"
    assert exit_code(result.exception) == EXIT_INTEGRITY and not node.out().exists()


def test_an_edited_batch_file_and_an_unsigned_export_are_refused(node: Node) -> None:
    node.add(batch_of("race-1", {"train": [wish(1, 1)], "eval": [wish(2, 2)]}))
    path = node.folder / "bank" / "race-1.batch.json"
    kept = path.read_bytes()
    path.write_bytes(kept.replace(b'"eval"', b'"train"'))
    edited = node.run()
    assert isinstance(edited.exception, ArenaError) and edited.exception.failure.code == "P4010"
    path.write_bytes(kept)
    (node.folder / "export" / "manifest.sig").unlink()
    unsigned = node.run()
    assert isinstance(unsigned.exception, ArenaError) and unsigned.exception.failure.code == "V2095"
    assert not node.out().exists()
