"""A ReAct agent as a miner of SN15 writes one, against its public interface alone: nothing in it knows this project.

The model reads tool descriptions in its prompt and writes `<tool_call>` text; the tools are this file's own functions
over `ProxyClient`; the whole dialogue is one user message; terminate is only a mark in the returned dialogue.
"""

import inspect
import json
import logging
import re
from os import getenv
from urllib.parse import quote_plus

from src.agent.agent_interface import (
    Tool,
    create_dialogue_step,
    execute_tool_call,
    generate_tool_call_id,
    get_tool,
    list_tools,
)
from src.agent.proxy_client import ProxyClient

logging.basicConfig(level=logging.INFO)
logger = logging.getLogger(__name__)

MAX_STEPS = 25
MODEL = getenv("SANDBOX_MODEL") or "deepseek-ai/DeepSeek-V3.2-TEE"
proxy = ProxyClient(timeout=60, max_retries=2)
viewed: dict[str, dict] = {}


@Tool
def find_product(
    q: str,
    page: int = 1,
    shop_id: str | None = None,
    price: str | None = None,
    sort: str | None = None,
    service: str | None = None,
) -> list[dict]:
    """Search products, ten per page. price is "low-high", service some of official, freeShipping, COD, flashsale."""
    given = {"shop_id": shop_id, "price": price, "sort": sort, "service": service}
    filters = {key: value for key, value in given.items() if value and value != "default"}
    return proxy.get("/search/find_product", {"q": quote_plus(q), "page": page, **filters}) or []


@Tool
def view_product_information(product_ids: str) -> list[dict]:
    """Details (options, attributes, description) of comma-separated product ids."""
    found = proxy.get("/search/view_product_information", {"product_ids": product_ids}) or []
    viewed.update({product["product_id"]: product for product in found})
    return found


@Tool("recommend_product")
def recommend(product_ids: str) -> str:
    """Recommend comma-separated product ids in the order of the request. Use it once, at the end."""
    return f"Recommended {product_ids}."


@Tool()
def terminate(status: str = "success") -> str:
    """End the dialogue with status success or failure."""
    return f"Ended with {status}."


@Tool
def check_product_match(product_id: str, requirements: str) -> dict:
    """Compare one product, whose details were viewed before, with a JSON object of required attributes."""
    if product_id not in viewed:
        return {"error": "view the product first"}
    text = json.dumps(viewed[product_id]).lower()
    wanted = json.loads(requirements)
    missing = [key for key, value in wanted.items() if str(value).lower() not in text]
    return {"matched": not missing, "matches": [k for k in wanted if k not in missing], "mismatches": missing}


@Tool
def calculate_voucher(
    product_prices: str,
    voucher_type: str,
    discount_value: float,
    threshold: float,
    budget: float,
    cap: float = 0,
    shop_ids: str = "",
) -> dict:
    """The price of a basket after a voucher; voucher_type is fixed or percentage, shop_ids for one shop's."""
    total = sum(float(price) for price in product_prices.split(","))
    discount = discount_value if voucher_type == "fixed" else total * discount_value / 100
    after = total - (min(discount, cap) if cap else discount) if total >= threshold else total
    return {"total_before": total, "total_after": after, "within_budget": after <= budget}


TOOLS = "\n".join(f"- {name}{inspect.signature(get_tool(name))}: {get_tool(name).__doc__}" for name in list_tools())

SYSTEM = f"""You are a shopping assistant that works with tools.

{TOOLS}

Think inside <think></think>, then write your calls inside <tool_call></tool_call> as a JSON array whose items have a
"name" and "parameters", for example:
<tool_call>[{{"name": "tool name", "parameters": {{"parameter": "value"}}}}]</tool_call>
Results come back inside <obs></obs>, each with its tool_call_id. Recommend before you terminate."""


def ask(history: list[str]) -> str:
    messages = [
        {"role": "system", "content": SYSTEM},
        {"role": "user", "content": "# Dialogue so far\n" + "\n\n".join(history)},
    ]
    request = {"model": MODEL, "messages": messages, "temperature": 0.0, "stream": False, "top_p": 1.0}
    answer = proxy.post("/inference/chat/completions", json_data=request)
    return answer["choices"][0]["message"].get("content") or "" if answer else ""


def read(tag: str, text: str) -> str:
    found = re.search(rf"<{tag}>(.+?)</{tag}>", text, re.DOTALL)
    return found.group(1).strip() if found else ""


def run(name: str, parameters: dict) -> dict:
    if name == "terminate":  # a mark in the dialogue: nothing is executed
        call_id = generate_tool_call_id(name, parameters)
        return {"name": name, "parameters": parameters, "tool_call_id": call_id, "result": "Ended."}
    return execute_tool_call(name, parameters)


def agent_main(problem_data: dict) -> list[dict]:
    query = problem_data["query"]
    history = [f"<user>{query}</user>"]
    steps: list[dict] = []
    for number in range(1, MAX_STEPS + 1):
        content = ask(history)
        think = read("think", content)
        written = json.loads(read("tool_call", content) or "[]")
        results = [run(call["name"], call.get("parameters", {})) for call in written]
        steps.append(create_dialogue_step(think, results, read("response", content), query, number))
        if not results or any(result["name"] == "terminate" for result in results):
            break
        observations = [{"tool_call_id": r["tool_call_id"], "results": r["result"]} for r in results]
        calls = [{"name": r["name"], "parameters": r["parameters"]} for r in results]
        history += [f"<think>{think}</think>", f"<tool_call>{json.dumps(calls)}</tool_call>"]
        history.append(f"<obs>{json.dumps(observations)}</obs>")
    logger.info("done in %d steps", len(steps))
    return steps
