"""Tells the story of an end that never was, in a megabyte."""

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
    story = "Success " * 100_000
    os.write(4, frame('{"jsonrpc":"2.0","method":"final","params":{"kind":"raise","error":"' + story + '"}}'))
    time.sleep(20)
