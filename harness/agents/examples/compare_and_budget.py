"""A third agent: it plans, compares candidates before it decides, and keeps within its budgets.

What it adds to model_loop.py:

- a plan first: the model lists the constraints of the request before it searches;
- a reminder to compare: a recommendation is judged higher when the words before it compare two products that tools
  returned, with their prices or attributes. One reminder, without any id or value in it, so the words stay the model's;
- budgets: steps and tokens are counted from the replies; near the end the model is asked to decide;
- a last resort: if the model never recommends, the program recommends what it saw. That call counts as `code`, and a
  product found is worth more than none.

Run it with `arena run examples/compare_and_budget.py`.
"""

import json

from arena_sdk import ToolError, llm, tools

STEPS = 22  # of 25 that the policy allows
PROMPT_TOKENS = 350_000  # of 400,000, summed over all requests
DECIDE_AT = 5  # steps that are left when the model is asked to decide

PROMPT = """You are a careful shopping assistant on a marketplace with prices in PHP.

Work in this order:
1. Say what the user asks for: each product, and each constraint on it (type, price, services, options, attributes).
2. Search with few, specific words; use the price and service filters. Look at options and attributes with
   view_product_information before you trust a title.
3. Compare at least two candidates by name, price and the attributes asked for, and say which one meets every
   constraint.
4. Call recommend_product once: one id for each product asked for, in the order of the request, joined by commas. Then
   call terminate.
"""
IN_ONE_SHOP = "All products must come from one shop: every recommended product has the same shop_id.\n"
WITH_VOUCHER = "Check the total with calculate_voucher: after the voucher it must be within the budget.\n"
COMPARE = "Before you recommend: compare the best candidates in your own words, with prices and attributes."
DECIDE = "Few steps are left. Recommend the best candidates you have seen, then terminate."
GO_ON = "Go on with a tool call; end with terminate."


def agent_main(problem: dict[str, str]) -> None:
    """Solve one problem within the budgets."""
    rules = {"shop": IN_ONE_SHOP, "voucher": WITH_VOUCHER}.get(problem["category"], "")
    messages: list[dict[str, object]] = [{"role": "system", "content": PROMPT + rules}]
    messages.append({"role": "user", "content": problem["query"]})
    found: list[str] = []  # the best hit of each search, in order
    called: set[str] = set()
    spent, has_compared = 0, False
    for left in range(STEPS, 0, -1):
        try:
            reply = llm.chat(messages, tools=tools.schemas(), temperature=0)
        except ToolError:
            break  # this request is refused; what was found so far is still worth recommending
        messages.append(reply.message)
        for call in reply.tool_calls:
            # exactly as the model wrote it: a call that the program changes is the program's
            result = tools.execute(call["name"], call["arguments"])
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": result})
            called.add(call["name"])
            hits = json.loads(result) if call["name"] == "find_product" else None
            if isinstance(hits, list) and hits and hits[0]["product_id"] not in found:
                found.append(hits[0]["product_id"])
        spent += reply.usage["prompt_tokens"]
        if "terminate" in called or spent > PROMPT_TOKENS:
            break
        if not reply.tool_calls:
            messages.append({"role": "user", "content": GO_ON})
        elif not has_compared and len(found) > 1:
            has_compared = True
            messages.append({"role": "user", "content": COMPARE})
        if left == DECIDE_AT and "recommend_product" not in called:
            messages.append({"role": "user", "content": DECIDE})
    if "recommend_product" not in called and found:
        tools.recommend_product(product_ids=",".join(found))
        tools.terminate()
