"""Forks without waiting, up to a number far above the limit."""

from __future__ import annotations

import json
import os
import time

from arena_sdk import tools


def agent_main(problem):
    tools.find_product(q="tried")
    for _ in range(json.loads(problem["query"])["amount"]):
        time.sleep(0.005)  # where processes are counted, not refused: until somebody has counted
        if os.fork() == 0:
            time.sleep(30)
            os._exit(0)
    tools.find_product(q="reached")
