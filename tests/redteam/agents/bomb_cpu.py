"""Computes in one child after another, each with a clock of its own, behind its host's back."""

from __future__ import annotations

import json
import os
import time

from arena_sdk import tools


def agent_main(problem):
    tools.find_product(q="tried")
    for _ in range(json.loads(problem["query"])["amount"]):
        if os.fork() == 0:
            end = time.process_time() + 0.4
            while time.process_time() < end:
                pass
            os._exit(0)
        os.wait()
    tools.find_product(q="reached")
