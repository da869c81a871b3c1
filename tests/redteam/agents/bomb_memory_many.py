"""Many processes that together take more memory than one jail may."""

from __future__ import annotations

import json
import os
import time

from arena_sdk import tools


def agent_main(problem):
    tools.find_product(q="tried")
    for _ in range(json.loads(problem["query"])["amount"]):
        if os.fork() == 0:
            block = bytearray(b"x" * (40 << 20))
            time.sleep(30)
            os._exit(len(block) and 0)
    time.sleep(2)
    tools.find_product(q="reached")
