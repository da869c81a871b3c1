"""terminate: the end of an episode."""

from __future__ import annotations

from harness.tools.call import ToolContext, result_text
from harness.tools.port import ToolOutcome


def terminate(context: ToolContext, status: str = "success") -> ToolOutcome:
    """End the dialogue. Recommend first: what was not recommended does not count.

    Args:
        status: "success" when products were recommended, "failure" when none could be found.
    """
    return ToolOutcome(result=result_text(f"The dialogue has ended with status: {status}"), is_final=True)
