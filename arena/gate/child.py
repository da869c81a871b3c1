"""The gate's processes: a template that reads no source, and a child of it for each file.

The template has imported the gate and waits on a socket. For each message, which is nothing but open files, it forks a
child and tells the child's end. The child limits its own time, memory and files before it looks at the source, and sees
what every other child sees: the template as it was before the first file, and the knowledge, which is sealed.
"""

from __future__ import annotations

import contextlib
import gc
import mmap
import os
import resource
import select
import signal
import socket
import sys
import traceback

import msgspec

from arena.gate.inspection import inspect
from arena.gate.isolation import (
    EXIT_OUT_OF_MEMORY,
    FILES,
    MEMORY_BYTES,
    NICENESS,
    REPORT_BYTES,
    STATUS_BYTES,
    InspectionRequest,
    unpack,
)

IDLE_MS = 120_000  # then the template ends; the next file starts another
_KNOWLEDGE = 3  # in the child, behind request, report and complaint


def main() -> int:
    """Fork a child for each message until nobody is left to send one."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever asked ends the child
    control = socket.socket(fileno=os.dup(0))
    gc.collect()
    gc.freeze()
    poll = select.poll()
    poll.register(control, select.POLLIN)
    children: dict[int, tuple[int, int]] = {}  # by its own descriptor: process, and where to tell of its end
    told: dict[int, int] = {}  # process by where its end is told
    while True:
        events = poll.poll(None if children else IDLE_MS)
        # a message last: its files take the numbers of what was closed before it
        for descriptor, _ in sorted(events, key=lambda event: event[0] == control.fileno()):
            if descriptor == control.fileno():
                message, files, _, _ = socket.recv_fds(control, 1, FILES)
                if not message:
                    for process, _ in children.values():
                        os.kill(process, signal.SIGKILL)
                    return 0
                process = os.fork()
                if process == 0:
                    _be_child(files)
                *given, status = files
                for file in given:
                    os.close(file)
                child = os.pidfd_open(process)
                children[child], told[status] = (process, status), process
                poll.register(child, select.POLLIN)
                poll.register(status, 0)  # an error says that its reader has gone
            elif descriptor in children:
                process, status = children.pop(descriptor)
                told.pop(status)
                code = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
                poll.unregister(descriptor)
                poll.unregister(status)
                with contextlib.suppress(BrokenPipeError):  # nobody waits any longer
                    os.write(status, code.to_bytes(STATUS_BYTES, "little", signed=True))
                os.close(descriptor)
                os.close(status)
            elif descriptor in told:
                os.kill(told[descriptor], signal.SIGKILL)
        if not events:
            return 0


def _be_child(files: list[int]) -> None:
    """Inspect the request's source and end; the exit code says whether there is a report."""
    code = 1
    try:
        request, report, complaint, knowledge, _ = files
        for place, file in enumerate((request, report, complaint, knowledge)):
            os.dup2(file, place)
        os.closerange(_KNOWLEDGE + 1, resource.getrlimit(resource.RLIMIT_NOFILE)[0])
        os.nice(NICENESS)
        with open(0, "rb", closefd=False) as stream:
            asked = msgspec.msgpack.decode(stream.read(), type=InspectionRequest)
        shared = mmap.mmap(_KNOWLEDGE, 0, prot=mmap.PROT_READ) if os.fstat(_KNOWLEDGE).st_size else b""
        _lower(resource.RLIMIT_CORE, 0)
        _lower(resource.RLIMIT_AS, MEMORY_BYTES)
        _lower(resource.RLIMIT_FSIZE, REPORT_BYTES)
        _lower(resource.RLIMIT_CPU, asked.cpu_limit_s)
        known, neighbours = unpack(asked, shared)
        gc.disable()  # the process ends before its garbage would be worth a look
        try:
            made = inspect(asked.source, asked.rules, known, neighbours, asked.author)
        except MemoryError:
            os._exit(EXIT_OUT_OF_MEMORY)
        with open(1, "wb", closefd=False) as stream:
            stream.write(msgspec.json.encode(made))
        code = 0
    finally:
        if sys.exc_info()[0] is not None:
            os.write(2, traceback.format_exc().encode("utf-8", "replace"))
        os._exit(code)


def _lower(limit: int, value: int) -> None:
    """Lower a soft limit; the hard one stays, so that CPU time over the limit is SIGXCPU and not SIGKILL."""
    hard = resource.getrlimit(limit)[1]
    resource.setrlimit(limit, (value if hard == resource.RLIM_INFINITY else min(value, hard), hard))


if __name__ == "__main__":
    sys.exit(main())
