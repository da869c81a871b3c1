"""Newer metadata, told in the version that the SDK reads."""

from __future__ import annotations

import pytest
from bittensor._transport.codec import RuntimeCodec

from tests.arena.metadata_v16 import as_version_15
from tests.arena.runtimes import NEWER, metadata_of


def codec_of(metadata: bytes) -> RuntimeCodec:
    return RuntimeCodec(metadata, spec_version=424, transaction_version=1, spec_name="node-subtensor", ss58_format=42)


def original() -> bytes:
    metadata_of(424)  # skips where it is not here
    return next(path for path in NEWER.places if path.is_file()).read_bytes()


def test_the_sdk_does_not_read_version_16_itself() -> None:
    with pytest.raises(ValueError, match="unsupported metadata version V16"):
        codec_of(original())


def test_everything_that_version_15_has_a_place_for_is_there() -> None:
    read = codec_of(metadata_of(424)).metadata_ir()
    named = [pallet.name for pallet in read.pallets]
    assert len(named) == 28 and {"System", "SubtensorModule", "Commitments", "Drand", "LimitOrders"} <= set(named)
    module = next(pallet for pallet in read.pallets if pallet.name == "SubtensorModule")
    assert module.index == 7
    assert {"HotKeyNotRegisteredInSubNet", "InvalidRevealRound"} <= {error.name for error in module.errors}


@pytest.mark.parametrize("cut", [4, 40, 300_000, -1])
def test_what_is_no_whole_version_16_is_refused(cut: int) -> None:
    with pytest.raises((AssertionError, IndexError)):
        as_version_15(original()[:cut])
    with pytest.raises(AssertionError):
        as_version_15(original() + b"\0")
