"""Puts JSON nested a thousand deep, and every opening there is, into the prompts that the host looks for calls in."""

from __future__ import annotations

from arena_sdk import llm, tools

PROMPTS = (
    '{"name": "find_product", "arguments": ' * 990 + "{}" + "}" * 990,
    "find_product(" * 4_000,
    "find_product" + "(" * 60_000,
    "<tool_call>" * 4_000,
    "[" * 60_000 + "find_product",
    "find_product(page=" + "9" * 5_000 + ")",
)


def agent_main(problem):
    tools.find_product(q="tried")
    for prompt in PROMPTS:
        llm.chat([{"role": "user", "content": prompt}])
        tools.find_product(q="x")
