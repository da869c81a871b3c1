"""SN15 of May 2026, a loop of its own: no Tool decorator, `requests` imported and not used, reads of os.environ."""

import json
import logging
import os
import re

import requests  # noqa: F401 - as in many agents: imported and never used
from src.agent.agent_interface import create_dialogue_step
from src.agent.proxy_client import ProxyClient

MODEL = os.environ.get("SANDBOX_MODEL", "deepseek-ai/DeepSeek-V3.2-TEE")
STEPS = int(os.environ.get("MAX_STEPS", "20"))
logging.basicConfig(level=getattr(logging, os.getenv("LOG_LEVEL", "INFO").upper(), logging.INFO))
proxy = ProxyClient(timeout=60)
SYSTEM = """Tools: find_product(q), view_product_information(product_ids), recommend_product(product_ids), terminate().
Think in <think></think>, then write one <tool_call>[{"name": "...", "parameters": {}}]</tool_call>. Recommend, then
terminate."""


def act(call):
    name, parameters = call["name"], call.get("parameters") or call.get("arguments") or {}
    result = "ok"
    if name in ("find_product", "view_product_information"):
        parameters = {**({"page": 1} if name == "find_product" else {}), **parameters}
        result = proxy.get(f"/search/{name}", parameters)
    return {"name": name, "parameters": parameters, "tool_call_id": f"{name[:4]}0", "result": result}


def agent_main(problem_data):
    messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": problem_data["query"]}]
    steps = []
    for number in range(1, STEPS + 1):
        reply = proxy.post("/inference/chat/completions", {"model": MODEL, "messages": messages, "temperature": 0})
        text = reply["choices"][0]["message"].get("content") or ""
        found = re.search(r"<tool_call>(.*?)</tool_call>", text, re.S)
        calls = json.loads(found.group(1)) if found else []
        results = [act(call) for call in (calls if isinstance(calls, list) else [calls])]
        steps.append(create_dialogue_step("next", results, "", problem_data["query"], number))
        if not results or results[-1]["name"] == "terminate":
            break
        messages.append({"role": "assistant", "content": text})
        observations = [{"tool_call_id": one["tool_call_id"], "results": one["result"]} for one in results]
        messages.append({"role": "user", "content": f"<obs>{json.dumps(observations)}</obs>"})
    return steps
