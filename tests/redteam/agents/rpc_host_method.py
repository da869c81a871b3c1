"""Calls what it imagines the host to have: a way to append to the record."""

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
    os.write(4, frame('{"jsonrpc":"2.0","id":99,"method":"record.append","params":{"emitter":"llm"}}'))
    time.sleep(20)
