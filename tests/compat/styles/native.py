"""The arena's own SDK: the model's calls are passed on as it wrote them."""

from arena_sdk import llm, tools


def agent_main(problem):
    messages = [
        {"role": "system", "content": "Find what is asked for. Recommend once, then terminate."},
        {"role": "user", "content": problem["query"]},
    ]
    for _ in range(20):
        reply = llm.chat(messages, tools=tools.schemas(), temperature=0)
        messages.append(reply.message)
        for call in reply.tool_calls:
            result = tools.execute(call["name"], call["arguments"])
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": result})
        if not reply.tool_calls:
            return
