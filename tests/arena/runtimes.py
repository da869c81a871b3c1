"""The runtimes whose metadata the fake node can serve: two, a year of the chain's life apart.

They are somebody else's data: looked for, never kept here. Spec 424's, of version 16, is what a PAPI project
(github.com/0xKheops/taohop, `.papi/metadata/bittensor.scale`, commit 028da9b1, MIT) fetched from the main network in
July 2026; put it where `NEWER` says.
"""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest
from bittensor._transport.codec import strip_option_opaque_metadata

from tests.arena.metadata_v16 import as_version_15

_ROOT = Path(__file__).parents[2]
_SHARED = _ROOT.parent / "shared" / "data" / "chain"
# of spec 424: what its dispatch extensions refuse before the call runs, and the number the pool says then
_GUARDS = {
    "NotEnoughStakeToSetWeights": 1,
    "HotKeyNotRegisteredInNetwork": 10,
    "InvalidIpAddress": 11,
    "ServingRateLimitExceeded": 12,
    "InvalidRevealRound": 15,
}


class Runtime(NamedTuple):
    """A runtime's version, where its metadata may lie, and how it refuses."""

    spec_version: int
    places: tuple[Path, ...]
    sha256: str
    guards: dict[str, int]


OLDER = Runtime(
    343,
    (_SHARED / "subtensor_v15_spec343.hex",),
    "d8a6f9e7c73c5c0ecdf2475425543c804fc05fea68c41468d2b59d7d11b8196f",
    {},
)
NEWER = Runtime(
    424,
    tuple(folder / "subtensor_v16_spec424.scale" for folder in (_SHARED, _ROOT / "build" / "chain")),
    "66ee6af3ca885bb752f3e21ba1722e07d6aff7f242abd3e7abb8ac4f2774fb77",
    _GUARDS,
)
RUNTIMES = {runtime.spec_version: runtime for runtime in (OLDER, NEWER)}


@cache
def _metadata_of(spec_version: int) -> bytes | None:
    runtime = RUNTIMES[spec_version]
    for path in runtime.places:
        if not path.is_file():
            continue
        data = path.read_bytes()
        assert hashlib.sha256(data).hexdigest() == runtime.sha256, f"{path} is another runtime's"
        if path.suffix == ".scale":
            return as_version_15(data)
        return strip_option_opaque_metadata(bytes.fromhex(data.decode().strip().strip('"').removeprefix("0x")))
    return None


def metadata_of(spec_version: int) -> bytes:
    """A runtime's metadata in version 15; skips the test where it is not here."""
    found = _metadata_of(spec_version)
    if found is None:
        places = " or ".join(str(path.relative_to(_ROOT.parent)) for path in RUNTIMES[spec_version].places)
        pytest.skip(f"no metadata of spec {spec_version} at {places}")
    return found
