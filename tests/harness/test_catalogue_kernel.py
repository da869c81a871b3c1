"""The compiled kernel: the same sums as numpy's, and it runs where nothing can be kept on disk."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.catalogue.native import accumulate, compiled_accumulate

ROOT = Path(__file__).parents[2]
LISTS = st.lists(st.sets(st.integers(0, 19), min_size=1), min_size=1, max_size=5)


@settings(deadline=None)
@given(LISTS, st.integers(0, 2**32 - 1))
def test_both_kernels_meet_the_same_documents_with_the_same_scores(lists: list[set[int]], seed: int) -> None:
    rng = np.random.default_rng(seed)
    documents = np.array([number for each in lists for number in sorted(each)], np.int32)
    ends = np.cumsum([len(each) for each in lists]).astype(np.int64)
    starts = np.concatenate([[0], ends[:-1]]).astype(np.int64)
    codes = rng.integers(0, 3, len(documents)).astype(np.uint16)
    tables = rng.uniform(0.01, 9, (len(lists), 3)).astype(np.float32)
    results = []
    for kernel in (accumulate, compiled_accumulate()):
        sums = np.zeros(20, np.float64)
        met, scores = kernel(documents, codes, starts, ends, tables, sums)
        assert not sums.any()
        assert len(set(met.tolist())) == len(met) == len(set().union(*lists))
        results.append(dict(zip(met.tolist(), scores.tolist(), strict=True)))
    assert results[0] == results[1]


# The source from a file that is not there: numba finds no place for its cache, as in a read-only installation.
COMPILE_WITHOUT_A_PLACE = """
import sys
from pathlib import Path

names = {"__name__": "kernel"}
exec(compile(Path(sys.argv[1]).read_text(), "/nonexistent/accumulator.py", "exec"), names)
import numpy as np

sums = np.zeros(4)
arrays = [np.array([1, 3], np.int32), np.zeros(2, np.uint16), np.array([0]), np.array([2])]
met, scores = names["compiled_accumulate"]()(*arrays, np.full((1, 1), 2, np.float32), sums)
print(met.tolist(), scores.tolist())
"""


def test_it_compiles_where_nothing_can_be_kept() -> None:
    source = ROOT / "harness" / "catalogue" / "native.py"
    command = [sys.executable, "-c", COMPILE_WITHOUT_A_PLACE, str(source)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[1, 3] [2.0, 2.0]"
