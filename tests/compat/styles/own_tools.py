"""SN15 of May 2026 with tools of its own under the names of ours: they run as written, and their prices are rounded."""

from src.agent.agent_interface import Tool, create_dialogue_step, execute_tool_call
from src.agent.proxy_client import ProxyClient

proxy = ProxyClient()


@Tool
def find_product(q, page=1):
    return proxy.get("/search/find_product", {"q": q, "page": page}) or []


@Tool
def check_product_match(product_id, requirements):
    return {"mine": True, "product_id": product_id}


@Tool
def calculate_voucher(product_prices, voucher_type, discount_value, threshold, budget, cap=0):
    return {"mine": True, "total_before": round(sum(float(price) for price in product_prices.split(",")), 2)}


@Tool
def recommend_product(product_ids):
    return "recommended"


def agent_main(problem_data):
    asked = {"messages": [{"role": "user", "content": problem_data["query"]}], "model": "any", "temperature": 0}
    told = proxy.post("/inference/chat/completions", asked)["choices"][0]["message"].get("content") or ""
    hits = execute_tool_call("find_product", {"q": problem_data["query"][:60]})
    first = hits["result"][0]["product_id"] if hits["result"] else "0"
    checks = execute_tool_call("check_product_match", {"product_id": first, "requirements": "{}"})
    bill = execute_tool_call(
        "calculate_voucher",
        {"product_prices": "33.333,33.333", "voucher_type": "fixed", "discount_value": 1, "threshold": 1, "budget": 99},
    )
    if not checks["result"].get("mine") or bill["result"]["total_before"] != 66.67:
        raise RuntimeError("a tool of mine was answered by somebody else")
    answer = execute_tool_call("recommend_product", {"product_ids": first})
    return [create_dialogue_step(told[:200], [hits, checks, bill, answer], "", problem_data["query"], 1)]
