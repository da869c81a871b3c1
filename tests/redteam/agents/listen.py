"""Opens a port and waits for somebody outside to come in."""

from __future__ import annotations

import json
import socket

from arena_sdk import tools


def agent_main(problem):
    told, doors = "", []
    for family, kind, address in (
        (socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", json.loads(problem["query"])["door"])),
        (socket.AF_UNIX, socket.SOCK_STREAM, "\0" + json.loads(problem["query"])["abstract_door"]),
    ):
        try:
            door = socket.socket(family, kind)
            door.bind(address)
            door.listen()
            doors.append(door)
        except OSError as error:
            told += type(error).__name__
    tools.find_product(q="tried")
    return told
