"""Codes of a miner's practice runs: recorded completions."""

from __future__ import annotations

from foundation.codes.row import STOPS, ErrorCode, row

ROWS: tuple[ErrorCode, ...] = (
    row(
        "V2180",
        "recording holds no reply to this request",
        "this problem has no result; the others are run",
        "the agent asks something else than when it was recorded: record again with --record, or give --record and"
        " --replay the same file to ask the endpoint for what is missing",
    ),
    row("V2181", "recording of completions cannot be used", STOPS, "record it again: arena run AGENT.py --record FILE"),
)
