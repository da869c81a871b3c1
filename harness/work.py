"""Host work: what an agent makes the host do, counted in units and bounded for an episode by the policy.

Units follow from the agent's request, the catalogue and the result alone. No clock, cache, kernel or engine
has a say, so two hosts count the same, warm or cold. One unit is one posting summed, as dear as it gets in a catalogue
of millions; the other weights say how many of those a thing may cost at its worst input
(`tests/benchmarks/bench_host_work.py` measures them). What can be known beforehand is spent before it is done.
"""

from __future__ import annotations

POSTING = 1  # one document of one word's list, read and summed
WORD = 500  # one distinct word of a search: looked up, its weights computed
HIT = 2  # one of the best hits, held against the filters
PRODUCT = 2_000  # one product read, decoded and shown
MATCHED_VALUE = 1_000  # one required value, compared with a product's options
CALL = 10_000  # one tool call of any kind, refused or not: read, recorded, answered
CALL_BYTE = 50  # one byte of a tool call, as far as calls are read: decoded, normalised, cut into words
RESULT_BYTE = 5  # one byte of a tool's answer: encoded, cut into words, recorded, sent
REQUEST = 20_000  # one model request, refused or not
REQUEST_BYTE = 20  # one byte of a model request: rebuilt, recorded, its messages read for calls that are in them


class WorkExceededError(Exception):
    """Raised where work would pass the limit."""


class WorkMeter:
    """Adds up the units of one episode. One thread."""

    def __init__(self, limit: int = 0) -> None:
        """`limit` in units; 0: nothing is refused."""
        self._limit = limit
        self._spent = 0

    @property
    def spent(self) -> int:
        """Units so far."""
        return self._spent

    def spend(self, units: int) -> None:
        """Count `units`. Raises WorkExceededError, and counts nothing, when they pass the limit."""
        if self._limit and self._spent + units > self._limit:
            raise WorkExceededError(f"{self._limit} units of host work")
        self._spent += units
