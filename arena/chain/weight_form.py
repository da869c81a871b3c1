"""The form a weight vector must have before any chain sees it: one rule for the real chain and its twin.

The SDK rescales a vector so that its largest entry becomes 65535; only a vector that already has that maximum reaches
the chain bit for bit. Vectors of any other form are refused here, not repaired.
"""

from __future__ import annotations

U16_MAX = 65_535


def weights_refusal(uids: tuple[int, ...], weights_u16: tuple[int, ...]) -> str | None:
    """Why the vector can't be set, or None when it is well formed."""
    if len(uids) != len(weights_u16):
        return f"{len(uids)} uids for {len(weights_u16)} weights"
    if not uids:
        return "the vector is empty"
    if len(set(uids)) != len(uids):
        return "a uid stands twice"
    if any(not 0 <= uid <= U16_MAX for uid in uids):
        return "a uid is outside 0..65535"
    if any(not 0 <= weight <= U16_MAX for weight in weights_u16):
        return "a weight is outside 0..65535"
    if max(weights_u16) != U16_MAX:
        return "the largest weight is not 65535"
    return None


def hash_refusal(sha256: str) -> str | None:
    """Why the text is no sha256 to commit, or None when it is 64 lower-case hex digits."""
    if len(sha256) == 64 and set(sha256) <= set("0123456789abcdef"):
        return None
    return "a commitment is 64 lower-case hex digits"
