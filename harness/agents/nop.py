"""Nop: ends at once without a recommendation. The floor that every scorer must put at 0."""

from arena_sdk import tools


def agent_main(problem: dict[str, str]) -> None:
    """Terminate."""
    tools.terminate(status="failure")
