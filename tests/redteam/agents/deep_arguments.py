"""Sends arguments so deep, long and crowded that reading them would keep the host busy for ever."""

from __future__ import annotations

import json

from arena_sdk import ToolError, llm, tools


def agent_main(problem):
    tools.find_product(q="tried")
    deep = '{"a":' * 60 + "1" + "}" * 60
    texts = [deep, json.dumps({"q": deep}), "[" * 900 + "]" * 900, '{"a":' * 900 + "1" + "}" * 900]
    texts.append(json.dumps({"q": "a" + "\u0301\u0316" * 9000}, ensure_ascii=False))
    told = [tools.execute("find_product", text) for text in texts]
    try:
        tools.execute("find_product", json.dumps({"q": "x" * 300_000}))
    except ToolError as error:
        told.append(type(error).__name__)
    nested = "find_product(" * 900 + "x" * 60_000 + ")" * 900
    llm.chat(
        [{"role": "user", "content": nested}, {"role": "user", "content": '{"name":"find_product","arguments":' * 900}]
    )
    return [text[:80] for text in told]
