"""The compiled kernel: the same sums as numpy's, and it runs where nothing can be kept on disk."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from harness.catalogue.native import _add_postings, _take_scores, accumulate

ROOT = Path(__file__).parents[2]


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


@given(st.lists(st.lists(st.integers(0, 30), unique=True, min_size=1).map(sorted), min_size=1, max_size=5))
def test_each_posting_is_added_once_by_both_kernels(lists: list[list[int]]) -> None:
    documents = np.array([number for each in lists for number in each], np.int32)
    codes = (np.arange(len(documents)) % 7).astype(np.uint16)
    ends = np.cumsum([len(each) for each in lists])
    starts = ends - [len(each) for each in lists]
    tables = np.linspace(0.1, 2.0, 7 * len(lists), dtype=np.float32).reshape(len(lists), 7)
    sums, met = np.zeros(31), np.zeros(len(documents), np.int32)
    count = _add_postings(documents, codes, starts, ends, tables, sums, met)
    scores = np.zeros(count, np.float32)
    _take_scores(met[:count], sums, scores)
    assert not sums.any()
    others, theirs = accumulate(documents, codes, starts, ends, tables, sums)
    assert met[:count].tolist() == others.tolist() and scores.tolist() == theirs.tolist() and not sums.any()
