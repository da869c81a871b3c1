"""Makes files without content: they take no space, only the kernel's memory."""

from __future__ import annotations

import json
import os

from arena_sdk import tools


def agent_main(problem):
    tools.find_product(q="tried")
    folder = os.environ["TMPDIR"]
    for number in range(json.loads(problem["query"])["amount"]):
        os.close(os.open(f"{folder}/{number}", os.O_CREAT | os.O_WRONLY))
    tools.find_product(q="reached")
