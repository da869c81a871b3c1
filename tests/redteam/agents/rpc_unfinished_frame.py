"""Announces a frame and sends its bytes for ever, one at a time."""

from __future__ import annotations

import os
import struct
import time

from arena_sdk import tools


def frame(text):
    body = text if isinstance(text, bytes) else text.encode()
    return struct.pack(">I", len(body)) + body


def agent_main(problem):
    tools.find_product(q="tried")
    os.write(4, struct.pack(">I", 100_000) + b"{")
    for _ in range(10_000):
        os.write(4, b" ")
        time.sleep(0.01)
    time.sleep(20)
