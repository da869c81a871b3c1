"""Cheater: carries a table of answers. The gate must reject it, and the surfaced rule must make its ids worthless."""

from arena_sdk import tools

ANSWERS = {
    "0": "1000000001",
    "1": "1000000002",
    "2": "1000000003",
}


def agent_main(problem: dict[str, str]) -> None:
    """Recommend from the table without looking at anything."""
    key = str(len(problem["query"]) % len(ANSWERS))
    tools.recommend_product(product_ids=ANSWERS[key])
    tools.terminate(status="success")
