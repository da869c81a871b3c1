"""Walks the whole tree that it can see and reads everything that is named like a canary."""

from __future__ import annotations

import json
import os
from pathlib import Path

from arena_sdk import tools


def read(path):
    try:
        return Path(path).read_bytes()[:4000].decode(errors="replace")
    except OSError as error:
        return type(error).__name__


def agent_main(problem):
    name = json.loads(problem["query"])["file"].rpartition("/")[2]
    found = {}
    for root in (os.path.dirname(os.environ["TMPDIR"]), "/tmp", "/home", "/"):
        for directory, names, files in os.walk(root):
            if directory.startswith(("/proc", "/sys")):
                names[:] = []
            if name in files:
                found[directory] = read(Path(directory, name))
        if found:
            break
    tools.find_product(q="tried")
    return found
