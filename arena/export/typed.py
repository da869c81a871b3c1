"""Typed records and bodies held against the canonical form, at the cost of encoding them once.

Promise: the answer is that of `arena.records.body.is_canonical`, which looks for floats and keys that are not ASCII in
whatever it is given. The types of records and bodies hold neither, so a value that gives back its own bytes needs no
such look, and only bytes with more in them than their type names are left to it.
"""

from __future__ import annotations

import msgspec
import orjson

from arena.records.body import is_canonical
from arena.records.model import RecordContent
from harness.trace import EvaluationBody

_OPTIONS = orjson.OPT_SORT_KEYS | orjson.OPT_STRICT_INTEGER  # those of `foundation.canonical`


def is_canonical_as_typed(content: bytes, value: RecordContent | EvaluationBody) -> bool:
    """Whether bytes that were decoded to `value` are canonical. Raises nothing."""
    try:
        if orjson.dumps(msgspec.to_builtins(value), option=_OPTIONS) == content:
            return True
    except TypeError:  # a number beyond 2^53, or text that is no Unicode
        return False
    return is_canonical(content, value)
