"""Distilled: one conversation, in which the model makes every decision. The file of rollouts, evaluation and re-entry.

It says nothing to the model after the request but what the tools answer: the conversation only grows, so its tokens are
made once, and a turn without a call ends the episode.
"""

from arena_sdk import llm, tools

MODEL = ""  # a name from llm.models(); empty takes the first one
MAX_STEPS = 25

PROMPT = """You are a shopping assistant on a marketplace with prices in PHP. Find the products the user asks for.
Use the tools only. Search with few, specific words; look at a product's information where options or attributes
matter. Think before each call. Recommend once, with the ids joined by commas in the order the user asked for them, then
call terminate."""


def agent_main(problem: dict[str, str]) -> None:
    """Let the model work on `problem["query"]` until it terminates, or makes no call."""
    available = llm.models()
    model = MODEL if MODEL in available else available[0]
    messages = [{"role": "system", "content": PROMPT}, {"role": "user", "content": problem["query"]}]
    for _ in range(MAX_STEPS):
        reply = llm.chat(messages, model=model, tools=tools.schemas(), temperature=0)
        messages.append(reply["message"])
        if not reply["tool_calls"]:
            return
        for call in reply["tool_calls"]:
            result = tools.execute(call["name"], call["arguments"])
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": result})
