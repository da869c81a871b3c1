"""Sends text that is no Unicode."""

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
    os.write(4, frame('{"jsonrpc":"2.0","id":99,"method":"tool.call","params":{"name":"\\ud800","arguments":"{}"}}'))
    time.sleep(20)
