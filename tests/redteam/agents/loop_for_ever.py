"""Ignores every signal and computes for as long as it was told."""

from __future__ import annotations

import json
import signal
import time

from arena_sdk import tools


def agent_main(problem):
    for number in set(signal.Signals) - {signal.SIGKILL, signal.SIGSTOP}:
        signal.signal(number, signal.SIG_IGN)
    tools.find_product(q="tried")
    end = time.monotonic() + json.loads(problem["query"])["amount"] / 10
    while time.monotonic() < end:
        pass
    tools.find_product(q="reached")
