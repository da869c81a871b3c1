"""Signals a process of the host: by the number it was told, and every other that it can see."""

from __future__ import annotations

import json
import os
import signal

from arena_sdk import tools


def agent_main(problem):
    victim, told = json.loads(problem["query"])["victim"], []
    try:
        os.kill(victim, signal.SIGUSR1)
        told.append("signalled")
    except OSError as error:
        told.append(type(error).__name__)
    try:
        signal.pidfd_send_signal(os.pidfd_open(victim), signal.SIGUSR1)
    except OSError as error:
        told.append(type(error).__name__)
    tools.find_product(q="tried")
    return told
