"""Fills the buffers of many socket pairs in many processes: memory that belongs to none of them."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import time

from arena_sdk import tools


def fill(count):
    pairs = [socket.socketpair() for _ in range(count)]
    for end in (end for pair in pairs for end in pair):
        end.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            while True:
                end.send(b"x" * 65536)
    time.sleep(30)


def agent_main(problem):
    tools.find_product(q="tried")
    for _ in range(json.loads(problem["query"])["amount"]):
        if os.fork() == 0:
            fill(100)
            os._exit(0)
    time.sleep(2)
    tools.find_product(q="reached")
