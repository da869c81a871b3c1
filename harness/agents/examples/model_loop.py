"""A second agent: the model chooses every tool call, this file only carries calls and results.

Who wrote a call matters: a run is agentic when the model wrote nearly all calls, and only its reasoning is judged. So
send the arguments exactly as the model wrote them, and do not write calls into the prompt: if a call already stands
there and the model repeats it, it counts as an echo. The rule is in harness/EMISSION.md.

Run it with `arena run examples/model_loop.py`. Without a model endpoint a scripted model answers.
"""

import json

from arena_sdk import ToolError, llm, tools

MAX_STEPS = 20  # the policy ends a run at 25 completions (A1021)

PROMPT = """You shop on a marketplace; prices are in PHP. Find what the user asks for, using the tools.

- Search with few, specific words. Filters: price as "low-high", "300-" or "-500"; services official (LazMall),
  freeShipping, COD, flashsale (LazFlash).
- Options and attributes such as size or colour are shown by view_product_information, not by a search.
- Check every constraint of the request: product type, price, services, brand, and every other attribute.
- If the user wants everything from one shop, all products need the same shop_id.
- Before each call say what the last results show, and why you call this tool.
- At the end call recommend_product once: one id for each product asked for, in the order of the request, joined by
  commas. Then call terminate."""


def agent_main(problem: dict[str, str]) -> None:
    """Let the model work on the request until it calls terminate or its steps run out."""
    messages: list[dict[str, object]] = [{"role": "system", "content": PROMPT}]
    messages.append({"role": "user", "content": problem["query"]})
    for _ in range(MAX_STEPS):
        reply = ask(messages)
        if reply is None:
            return
        messages.append(reply.message)
        if not reply.tool_calls:
            messages.append({"role": "user", "content": "Go on with a tool call; end with terminate."})
        for call in reply.tool_calls:
            messages.append(answer(call))
            if call["name"] == "terminate":
                return


def ask(messages: list[dict[str, object]]) -> llm.Reply | None:
    """One completion from the first model that takes the request; None when none does.

    A model endpoint that is down is not the agent's fault: the host tries again by itself. A request that endpoints
    refuse while they answer others raises ToolError (A1043), and then another listed model may still take it.
    """
    for model in llm.models():
        try:
            return llm.chat(messages, model=model, tools=tools.schemas(), temperature=0)
        except ToolError as error:
            if error.code not in ("A1040", "A1043"):
                raise
    return None


def answer(call: dict[str, str]) -> dict[str, object]:
    """Execute one call of the model and give its result as the message the model reads next.

    `tools.execute` takes the model's own text and returns a tool error as text, so the model can correct itself.
    """
    result = tools.execute(call["name"], call["arguments"])
    if len(result) > 20_000:  # a long page of descriptions: keep the conversation within the token limit
        result = json.dumps({"note": "result too long; ask for fewer products at once", "start": result[:10_000]})
    return {"role": "tool", "tool_call_id": call["id"], "content": result}
