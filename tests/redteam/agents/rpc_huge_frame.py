"""Announces a frame of 4 GB."""

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
    os.write(4, b"\xff\xff\xff\xff" + b"x" * 5000)
    time.sleep(20)
