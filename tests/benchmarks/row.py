"""One line of the benchmark table. A `bench_*.py` file offers `measure() -> Sequence[Row]`."""

from __future__ import annotations

import hashlib
import statistics
import timeit

import msgspec

_MILLISECONDS = {"s": 1_000.0, "ms": 1.0, "us": 1e-3}


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """A figure, and what it is held against in the same run."""

    name: str
    value: float
    unit: str
    baseline: float | None = None  # the other way of doing it, or the target, in the same unit
    command: str = "make bench"
    loop_ms: float | None = None  # `measured_loop_ms` around its benchmark

    @property
    def ratio(self) -> float | None:
        """The value over the baseline."""
        return self.value / self.baseline if self.baseline else None

    @property
    def loops(self) -> float | None:
        """A time in loops of the machine in that minute, a rate as how many in one; None of anything else."""
        if self.loop_ms is None or not (self.unit in _MILLISECONDS or self.unit.endswith("/s")):
            return None
        taken = _MILLISECONDS.get(self.unit)
        return self.value * self.loop_ms / 1_000 if taken is None else self.value * taken / self.loop_ms


def measured_loop_ms() -> float:
    """What a machine is worth in this minute: milliseconds of a pure-Python loop of 100,000 hashes, the median of 5."""

    def loop() -> None:
        digest = b""
        for _ in range(100_000):
            digest = hashlib.sha256(digest).digest()

    return 1_000 * statistics.median(timeit.repeat(loop, repeat=5, number=1))
