"""Connects to a unix socket of the host by its path."""

from __future__ import annotations

import json
import socket

from arena_sdk import tools


def knock(family, kind, address):
    try:
        with socket.socket(family, kind) as sender:
            sender.settimeout(2)
            sender.connect(address)
            sender.send(b"loot")
    except OSError as error:
        return type(error).__name__
    return "sent"


def agent_main(problem):
    target = json.loads(problem["query"])
    told = knock(socket.AF_UNIX, socket.SOCK_STREAM, target["socket"])
    tools.find_product(q="tried")
    return told
