"""Says once more that it is ready, to be given a job of its own making."""

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
    os.write(4, frame('{"jsonrpc":"2.0","method":"ready","params":{"python":"9.9"}}'))
    time.sleep(20)
