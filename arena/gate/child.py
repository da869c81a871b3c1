"""The gate's child process: one request on standard input, one report on standard output, then the end.

It limits its own CPU time and address space before it looks at the source.
"""

from __future__ import annotations

import gc
import resource
import sys

import msgspec

from arena.gate.inspection import inspect
from arena.gate.isolation import EXIT_OUT_OF_MEMORY, MEMORY_BYTES, InspectionRequest, unpack


def main() -> int:
    """Inspect the request's source; the exit code says whether there is a report."""
    request = msgspec.msgpack.decode(sys.stdin.buffer.read(), type=InspectionRequest)
    _lower(resource.RLIMIT_CORE, 0)
    _lower(resource.RLIMIT_AS, MEMORY_BYTES)
    _lower(resource.RLIMIT_CPU, request.cpu_limit_s)
    knowledge, neighbours = unpack(request)
    gc.disable()  # the process ends before its garbage would be worth a look
    try:
        report = inspect(request.source, request.rules, knowledge, neighbours, request.author)
    except MemoryError:
        return EXIT_OUT_OF_MEMORY
    sys.stdout.buffer.write(msgspec.json.encode(report))
    return 0


def _lower(limit: int, value: int) -> None:
    """Lower a soft limit; the hard one stays, so that CPU time over the limit is SIGXCPU and not SIGKILL."""
    hard = resource.getrlimit(limit)[1]
    resource.setrlimit(limit, (value if hard == resource.RLIM_INFINITY else min(value, hard), hard))


if __name__ == "__main__":
    sys.exit(main())
