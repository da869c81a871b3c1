"""Soundness: the rules a problem must keep so that it can be scored, whatever is recommended.

A problem that `check_problem` lets pass never makes the scorer fail for a reason of its own. Where the
reference raises an exception in the middle of scoring, or quietly counts a miss, we refuse at load (D17 to D23 and D39
in the README).
"""

from __future__ import annotations

import math

import msgspec

from foundation.errors import ArenaError
from problems.axes import ask
from problems.model import BUCKETS, Problem, Voucher

# `less than` looks at `high` only, `greater than` at `low` only.
_NEEDS_LOW = ("greater than", "between")
_NEEDS_HIGH = ("less than", "between")


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
    if typed.bucket not in BUCKETS:
        raise ArenaError("P4003", f"{typed.bucket!r}")
    if not typed.rewards:
        raise ArenaError("P4003", "reward is empty")
    if typed.bucket == "product" and len(typed.rewards) != 1:
        raise ArenaError("P4003", f"a product problem has one reward, not {len(typed.rewards)}")
    for index, item in enumerate(typed.rewards):
        field = f"reward[{index}]"
        if not item.product_id:
            raise ArenaError("P4003", f"{field}.product_id is empty")
        if ask(item).total == 0:
            raise ArenaError("P4003", f"{field} asks nothing")
        for place, rule in enumerate(item.price):
            bounds_php = [bound for bound in (rule.low, rule.high) if bound is not None]
            if not all(math.isfinite(bound) for bound in bounds_php):
                raise ArenaError("P4003", f"{field}.price[{place}] has a bound that is not finite")
            if rule.mode in _NEEDS_LOW and rule.low is None:
                raise ArenaError("P4003", f"{field}.price[{place}]: {rule.mode!r} needs a lower bound")
            if rule.mode in _NEEDS_HIGH and rule.high is None:
                raise ArenaError("P4003", f"{field}.price[{place}]: {rule.mode!r} needs an upper bound")
    if (typed.bucket == "voucher") != (typed.voucher is not None):
        raise ArenaError("P4003", "voucher is missing" if typed.voucher is None else "only a voucher problem has one")
    if typed.voucher is not None:
        _check_voucher(typed.voucher)


def code_of_field(message: str) -> str:
    """The code for a type error, by the field its message names."""
    if "`$.bucket`" in message:
        return "P4003"
    if "`$.voucher" in message:
        return "P4003"
    return "P4003" if "`$.reward" in message else "P4009"


def _check_voucher(voucher: Voucher) -> None:
    amounts = {
        "threshold": voucher.threshold,
        "budget": voucher.budget,
        "face_value": voucher.face_value,
        "discount": voucher.discount,
        "cap": voucher.cap,
    }
    for name, amount in amounts.items():
        if amount is not None and not math.isfinite(amount):
            raise ArenaError("P4003", f"voucher.{name} is not finite")
    needed = ("face_value",) if voucher.discount_type == "fixed" else ("discount", "cap")
    for name in needed:
        if amounts[name] is None:
            raise ArenaError("P4003", f"voucher.{name} is missing for a {voucher.discount_type} discount")
