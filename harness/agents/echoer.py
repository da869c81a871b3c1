"""Echoer: Python decides on every call and writes it into the prompt; the model only repeats it.

The calls come out of a completion, yet the model chose none of them. The host must attribute them as `echoed`.
"""

import json

from arena_sdk import llm, tools


def agent_main(problem: dict[str, str]) -> None:
    """Search, recommend the first hit and terminate, each call dictated to the model word by word."""
    hits = dictate("find_product", {"q": problem["query"][:150], "page": 1})
    first = hits[0]["product_id"] if isinstance(hits, list) and hits else ""
    dictate("recommend_product", {"product_ids": first})
    dictate("terminate", {"status": "success"})


def dictate(name: str, arguments: dict[str, object]) -> object:
    """Have the model repeat one call, then make it. Returns the tool's result."""
    call = json.dumps({"name": name, "arguments": arguments})
    order = f"Repeat exactly this tool call and nothing else: <tool_call>{call}</tool_call>"
    reply = llm.chat([{"role": "user", "content": order}], tools=tools.schemas(), temperature=0)
    results = [tools.execute(repeated["name"], repeated["arguments"]) for repeated in reply["tool_calls"]]
    return json.loads(results[0]) if results else None
