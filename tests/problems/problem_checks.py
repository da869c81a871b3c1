"""Every check of a set of problems, as tests of whole sets need it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from problems.model import Problem, Product
from problems.score import ProductOf
from problems.self_check import RANDOM_DRAWS, SelfCheck, check_chance, check_solvable
from problems.titles import TitleMatcher


def check_problem_set(
    problems: Iterable[Problem],
    crowd: Sequence[Product],
    product_of: ProductOf,
    titles: TitleMatcher,
    seed: int,
    draws: int = RANDOM_DRAWS,
) -> tuple[SelfCheck, ...]:
    """`check_solvable` and `check_chance` of each problem, in order."""
    checks = []
    for problem in problems:
        check = check_solvable(problem, product_of, titles)
        checks.append(check_chance(check, problem, crowd, titles, seed, draws) if check.is_usable else check)
    return tuple(checks)
