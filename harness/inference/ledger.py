"""The ledger of model requests: what was sent where, what it cost, what came back. Kept by the host.

Promise: every admitted request leaves exactly one entry, also when no upstream could answer. Entries hold hashes and
counts, never a key and never message text; raw completions stand in the evaluation body.
"""

from __future__ import annotations

import threading

import msgspec

from harness.trace import EmittedCall
from problems.errors import Failure


class LedgerEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One admitted request. `upstream` is empty when none answered; `attempts` counts all upstreams."""

    request_sha256: str
    model: str
    upstream: str = ""
    attempts: int
    latency_ms: int
    prompt_tokens: int = 0
    completion_tokens: int = 0
    calls: tuple[EmittedCall, ...] = ()
    failure: Failure | None = None


class LedgerTotals(msgspec.Struct, frozen=True, kw_only=True):
    """Sums over a ledger."""

    requests: int = 0
    failed: int = 0
    attempts: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    latency_ms: int = 0


class Ledger:
    """An append-only list of entries. Thread-safe: episodes that run at once may share one."""

    def __init__(self) -> None:
        self._entries: list[LedgerEntry] = []
        self._lock = threading.Lock()

    def append(self, entry: LedgerEntry) -> None:
        """Add one entry."""
        with self._lock:
            self._entries.append(entry)

    def entries(self) -> tuple[LedgerEntry, ...]:
        """All entries so far, in the order they were completed."""
        with self._lock:
            return tuple(self._entries)

    def totals(self) -> LedgerTotals:
        """Sums over all entries so far."""
        entries = self.entries()
        return LedgerTotals(
            requests=len(entries),
            failed=sum(entry.failure is not None for entry in entries),
            attempts=sum(entry.attempts for entry in entries),
            prompt_tokens=sum(entry.prompt_tokens for entry in entries),
            completion_tokens=sum(entry.completion_tokens for entry in entries),
            latency_ms=sum(entry.latency_ms for entry in entries),
        )
