"""Soundness: the rules a problem must keep so that it can be scored, whatever is recommended.

A problem that `check_problem` lets pass never makes the scorer fail for a reason of its own. Where the
reference raises an exception in the middle of scoring, or quietly counts a miss, we refuse at load (D17 to D23 and D39
in the README).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping

import msgspec

from foundation.errors import ArenaError
from problems.axes import ask
from problems.model import Problem

_NEEDED = {"greater than": ("low",), "less than": ("high",), "between": ("low", "high")}  # bounds that a mode looks at


def check_problem(problem: Problem) -> None:
    """Raise ArenaError P4003 or P4009 naming the first field that makes the problem unscorable.

    Field types are checked too, since a struct built in code carries whatever it was given.
    """
    try:
        typed = msgspec.convert(msgspec.to_builtins(problem), Problem)
    except (TypeError, msgspec.ValidationError) as error:
        raise ArenaError(code_of_field(str(error)), str(error)) from error
    if not typed.problem_id:
        raise ArenaError("P4009", "problem_id is empty")
    if (flaw := next(_flaws(typed), None)) is not None:
        raise ArenaError("P4003", flaw)


def code_of_field(message: str) -> str:
    """The code for a type error, by the field its message names."""
    return "P4003" if any(f"`$.{field}" in message for field in ("bucket", "voucher", "reward")) else "P4009"


def _flaws(problem: Problem) -> Iterator[str]:
    if not problem.rewards:
        yield "reward is empty"
    if problem.bucket == "product" and len(problem.rewards) != 1:
        yield f"a product problem has one reward, not {len(problem.rewards)}"
    for index, item in enumerate(problem.rewards):
        field = f"reward[{index}]"
        if not item.product_id:
            yield f"{field}.product_id is empty"
        if ask(item).total == 0:
            yield f"{field} asks nothing"
        for place, rule in enumerate(item.price):
            yield from _amounts(f"{field}.price[{place}]", {"low": rule.low, "high": rule.high}, _NEEDED[rule.mode])
    voucher = problem.voucher
    if (problem.bucket == "voucher") != (voucher is not None):
        yield "voucher is missing" if voucher is None else "only a voucher problem has one"
    if voucher is not None:
        amounts = {name: getattr(voucher, name) for name in ("threshold", "budget", "face_value", "discount", "cap")}
        needed = ("face_value",) if voucher.discount_type == "fixed" else ("discount", "cap")
        yield from _amounts("voucher", amounts, needed)


def _amounts(field: str, amounts: Mapping[str, float | None], needed: Iterable[str]) -> Iterator[str]:
    for name, amount in amounts.items():
        if amount is not None and not math.isfinite(amount):
            yield f"{field}.{name} is not finite"
    for name in needed:
        if amounts[name] is None:
            yield f"{field}.{name} is missing"
