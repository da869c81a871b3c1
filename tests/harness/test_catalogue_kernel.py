"""The compiled kernel: the same sums as numpy's, and it runs where nothing can be kept on disk."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

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
