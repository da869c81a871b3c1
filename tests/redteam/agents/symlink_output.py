"""Makes links to a file of the host in every place that it can write to, and writes through them."""

from __future__ import annotations

import json
import os
from pathlib import Path

from arena_sdk import tools


def agent_main(problem):
    target, told = json.loads(problem["query"])["trajectory"], []
    for name in ("result.json", "output", "stdout", "trajectory.jsonl"):
        link = Path(os.environ["TMPDIR"], name)
        try:
            link.symlink_to(target)
            link.open("a").write("through a link")
        except OSError as error:
            told.append(type(error).__name__)
        try:
            os.link(target, Path(os.environ["TMPDIR"], name + ".hard"))
        except OSError as error:
            told.append(type(error).__name__)
    tools.find_product(q="tried")
    return told
