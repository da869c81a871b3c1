"""Keeps a secret plan in a file of its own and waits for a while: the victim of another agent."""

from __future__ import annotations

import json
import os
from pathlib import Path

from arena_sdk import tools


def agent_main(problem):
    Path(os.environ["TMPDIR"], "plan-of-the-neighbour").write_text(json.loads(problem["query"])["plan"])
    tools.find_product(q="wait")
