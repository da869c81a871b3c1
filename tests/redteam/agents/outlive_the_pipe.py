"""Closes its own end of everything and goes on in a child, so that its end is never seen."""

from __future__ import annotations

import os
import time

from arena_sdk import tools


def agent_main(problem):
    if os.fork() == 0:
        os.setsid()
        time.sleep(40)
        os._exit(0)
    time.sleep(0.3)
    tools.find_product(q="tried")
    os._exit(0)
