"""Baseline: an agentic loop. The model chooses every tool call; this file only carries them to and fro.

Start from here: change the prompt, add memory, prune the conversation. Whatever you do, let the model write the calls:
calls written by Python count as `code`, and a trajectory is `agentic` only when the model wrote nearly all of them.
"""

from arena_sdk import llm, tools

MODEL = ""  # a name from llm.models(); empty takes the first one
MAX_STEPS = 20

PROMPT = """You are a shopping assistant on a marketplace with prices in PHP. Find the products the user asks for.

- find_product searches (10 hits a page). Use few, specific words; filter with price "low-high" ("300-", "-500") and
  service (official = LazMall, freeShipping, COD, flashsale = LazFlash). view_product_information shows options and
  attributes.
- Every constraint counts: product type, price, services, size, colour, brand and every other attribute.
- Several products: if one shop must sell them all, every product you recommend must have the same shop_id; with a
  budget and a voucher, the total after the voucher must stay within the budget.
- Think before each call: say what the results show, quote prices and attributes, compare the candidates.
- At the end call recommend_product once, with the ids joined by commas in the order the user asked for them
  (one id per requested product), then call terminate."""


def agent_main(problem: dict[str, str]) -> None:
    """Let the model work on `problem["query"]` until it terminates."""
    available = llm.models()
    model = MODEL if MODEL in available else available[0]
    messages = [{"role": "system", "content": PROMPT}, {"role": "user", "content": problem["query"]}]
    for _ in range(MAX_STEPS):
        reply = llm.chat(messages, model=model, tools=tools.schemas(), temperature=0)
        messages.append(reply["message"])
        if not reply["tool_calls"]:
            messages.append({"role": "user", "content": "Go on with a tool call; finish with terminate."})
        for call in reply["tool_calls"]:
            # Text in, text out: the model reads exactly what the host recorded, tool errors included.
            result = tools.execute(call["name"], call["arguments"])
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": result})
