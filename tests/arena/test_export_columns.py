"""Columns put together from buffers are those that pyarrow makes itself, and no process pays for pandas."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from arena.export.formats.parquet import integer_column, text_column, truth_column, utf8_column

INT64 = st.integers(min_value=-(2**63), max_value=2**63 - 1)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)

PROGRAM = """
import sys
from pathlib import Path
from arena.export.formats.parquet import open_writer
from arena.export.row import LOG_ALONE
from tests.arena.trajectory_stand import trajectory
writer = open_writer(Path(sys.argv[1]), 0, LOG_ALONE)
writer.write([trajectory()])
writer.finish()
print("pandas" in sys.modules)
"""


@given(st.lists(st.none() | TEXT, max_size=40))
def test_text_is_the_array_pyarrow_makes(values: list[str | None]) -> None:
    _require_equal(text_column(values), pa.array(values, type=pa.string()))


@given(st.lists(TEXT, max_size=40))
def test_text_that_is_utf8_already_is_the_same(values: list[str]) -> None:
    _require_equal(utf8_column([value.encode() for value in values]), pa.array(values, type=pa.string()))


@given(st.lists(st.none() | INT64, max_size=40))
def test_integers_are_the_array_pyarrow_makes(values: list[int | None]) -> None:
    _require_equal(integer_column(values), pa.array(values, type=pa.int64()))


@given(st.lists(st.none() | st.booleans(), max_size=40))
def test_truth_values_are_the_array_pyarrow_makes(values: list[bool | None]) -> None:
    _require_equal(truth_column(values), pa.array(values, type=pa.bool_()))


def test_a_number_that_no_column_holds_is_refused() -> None:
    with pytest.raises(OverflowError):
        integer_column([2**63])


def test_writing_parquet_does_not_load_pandas(tmp_path: Path) -> None:
    command = [sys.executable, "-c", PROGRAM, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=Path(__file__).parents[2])
    assert done.stdout == "False\n"


def _require_equal(made: pa.Array, expected: pa.Array) -> None:
    made.validate(full=True)
    assert made.equals(expected) and made.null_count == expected.null_count
