"""Many processes that together take more memory than one jail may, each of them behind a first thread that has ended:
such a process shows no memory under its own number.
"""

from __future__ import annotations

import ctypes
import json
import os
import threading
import time

from arena_sdk import tools

EXIT_THREAD = {"x86_64": 60, "aarch64": 93}


def hold():
    block = bytearray(b"x" * (40 << 20))
    time.sleep(30)
    os._exit(len(block) and 0)


def agent_main(problem):
    tools.find_product(q="tried")
    for _ in range(json.loads(problem["query"])["amount"]):
        if os.fork() == 0:
            threading.Thread(target=hold).start()
            ctypes.CDLL(None).syscall(EXIT_THREAD[os.uname().machine], 0)
    time.sleep(2)
    tools.find_product(q="reached")
