"""The runtime whose metadata the fake node serves: somebody else's data, looked for and never kept here."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path

import pytest
from bittensor._transport.codec import strip_option_opaque_metadata

SPEC_VERSION = 343
_PLACE = Path(__file__).parents[3] / "shared" / "data" / "chain" / "subtensor_v15_spec343.hex"
_SHA256 = "d8a6f9e7c73c5c0ecdf2475425543c804fc05fea68c41468d2b59d7d11b8196f"


@cache
def _read() -> bytes | None:
    if not _PLACE.is_file():
        return None
    data = _PLACE.read_bytes()
    assert hashlib.sha256(data).hexdigest() == _SHA256, f"{_PLACE} is another runtime's"
    return strip_option_opaque_metadata(bytes.fromhex(data.decode().strip().strip('"').removeprefix("0x")))


def read_metadata() -> bytes:
    """The metadata in version 15; skips the test where it is not here."""
    found = _read()
    if found is None:
        pytest.skip(f"no metadata of spec {SPEC_VERSION} at {_PLACE}")
    return found
