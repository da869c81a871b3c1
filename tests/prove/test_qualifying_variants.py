"""Qualifying on variants at full size: honest agents over 600 problems of three suites, tables over twenty agents."""

from __future__ import annotations

from pathlib import Path

import pytest

from arena.race.draw import qualifying_seed
from harness.agents.registry import baseline_source, reference_agent
from harness.inference.scripted import MODELS
from problems.suites import SUITES, VariantMaker, load_shipped
from problems.synthesis import ProblemMaker, difficulty_of
from problems.title_index import TitleIndex
from problems.titles import LexicalTitles
from tests.arena.qualifying_stand import GUEST, SUITE, Ground, suite_products
from tests.arena.table_agents import KINDS, table_agent

AGENTS = 20
HONEST = {**{model: baseline_source(model) for model in MODELS}, "subtask": reference_agent("subtask").source}


def seeds(suite: str) -> list[str]:
    return [qualifying_seed(suite, f"{agent:064x}", "0x" + "cd" * 32) for agent in range(AGENTS)]


@pytest.mark.prove
def test_honest_agents_score_on_variants_as_on_problems_made_like_the_suites(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Thirty problems of a suite say little; 600 made as the suites were made are what variants are held against."""
    monkeypatch.syspath_prepend(str(GUEST))
    products = suite_products()
    ground, shelf = Ground(products, tmp_path), TitleIndex(products)
    on_suites = [(one, suite.titles) for suite in map(load_shipped, SUITES) for one in suite.problems]
    on_fresh = [
        (one, LexicalTitles())
        for seed in range(AGENTS)
        for one in ProblemMaker(shelf).make(seed=1_000 + seed, counts={"product": 10, "shop": 10, "voucher": 10})
    ]
    on_variants, levels = [], 0
    for place, seed in enumerate(seeds("s")):
        problems = load_shipped(SUITES[place % 3]).problems
        maker = VariantMaker(problems, products)
        for problem in problems:
            one = maker.variant(problem.problem_id, seed)
            on_variants.append((one.problem, one.titles))
            levels += difficulty_of(one.problem, shelf) == difficulty_of(problem, shelf)
    assert levels == len(on_variants) == 600
    for name, source in HONEST.items():
        solved = [ground.count(source, asked) for asked in (on_suites, on_fresh, on_variants)]
        shares = [count / len(asked) for count, asked in zip(solved, (on_suites, on_fresh, on_variants), strict=True)]
        print(f"{name}: suites {shares[0]:.3f} of 90, made alike {shares[1]:.3f}, variants {shares[2]:.3f} of 600")
        assert abs(shares[2] - shares[1]) <= 0.07  # twice the error of a difference of two shares of 600, and a little


@pytest.mark.prove
@pytest.mark.parametrize("honest", ["scripted-careful", "subtask"])
def test_no_table_gains_over_twenty_agents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, honest: str) -> None:
    monkeypatch.syspath_prepend(str(GUEST))
    products = suite_products()
    ground, shelf, maker = Ground(products, tmp_path), TitleIndex(products), VariantMaker(SUITE.problems, products)
    on_suite = [(problem, SUITE.titles) for problem in SUITE.problems]
    drawn = [maker.variant(problem.problem_id, seed) for seed in seeds("s1") for problem in SUITE.problems]
    on_variants = [(one.problem, one.titles) for one in drawn]
    for kind in KINDS:
        full, empty = (table_agent(kind, rows, shelf, HONEST[honest]) for rows in (SUITE.problems, ()))
        gains = [ground.count(full, asked) - ground.count(empty, asked) for asked in (on_suite, on_variants)]
        print(f"{honest} with a table {kind}: {gains[0]:+} of 30 on the suite, {gains[1]:+} of 600 on variants")
        assert gains[0] >= 5
        assert gains[1] <= 0
