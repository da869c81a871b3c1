"""Reads what the kernel says of the whole host: its name for this start, and numbers that other agents can change."""

from __future__ import annotations

from pathlib import Path

from arena_sdk import tools

NAMES = ("loadavg", "meminfo", "locks", "sys/fs/file-nr", "sys/kernel/random/boot_id")


def read(name):
    try:
        return Path("/proc", name).read_text()[:200]
    except OSError as error:
        return type(error).__name__


def agent_main(problem):
    found = {name: read(name) for name in NAMES}
    tools.find_product(q="tried")
    return found
