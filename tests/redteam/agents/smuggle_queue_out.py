"""Leaves a message in a POSIX message queue, which outlives its process."""

from __future__ import annotations

import ctypes
import json
import os

from arena_sdk import tools


def agent_main(problem):
    target = json.loads(problem["query"])
    calls, libc = target["queue_calls"], ctypes.CDLL(None, use_errno=True)
    name, note = target["queue"].encode(), target["note"].encode()
    queue = libc.syscall(calls["mq_open"], name, os.O_CREAT | os.O_RDWR, 0o666, None)
    told = libc.syscall(calls["mq_timedsend"], queue, note, len(note), 0, None)
    tools.find_product(q="tried")
    return told
