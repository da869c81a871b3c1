"""`arena problems pool`: released problems of train or dev as a file; never a held-out one, nor one of its cluster."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner, Result

from arena.bank.batches.batch import SealedBatch, seal, write_batch
from arena.bank.batches.released_problems import released_pool
from arena.bank.partition_file import write_partition
from arena.chain.keys import keypair_signer
from arena.records.model import ReleaseRecord
from foundation.errors import ArenaError
from neurons.cli.bank import app
from neurons.cli.exit_codes import EXIT_INTEGRITY, EXIT_USAGE, exit_code
from problems.model import Bucket, Pool, Problem, RewardItem
from problems.pools.clusters import answer_marks
from problems.pools.partition import freeze
from problems.suites.formats import read_problems, write_problems
from tests.arena.export_stand import ExportLog, export

replace = msgspec.structs.replace
ALL_POOLS: tuple[Pool, ...] = ("train", "dev", "eval")
BANK = "//Bank"


def wish(number: int, *answers: int) -> Problem:
    """Problem `p<number>`; two with an answer in common share a leak cluster."""
    items = tuple(RewardItem(product_id=f"{7_000 + one}", title=(f"Steel Kettle mk{one}",)) for one in answers)
    bucket: Bucket = "product" if len(items) == 1 else "shop"
    return Problem(problem_id=f"p{number}", bucket=bucket, query=f"kettle number {number}", rewards=items)


def batch_of(race_id: str, dealt: dict[Pool, list[Problem]]) -> SealedBatch:
    """A batch whose clusters are the problems' own: what a bank without a partition would say of each."""
    problems = [problem for pool in dealt for problem in dealt[pool]]
    pools = [pool for pool in dealt for _ in dealt[pool]]
    return seal(race_id, problems, race_id.encode().ljust(32, b"."), pools=pools)


def release_of(batch: SealedBatch) -> ReleaseRecord:
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

    def add(self, batch: SealedBatch, *, is_released: bool = True, is_kept: bool = True) -> None:
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


def write(path: Path, *problems: Problem) -> Path:
    path.write_text("".join(f"{line}\n" for line in write_problems(problems)))
    return path


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


@pytest.mark.parametrize("pool", ["eval", "never_touch", "all"])
def test_no_flag_brings_out_a_pool_that_is_held_out(node: Node, pool: str) -> None:
    node.add(batch_of("race-1", {"eval": [wish(1, 1)]}))
    assert node.run(pool=pool).exit_code == EXIT_USAGE
    assert not node.out(pool).exists()


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


def test_a_problem_of_the_cluster_of_a_held_out_one_stays_behind_through_a_chain(node: Node) -> None:
    """p1 shares an answer with p2, p2 with p3, and p3 is for evaluation: all three are one cluster."""
    node.add(batch_of("race-1", {"train": [wish(1, 1), wish(2, 1, 2), wish(4, 4)]}))
    node.add(batch_of("race-2", {"eval": [wish(3, 2)]}), is_released=False)
    result = node.run("--json")
    left_out = json.loads(result.stdout.splitlines()[-1])["left_out"]
    assert left_out == [{"problem_id": one, "reason": "cluster"} for one in ("p1", "p2")]
    assert node.ids() == ["p4"]


def test_what_is_held_out_by_name_stays_behind_with_its_cluster(node: Node, tmp_path: Path) -> None:
    node.add(batch_of("race-1", {"train": [wish(1, 1), wish(2, 2), wish(3, 3)]}))
    held = write(tmp_path / "eval.jsonl", wish(1, 1), wish(9, 2))
    result = node.run("--held-out", held)
    assert result.exit_code == 0 and node.ids() == ["p3"]
    assert "p1: held out by name" in result.stderr and "p2: shares a leak cluster" in result.stderr


def test_a_cluster_that_a_race_opened_for_another_pool_holds_without_its_batch(node: Node) -> None:
    ours = batch_of("race-1", {"train": [wish(1, 1), wish(2, 2)]})
    theirs = seal("race-2", [wish(9, 9)], b"2" * 32, pools=["eval"], cluster_ids=[ours.cluster_ids[0]])
    node.add(ours)
    node.add(theirs, is_kept=False)
    result = node.run()
    assert node.ids() == ["p2"]
    assert "released, and not in" in result.stderr and "race-2" in result.stderr


def test_the_banks_partition_holds_back_what_no_batch_tells_of(node: Node, tmp_path: Path) -> None:
    """p8 is frozen for evaluation and was never sealed; p1 has its answer, p3 one of p1's; a race called them train."""
    manifest = freeze([wish(8, 8)], [], seed=1, key=b"k" * 32, eval_counts={"product": 1}, dev_counts={})
    path = tmp_path / "partition.json"
    write_partition(path, manifest, b"k" * 32, keypair_signer(BANK))
    node.add(batch_of("race-1", {"train": [wish(1, 8, 1), wish(2, 2), wish(3, 1)]}))
    result = node.run("--partition", path)
    assert node.ids() == ["p2"]
    assert "p1: the partition gives it" in result.stderr


def test_a_problem_that_another_race_deals_to_another_pool_stays_behind(node: Node) -> None:
    node.add(batch_of("race-1", {"train": [wish(1, 1), wish(2, 2)]}))
    node.add(batch_of("race-2", {"eval": [wish(1, 5)]}), is_released=False)
    assert node.run().exit_code == 0
    assert node.ids() == ["p2"]


def test_a_race_that_was_not_released_gives_nothing(node: Node) -> None:
    node.add(batch_of("race-1", {"train": [wish(1, 1)]}))
    node.add(batch_of("race-2", {"train": [wish(2, 2)]}), is_released=False)
    assert node.run().exit_code == 0
    assert node.ids() == ["p1"]


def test_when_nothing_is_left_there_is_no_file_and_exit_code_1(node: Node) -> None:
    node.add(batch_of("race-1", {"train": [wish(1, 1)]}))
    result = node.run(pool="dev")
    assert result.exit_code == 1 and "nothing was written" in result.stderr
    assert not node.out("dev").exists()


def test_a_file_that_stands_there_is_never_replaced(node: Node) -> None:
    node.add(batch_of("race-1", {"train": [wish(1, 1)]}))
    assert node.run().exit_code == 0
    before = node.out().read_bytes()
    assert node.run().exit_code == EXIT_USAGE
    assert node.out().read_bytes() == before


def test_a_batch_that_is_not_what_was_released_is_refused(node: Node) -> None:
    batch = batch_of("race-1", {"train": [wish(1, 1)], "eval": [wish(2, 2)]})
    lie = tuple(replace(one, pool="train") for one in batch.released_problems)
    node.add(batch, is_released=False)
    node.log.add([replace(release_of(batch), problems=lie)])
    result = node.run()
    assert isinstance(result.exception, ArenaError) and result.exception.failure.code == "P4010"
    assert exit_code(result.exception) == EXIT_INTEGRITY and not node.out().exists()


def test_two_logs_that_say_different_things_of_one_batch_are_not_both_believed() -> None:
    batch = batch_of("race-1", {"train": [wish(1, 1)], "eval": [wish(2, 2)]})
    true = release_of(batch)
    false = replace(true, problems=tuple(replace(one, pool="train") for one in true.problems))
    assert released_pool("train", [true, true], [batch]).races == ("race-1",)
    for said in ([true, false], [false, true]):
        with pytest.raises(ArenaError, match="P4010"):
            released_pool("train", said, [batch])


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
    assert isinstance(unsigned.exception, ArenaError) and unsigned.exception.failure.code == "V2096"
    assert not node.out().exists()


def test_a_folder_without_batches_is_usage(node: Node) -> None:
    node.add(batch_of("race-1", {"train": [wish(1, 1)]}), is_kept=False)
    result = node.run()
    assert result.exit_code == EXIT_USAGE and "batch.json" in result.output
