"""Asks and asks without reading an answer."""

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
    for number in range(50, 5_000):
        os.write(4, frame(f'{{"jsonrpc":"2.0","id":{number},"method":"tool.call","params":{{}}}}'))
    time.sleep(20)
