"""The ledger of model requests: what was sent where, what it cost, what came back. Kept by the host.

Every admitted request leaves exactly one entry, also when no upstream could answer. Entries hold hashes and
counts, never a key and never message text; raw completions are in the evaluation body. The answered entries reduce to
lines without latency, upstream or attempts; their hash is in the body, so that a ledger and a record which tell of the
same completions can be held against each other.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from types import MappingProxyType

import msgspec

from foundation.canonical import content_hash, text_hash
from foundation.errors import Failure
from harness.trace import Completion, EmittedCall, Event

_TOKENS_PRICED = 1_000_000  # a price is per this many tokens


class LedgerLine(msgspec.Struct, frozen=True, kw_only=True):
    """One answered request, as far as it is the same on every host."""

    request_sha256: str
    response_sha256: str  # of the raw completion message
    model: str  # as the endpoint named itself
    prompt_tokens: int
    completion_tokens: int


def ledger_sha256(lines: Iterable[LedgerLine]) -> str:
    """sha256 hex over the lines in their order."""
    return content_hash(tuple(lines))


def completed_lines(events: Iterable[Event]) -> tuple[LedgerLine, ...]:
    """The lines that an episode's events tell of."""
    return tuple(
        LedgerLine(
            request_sha256=event.request_sha256,
            response_sha256=text_hash(event.response),
            model=event.model,
            prompt_tokens=event.prompt_tokens,
            completion_tokens=event.completion_tokens,
        )
        for event in events
        if isinstance(event, Completion)
    )


class LedgerEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One admitted request. `upstream` and `answered_model` are empty when none answered; `attempts` counts all
    upstreams and is 0 for one that was answered from the journal; `probes` counts neutral and one-token requests."""

    request_sha256: str
    response_sha256: str = ""  # of the raw completion message
    model: str  # as asked for
    answered_model: str = ""
    upstream: str = ""
    attempts: int
    probes: int = 0
    latency_ms: int
    prompt_tokens: int = 0
    completion_tokens: int = 0
    calls: tuple[EmittedCall, ...] = ()
    failure: Failure | None = None


class UpstreamPrice(msgspec.Struct, frozen=True, kw_only=True):
    """What an upstream charges, in micro-USD per million tokens."""

    prompt_micro_usd: int
    completion_micro_usd: int

    def cost_micro_usd(self, prompt_tokens: int, completion_tokens: int) -> int:
        """What so many tokens cost, rounded up."""
        cost = prompt_tokens * self.prompt_micro_usd + completion_tokens * self.completion_micro_usd
        return -(-cost // _TOKENS_PRICED)


class ModelUsage(msgspec.Struct, frozen=True, kw_only=True):
    """What an upstream was asked for under one of the allow-listed names, summed over a ledger. Requests that no
    upstream answered stand under the upstream ""; those answered from the journal cost nothing and are not counted."""

    upstream: str
    model: str
    requests: int = 0
    attempts: int = 0
    probes: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    latency_ms: int = 0
    cost_micro_usd: int | None = None  # by the tokens that the upstream itself counted; None: its price is not known


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

    def lines(self) -> tuple[LedgerLine, ...]:
        """The answered entries, reduced to what is the same on every host."""
        return tuple(
            LedgerLine(
                request_sha256=entry.request_sha256,
                response_sha256=entry.response_sha256,
                model=entry.answered_model,
                prompt_tokens=entry.prompt_tokens,
                completion_tokens=entry.completion_tokens,
            )
            for entry in self.entries()
            if entry.failure is None
        )

    def usage(self, prices: Mapping[str, UpstreamPrice] = MappingProxyType({})) -> tuple[ModelUsage, ...]:
        """What was asked for so far, by upstream and model, in the order of their names. `prices` are by upstream."""
        groups: dict[tuple[str, str], list[LedgerEntry]] = {}
        for entry in self.entries():
            if entry.attempts:
                groups.setdefault((entry.upstream, entry.model), []).append(entry)
        usage: list[ModelUsage] = []
        for (upstream, model), entries in sorted(groups.items()):
            prompt_tokens = sum(entry.prompt_tokens for entry in entries)
            completion_tokens = sum(entry.completion_tokens for entry in entries)
            cost = 0 if not upstream else None  # what no upstream answered costs nothing
            if upstream in prices:
                cost = prices[upstream].cost_micro_usd(prompt_tokens, completion_tokens)
            usage.append(
                ModelUsage(
                    upstream=upstream,
                    model=model,
                    requests=len(entries),
                    attempts=sum(entry.attempts for entry in entries),
                    probes=sum(entry.probes for entry in entries),
                    prompt_tokens=prompt_tokens,
                    completion_tokens=completion_tokens,
                    latency_ms=sum(entry.latency_ms for entry in entries),
                    cost_micro_usd=cost,
                )
            )
        return tuple(usage)
