"""Sends a datagram to a UDP port of the host."""

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
    told = knock(socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", target["udp"]))
    tools.find_product(q="tried")
    return told
