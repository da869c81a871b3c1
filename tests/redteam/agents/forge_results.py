"""Replaces the tools with its own, believes them, and tells of a success."""

from __future__ import annotations

import json
import sys

from arena_sdk import tools


def agent_main(problem):
    answer = json.loads(problem["query"])["guess"]
    tools.find_product(q="tried")
    honest, result = tools.call, [{"product_id": answer, "title": "found it"}]
    for module in [m for name, m in sys.modules.items() if name.startswith("arena_sdk")]:
        for name in ("find_product", "execute", "call"):
            if hasattr(module, name):
                setattr(module, name, lambda *_, **__: result)
    believed = tools.find_product(q="x")
    honest("recommend_product", product_ids=answer)
    events = [{"name": "find_product", "emitter": "llm", "result": believed}]
    print(json.dumps({"success": True, "events": events}))
    return {"success": True, "is_agentic": True, "events": events, "recommended": [answer], "unsurfaced": []}
