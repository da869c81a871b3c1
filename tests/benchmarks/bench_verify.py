"""Verification of a whole log in Postgres, on two processes: episodes, evaluations alone, and how it grows.

A body is about 40 kB. `episodes`: attempt, evaluation and verdict, so every third record has a body. The floor is the
signatures alone, checked one after another in one process.
"""

from __future__ import annotations

BODY_BYTES, BATCH, PROCESSES, TARGET = 40_000, 100, 2, 5_000
SIZES = (1_000, 3_000, 9_000)  # records; `make bench` stays short, and the growth shows
COMMAND = "make bench ARGS=verify"
