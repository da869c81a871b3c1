"""Leaves with an exit status that stands for a signal without a name."""

from __future__ import annotations

import os

from arena_sdk import tools


def agent_main(problem):
    tools.find_product(q="tried")
    os._exit(128 + 42)
