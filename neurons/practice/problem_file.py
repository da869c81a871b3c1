"""Problem files from elsewhere: web rows left out with their number, answers looked up before anything runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import typer

from foundation.errors import ArenaError
from harness.catalogue.port import Catalogue
from problems.model import Problem
from problems.suites.formats import count_web, read_problems
from problems.suites.shipped import SUITES


def read_problem_file(file: Path, *, is_web_skipped: bool) -> tuple[Problem, ...]:
    """The problems of a file. Says how many web rows were left out. Raises ArenaError P4001 to P4009."""
    try:
        lines = file.read_bytes().splitlines()
    except FileNotFoundError as error:
        known = ", ".join(SUITES)
        told = f"no suite and no file `{file}`; suites are {known}"
        raise ArenaError("P4001", told, fix="name one of them, or a problem file") from error
    except OSError as error:
        raise ArenaError("P4001", f"{file}: {error.strerror}", fix="check the file") from error
    problems = read_problems(lines, is_web_skipped=is_web_skipped)
    if is_web_skipped and (left_out := count_web(lines)):
        typer.echo(f"{left_out} web problems skipped, {len(problems)} left", err=True)
    return problems


def refuse_missing(problems: Sequence[Problem], catalogue: Catalogue, *, is_allowed: bool) -> None:
    """Say which problems ask for products that the catalogue lacks; no answer of theirs can be right.

    Raises ArenaError P4006 for any, unless `is_allowed`.
    """
    lacking = [
        (problem.problem_id, item.product_id)
        for problem in problems
        for item in problem.rewards
        if catalogue.product(item.product_id) is None
    ]
    if not lacking:
        return
    share = f"{len({name for name, _ in lacking})} of {len(problems)} problems"
    detail = f"{share}, such as {lacking[0][0]} with product {lacking[0][1]}"
    if not is_allowed:
        raise ArenaError("P4006", f"{detail}; name their catalogue with --catalogue, or run them with --allow-missing")
    typer.echo(f"note: the answers of {detail} are not in this catalogue: they can't be solved here", err=True)
