"""The set-level rules over many appraisals, in a process of its own: processor time, peak memory, and the decision.

`python -m tests.prove.duplicate_scale_run ROWS` decides on ROWS made traces (of five one is another's disguised copy
and one its reworded copy) and prints one JSON object. `tests/prove/test_corpus_scale.py` is the same as a proof.
"""

from __future__ import annotations

import hashlib
import json
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from tests.training.labelled import Maker, disguise, reword, stand_guard
from tests.training.stories import make_trace
from training.corpus.appraisal import Task
from training.corpus.model import Rules, Trace
from training.corpus.selection import appraise, decide

RULES = Rules(off=("tokens",))  # counting them is nothing that is measured here
SHARD_ROWS = 1_000
ROOT = Path(__file__).parents[2]


class MadeShard:
    """A thousand made traces, by seed."""

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def __call__(self) -> Iterator[Trace]:
        maker = Maker(self._seed)
        for _ in range(SHARD_ROWS // 5):
            for kind in ("plain", "silent"):
                yield maker.good(kind).trace
            goods = maker.goods()
            other = msgspec.structs.replace(goods, ids=tuple(str(int(one) + 1_234_567) for one in goods.ids))
            messages = maker.good_messages(goods)
            yield make_trace(goods, messages, place=maker.place())
            yield make_trace(other, disguise(messages, goods, other), place=maker.place())
            yield make_trace(goods, reword(maker.rng, messages), place=maker.place())


def run_decide(rows: int) -> dict[str, Any]:
    """The decision on `rows` made traces, in thousands, in a fresh process. 2 ms each to make."""
    words = [sys.executable, "-m", "tests.prove.duplicate_scale_run", str(rows)]
    return json.loads(subprocess.run(words, check=True, stdout=subprocess.PIPE, cwd=ROOT).stdout)


def _decide(rows: int) -> dict[str, Any]:
    shards = [MadeShard(seed) for seed in range(rows // SHARD_ROWS)]
    traces = appraise(shards, Task(arms=(RULES,)), stand_guard)
    before_kb, started_s = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    decision = decide(traces, RULES)
    found = {
        "rows": len(traces),
        "cpu_s": round(time.process_time() - started_s, 1),
        "grown_mb": round((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kb) / 1024, 1),
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10,
        "kept": decision.kept,
    }
    found |= {code: decision.codes.count((code,)) for code in ("duplicate", "near_duplicate", "ranked_out")}
    return found | {"sha256": hashlib.sha256(repr((list(decision.ranks), decision.codes)).encode()).hexdigest()}


if __name__ == "__main__":
    sys.stdout.write(json.dumps(_decide(int(sys.argv[1]))) + "\n")
