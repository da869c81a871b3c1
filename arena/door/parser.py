"""The parser's process: reads one source after the other from standard input and answers what keeps it from the gate.

It limits its own memory first. A source that takes too long is ended from outside, by ending this process.
"""

from __future__ import annotations

import resource
import sys

import msgspec

from arena.door.form import LENGTH_BYTES, MEMORY_BYTES
from arena.gate.report import Finding
from arena.gate.source import parse, read_text
from arena.policy import GateRules

FORM_RULES = frozenset({"encoding", "size", "parse", "depth", "entry"})


def form_findings(source: bytes, rules: GateRules) -> list[Finding]:
    """The findings of class `form`: they cost a miner nothing, and are said at once."""
    text, found = read_text(source, rules)
    if not found:
        _, found = parse(text, rules)
    return [each for each in found if each.rule in FORM_RULES]


def main() -> None:
    """Answer until the input ends."""
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    most = MEMORY_BYTES if hard == resource.RLIM_INFINITY else min(MEMORY_BYTES, hard)
    resource.setrlimit(resource.RLIMIT_AS, (most, hard))
    rules = msgspec.json.decode(sys.argv[1], type=GateRules)
    stream = sys.stdin.buffer
    while len(length := stream.read(LENGTH_BYTES)) == LENGTH_BYTES:
        found = form_findings(stream.read(int.from_bytes(length)), rules)
        sys.stdout.buffer.write(msgspec.json.encode(found) + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
