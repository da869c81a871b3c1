"""Fills shared memory that has no file and keeps one page of it mapped: the rest is held, and nobody has it."""

from __future__ import annotations

import ctypes
import json
import mmap

from arena_sdk import tools

SIZE = 8 << 20


def agent_main(problem):
    tools.find_product(q="tried")
    libc, held = ctypes.CDLL(None), []
    for _ in range(json.loads(problem["query"])["amount"]):
        block = mmap.mmap(-1, SIZE)
        block.write(b"x" * SIZE)
        here = ctypes.addressof(ctypes.c_char.from_buffer(block))
        libc.munmap(ctypes.c_void_p(here + mmap.PAGESIZE), ctypes.c_size_t(SIZE - mmap.PAGESIZE))
        held.append(block)
    tools.find_product(q="reached")
