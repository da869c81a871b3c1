"""A third agent: it plans, compares candidates before it decides, and keeps within its budgets.

What it adds to model_loop.py:

- a plan first: the model lists the constraints of the request before it searches;
- a reminder to compare: a recommendation is judged higher when the words before it compare two products that tools
  returned, with their prices or attributes. One reminder, without any id or value in it, so the words stay the model's;
- budgets: steps and tokens are counted from the replies; near the end the model is told to decide, and once a request
  grows long, old results are cut down so that the sum of all requests stays within the token limit;
- a last resort: if the model never recommends, the program recommends what it saw. That call counts as `code`, and a
  product found is worth more than none.

Run it with `arena run examples/compare_and_budget.py`.
"""

import json
from dataclasses import dataclass, field

from arena_sdk import ToolError, llm, tools

STEPS = 22  # of 25 that the policy allows
PROMPT_TOKENS = 350_000  # of 400,000, summed over all requests
LONG_REQUEST = 24_000  # tokens of one request from which old results are cut down
KEPT_RESULTS = 4  # newest results that are never cut
DECIDE_AT = 5  # steps that are left when the model is told to decide

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


@dataclass
class Run:
    """What the program knows of its run: the conversation, its budgets, and which products a search brought."""

    messages: list[dict[str, object]]
    prompt_tokens: int = 0  # of all requests so far
    last_request: int = 0  # tokens of the newest one
    results: list[int] = field(default_factory=list)  # places of tool results in `messages`
    found: list[str] = field(default_factory=list)  # best hit of each search, in order
    has_compared: bool = False
    has_recommended: bool = False

    def say(self, text: str) -> None:
        """Add a message of the program's own."""
        self.messages.append({"role": "user", "content": text})


def agent_main(problem: dict[str, str]) -> None:
    """Solve one problem within the budgets."""
    rules = {"shop": IN_ONE_SHOP, "voucher": WITH_VOUCHER}.get(problem["category"], "")
    run = Run([{"role": "system", "content": PROMPT + rules}, {"role": "user", "content": problem["query"]}])
    for left in range(STEPS, 0, -1):
        if run.prompt_tokens > PROMPT_TOKENS or not take_step(run):
            break
        if left == DECIDE_AT and not run.has_recommended:
            run.say(DECIDE)
    if not run.has_recommended and run.found:
        tools.recommend_product(product_ids=",".join(run.found))
        tools.terminate()


def take_step(run: Run) -> bool:
    """One completion and its calls. False when the run is over."""
    if run.last_request > LONG_REQUEST:
        shorten(run)
    try:
        reply = llm.chat(run.messages, tools=tools.schemas(), temperature=0)
    except ToolError:
        return False  # this request is refused; what was found so far is still worth recommending
    run.last_request = reply.usage["prompt_tokens"]
    run.prompt_tokens += run.last_request
    run.messages.append(reply.message)
    for call in reply.tool_calls:
        note(run, call, execute(run, call))
        if call["name"] == "terminate":
            return False
    if not reply.tool_calls:
        run.say(GO_ON)
    elif not run.has_compared and len(run.found) > 1:
        run.has_compared = True
        run.say(COMPARE)
    return True


def execute(run: Run, call: dict[str, str]) -> str:
    """Execute a call exactly as the model wrote it, and put the result into the conversation."""
    result: str = tools.execute(call["name"], call["arguments"])
    run.results.append(len(run.messages))
    run.messages.append({"role": "tool", "tool_call_id": call["id"], "content": result})
    return result


def note(run: Run, call: dict[str, str], result: str) -> None:
    """Remember what the call means for the program: a recommendation, or the best hit of a search."""
    if call["name"] == "recommend_product":
        run.has_recommended = True
    if call["name"] == "find_product":
        hits = decoded(result)
        if isinstance(hits, list) and hits and hits[0]["product_id"] not in run.found:
            run.found.append(hits[0]["product_id"])


def shorten(run: Run) -> None:
    """Cut all but the newest results down to what a decision needs. A result that was cut is the program's text."""
    while len(run.results) > KEPT_RESULTS:
        place = run.results.pop(0)
        products = decoded(str(run.messages[place]["content"]))
        if isinstance(products, list):
            rows = [
                {key: row.get(key) for key in ("product_id", "shop_id", "title", "price", "service")}
                for row in products
            ]
            run.messages[place] = {**run.messages[place], "content": json.dumps(rows)}


def decoded(text: str) -> object:
    """The value of a result; None when it is not JSON."""
    try:
        return json.loads(text)
    except ValueError:
        return None
