"""Sends one name to whoever reads first and another to whoever reads last."""

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
    params = '{"name":"find_product","name":"nothing","arguments":"{}"}'
    os.write(4, frame('{"jsonrpc":"2.0","id":99,"method":"tool.call","params":' + params + "}"))
    time.sleep(0.5)
    os.read(3, 1 << 16)
    os.write(4, frame('{"jsonrpc":"2.0","method":"final","params":{"claim":1,"claim":2}}'))
    time.sleep(20)
