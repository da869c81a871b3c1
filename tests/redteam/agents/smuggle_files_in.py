"""Looks for what the agent of the last problem wrote, and takes it away."""

from __future__ import annotations

import json
import os
from pathlib import Path

from arena_sdk import tools


def agent_main(problem):
    target, told = json.loads(problem["query"]), []
    for directory in ("/tmp", "/dev/shm", "/var/tmp", "/run", "/arena", os.environ["TMPDIR"], target["outbox"]):
        path = Path(directory, "note-to-the-next")
        try:
            told.append(path.read_text())
        except OSError as error:
            told.append(type(error).__name__)
    tools.find_product(q="tried")
    return told
