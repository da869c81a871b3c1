"""Reads a file whose path on the host it was told, plainly and by detours through /proc and links."""

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
    target = json.loads(problem["query"])["file"]
    link = Path(os.environ["TMPDIR"], "link")
    link.symlink_to(target)
    detours = [f"/proc/{pid}/root{target}" for pid in ("1", "self", "thread-self", os.getppid())]
    paths = (target, link, *detours, f"/proc/self/cwd/../../../..{target}")
    found = {str(path): read(path) for path in paths}
    tools.find_product(q="tried")
    return found
