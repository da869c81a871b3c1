"""Starts threads that never end, up to a number far above the limit."""

from __future__ import annotations

import json
import threading
import time

from arena_sdk import tools


def agent_main(problem):
    tools.find_product(q="tried")
    for _ in range(json.loads(problem["query"])["amount"]):
        time.sleep(0.005)  # where processes are counted, not refused: until somebody has counted
        threading.Thread(target=time.sleep, args=(30,), daemon=True).start()
    tools.find_product(q="reached")
