"""view_voucher_information: the voucher that the task states, in the words of calculate_voucher."""

from __future__ import annotations

from harness.tools.call import ToolContext, result_text
from harness.tools.port import ToolOutcome
from problems.model import Voucher

_DIGITS = 10  # of a per cent figure: 0.29 * 100 is 28.999999999999996


def view_voucher_information(context: ToolContext) -> ToolOutcome:
    """Show the voucher and the budget of the task: has_voucher, voucher_type, discount_value, threshold, cap, budget
    and needs_one_shop.

    Amounts are in PHP; the values can be passed to calculate_voucher as they are. A task without a voucher says
    has_voucher false.
    """
    voucher = context.problem.voucher
    if voucher is None:
        answer: dict[str, object] = {"has_voucher": False, "message": "This task has no voucher."}
    else:
        answer = {"has_voucher": True, **_describe(voucher)}
    return ToolOutcome(result=result_text(answer))


def _describe(voucher: Voucher) -> dict[str, object]:
    """What the task's text says. The price after the voucher stays out: it is the answer's."""
    is_percentage = voucher.discount_type == "percentage"
    value = round((voucher.discount or 0.0) * 100, _DIGITS) if is_percentage else voucher.face_value
    return {
        "voucher_type": voucher.discount_type,
        "discount_value": value,
        "threshold": voucher.threshold,
        "cap": voucher.cap if is_percentage and voucher.cap is not None else 0.0,
        "budget": voucher.budget,
        "needs_one_shop": voucher.voucher_type == "shop",
    }
