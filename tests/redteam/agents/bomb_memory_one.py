"""One process that takes more and more memory."""

from __future__ import annotations

import json

from arena_sdk import tools


def agent_main(problem):
    tools.find_product(q="tried")
    blocks = []
    for _ in range(json.loads(problem["query"])["amount"]):
        blocks.append(bytearray(b"x" * (8 << 20)))
    tools.find_product(q="reached")
