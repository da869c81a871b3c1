"""Verification of a whole log in Postgres, on two processes: episodes, evaluations alone, and how it grows.

A body is about 40 kB. `episodes`: attempt, evaluation and verdict, so every third record has a body. The floor is the
signatures alone, checked one after another in one process.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from arena.chain.keys import generate_signer, verify
from arena.records.chain import signing_message
from arena.records.checkpoint import Checkpoint
from arena.records.proof import prove
from arena.records.checkpoint import sign_checkpoint
from arena.records.report import VerifyReport
from arena.records.sequencer import Sequencer
from arena.records.verify import verify_store
from arena.store.embedded import EmbeddedServer, start_embedded
from arena.store.postgres import PostgresStore
from tests.arena.log_stand import HOST, episode
from tests.benchmarks.row import Row

BODY_BYTES, BATCH, PROCESSES, TARGET = 40_000, 100, 2, 5_000
SIZES = (1_000, 3_000, 9_000)  # records; `make bench` stays short, and the growth shows
COMMAND = "make bench ARGS=verify"
