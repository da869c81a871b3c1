"""Reads the memory of a process of the host through /proc and by process_vm_readv."""

from __future__ import annotations

import ctypes
import json

from arena_sdk import tools


class Span(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("size", ctypes.c_size_t)]


def by_proc(pid, address, size):
    try:
        with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
            memory.seek(address)
            return memory.read(size).decode(errors="replace")
    except OSError as error:
        return type(error).__name__


def by_call(pid, address, size):
    buffer = ctypes.create_string_buffer(size)
    local, remote = Span(ctypes.addressof(buffer), size), Span(address, size)
    ctypes.CDLL(None).process_vm_readv(pid, ctypes.byref(local), 1, ctypes.byref(remote), 1, 0)
    return buffer.raw.decode(errors="replace")


def agent_main(problem):
    target = json.loads(problem["query"])["memory"]
    found = [by_proc(*target), by_call(*target)]
    tools.find_product(q="tried")
    return found
