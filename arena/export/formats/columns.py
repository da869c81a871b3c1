"""Columns of plain values as Arrow arrays, put together from their buffers.

Promise: the arrays are those that `pyarrow.array` makes of the same values. That function looks first whether it was
given something of pandas, and imports it where it is installed: a third of a second and forty megabytes in each process
that writes a view.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import pyarrow as pa


def text_column(values: Sequence[str | None]) -> Any:
    """A `string` array. Raises UnicodeEncodeError for text that has no UTF-8."""
    return _of_bytes([b"" if value is None else value.encode() for value in values], _present(values))


def utf8_column(values: Sequence[bytes]) -> Any:
    """A `string` array of text that is UTF-8 already."""
    return _of_bytes(values, None)


def integer_column(values: Sequence[int | None]) -> Any:
    """An `int64` array. Raises OverflowError for a number that is none."""
    numbers = array("q", [value or 0 for value in values])
    return pa.Array.from_buffers(pa.int64(), len(values), [_present(values), pa.py_buffer(numbers)])


def truth_column(values: Sequence[bool | None]) -> Any:
    """A `bool` array."""
    return pa.Array.from_buffers(pa.bool_(), len(values), [_present(values), _bits(values)])


def _of_bytes(parts: Sequence[bytes], present: Any) -> Any:
    ends = array("i", accumulate(map(len, parts), initial=0))
    buffers = [present, pa.py_buffer(ends), pa.py_buffer(b"".join(parts))]
    return pa.Array.from_buffers(pa.string(), len(parts), buffers)


def _present(values: Sequence[object]) -> Any:
    """The validity bitmap, None where every value is there."""
    return _bits([value is not None for value in values]) if None in values else None


def _bits(values: Sequence[bool | None]) -> Any:
    """A bitmap, the first value in the lowest bit."""
    digits = "".join("1" if value else "0" for value in reversed(values))
    return pa.py_buffer(int(digits or "0", 2).to_bytes((len(values) + 7) // 8, "little"))
