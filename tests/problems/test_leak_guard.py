"""The leak guard in small: disguises stay with their source by answers alone, unrelated problems stay apart."""

from __future__ import annotations

from problems.synthesis import synthesize
from tests.problems.disguises import DISGUISES, count_in_cluster, falsely_merged
from tests.problems.leak_stand import cheap_problems, real_problems
from tests.problems.stand import synthetic_shelf


def test_every_disguise_falls_in_its_sources_cluster_by_answers_alone_and_unrelated_problems_are_not_merged() -> None:
    shelf = synthetic_shelf(5_000, 11)
    bank = synthesize(shelf, seed=8, counts={"product": 20, "shop": 20, "voucher": 20})
    assert count_in_cluster(bank, seed=1, classes=shelf.classes) == dict.fromkeys(DISGUISES, 60)
    drawn = cheap_problems(shelf.products, 1_500)
    assert 100 * len(falsely_merged(drawn, shelf.classes)) <= len(drawn)


def test_the_public_problems_stay_in_their_clusters_without_any_catalogue() -> None:
    problems = real_problems()
    assert sum(count_in_cluster(problems, seed=1).values()) >= 0.998 * len(DISGUISES) * len(problems)
    assert falsely_merged(problems) == frozenset()
