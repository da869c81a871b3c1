"""Makes system calls that no agent needs, each with arguments that no kernel accepts."""

from __future__ import annotations

import ctypes
import json

from arena_sdk import tools


def agent_main(problem):
    libc = ctypes.CDLL(None, use_errno=True)
    told = {}
    for name, number, arguments in json.loads(problem["query"])["calls"]:
        ctypes.set_errno(0)
        result = libc.syscall(ctypes.c_long(number), *(ctypes.c_long(argument) for argument in arguments))
        told[name] = ctypes.get_errno() if result == -1 else 0
    tools.find_product(q="tried")
    return told
