"""Leaves a process behind that has left its session, its parent and its descriptors."""

from __future__ import annotations

import os
import time

from arena_sdk import tools


def agent_main(problem):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.closerange(0, 64)
            time.sleep(40)
        os._exit(0)
    time.sleep(0.3)
    tools.find_product(q="tried")
