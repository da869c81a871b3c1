"""Weights sealed to quicknet's first round: real encryption, opened by a signature that drand published.

A seal made now opens with a signature of the future, which nobody has; this one stands in for it. Only its round is
another: the payload is the chain's, and the SDK is asked for its own seal too, whose length this one must have.
"""

from __future__ import annotations

from typing import Any

import bittensor_core

from tests.arena.test_chain_beacon import ROUND_1

sdk_seal = bittensor_core.get_encrypted_commit_v2


def payload_of(asked: dict[str, Any]) -> bytes:
    """The chain's `WeightsTlockPayload` in SCALE, of what the SDK is asked to seal; fewer than 64 uids."""
    rows = [
        bytes([len(row) << 2]) + b"".join(value.to_bytes(2, "little") for value in row)
        for row in (asked["uids"], asked["weights"])
    ]
    author = bytes([len(asked["hotkey"]) << 2]) + asked["hotkey"]
    return author + b"".join(rows) + int(asked["version_key"]).to_bytes(8, "little")


def seal_to_first_round(**asked: Any) -> tuple[bytes, int]:
    """In place of the SDK's `get_encrypted_commit_v2`."""
    its_own, _ = sdk_seal(**asked)
    commit, at = sealed_to_first_round(payload_of(asked))
    assert len(commit) == len(its_own), "the SDK's own seal has another form"
    return commit, at


def sealed_to_first_round(payload: bytes) -> tuple[bytes, int]:
    """(what a chain is sent, the round that opens it)."""
    sealed, at = bittensor_core.encrypt_at_round(payload, ROUND_1.round)
    return bytes(bittensor_core.inner_ciphertext(sealed)), int(at)
