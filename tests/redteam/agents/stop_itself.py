"""Stops itself, so that it answers nothing and reads nothing."""

from __future__ import annotations

import json
import os
import signal

from arena_sdk import tools


def agent_main(problem):
    tools.find_product(q="tried")
    if json.loads(problem["query"])["amount"] > 1:
        os.kill(os.getpid(), signal.SIGSTOP)
    tools.find_product(q="reached")
