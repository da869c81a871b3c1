"""Subtask: Python drives, the model narrates. Every tool call is written by this file, so none counts as the model's.

It stands here as the counterpart of the baseline: it may well score, but it is no agentic trajectory.
"""

import re

from arena_sdk import llm, tools

FILLER = re.compile(
    r"\b(i'm|i am|i|looking|for|show|me|find|need|want|please|that|which|with|and|a|an|the|of|in|is|are|it|also|"
    r"can|you|help|buy|everything|one|all|them|these|this|following|stores?|"
    r"offers?|shops?|selling|sells?|products?|items?|priced?|costs?|costing|pesos?|php|above|over|under|below|between|from|to|"
    r"more|less|than|services?|available|first|second|third|next|lastly)\b|[\d.,]*\d",
    re.IGNORECASE,
)


def agent_main(problem: dict[str, str]) -> None:
    """Search for each wish, take the first hit, recommend; ask the model for one sentence about each."""
    request = re.split(r"my budget is", problem["query"], flags=re.IGNORECASE)[0]
    wishes = [wish for wish in re.split(r"\d\)|\d\.\s|;|\n|\. ", request) if len(search_words(wish)) > 1]
    chosen: list[dict[str, str]] = []
    for wish in wishes or [request]:
        same_shop = {"shop_id": chosen[0]["shop_id"]} if chosen and problem["category"] == "shop" else {}
        hits = tools.find_product(q=" ".join(search_words(wish)), page=1, **same_shop)
        if isinstance(hits, list) and hits:
            chosen.append(hits[0])
            narrate(f"The user asked: {wish.strip()}. The search found {hits[0]['title']} for {hits[0]['price']} PHP.")
    tools.recommend_product(product_ids=",".join(hit["product_id"] for hit in chosen))
    tools.terminate(status="success")


def search_words(wish: str) -> list[str]:
    """The words of a wish that are worth searching for."""
    return re.findall(r"[^\W_]+", FILLER.sub(" ", wish))


def narrate(facts: str) -> None:
    """Have the model put into words what Python did."""
    llm.chat([{"role": "user", "content": f"{facts} Say in one sentence why this fits."}], temperature=0)
