"""A calibration's result as a signed file, and whether it is the one that a rubric pins.

What is hashed, signed and stored is the same byte string. A policy pins it by `Rubric.calibration_sha256`: "this panel,
with this prompt, was measured, and this is its kappa". A pin names results of the rubric as it is without the pin.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable

import msgspec

from foundation.canonical import canonical_bytes
from foundation.errors import ArenaError
from judge.calibration.measurement import Calibration
from judge.rubric import Rubric

DOMAIN = b"agent-arena/judge-calibration/1\n"
Verify = Callable[[str, bytes, bytes], bool]


class SignedCalibration(msgspec.Struct, frozen=True, kw_only=True):
    """`result` is canonical JSON of a `Calibration`; `signature` is hex over the domain tag and these bytes."""

    result: str
    hotkey: str
    signature: str

    @property
    def sha256(self) -> str:
        """What a policy pins."""
        return hashlib.sha256(self.result.encode()).hexdigest()


def sign_calibration(found: Calibration, hotkey: str, sign: Callable[[bytes], bytes]) -> SignedCalibration:
    """The signed result."""
    result = canonical_bytes(found)
    return SignedCalibration(result=result.decode(), hotkey=hotkey, signature=sign(DOMAIN + result).hex())


def check_calibration(signed: SignedCalibration, rubric: Rubric, verify: Verify) -> Calibration:
    """The result, once its signature holds and it was measured with the rubric's panel and prompt; where the rubric
    pins a result, it is that one.

    Raises ArenaError V2050 naming what does not hold.
    """
    try:
        signature = bytes.fromhex(signed.signature)
        found = msgspec.json.decode(signed.result, type=Calibration)
    except (ValueError, msgspec.DecodeError) as error:
        raise ArenaError("V2050", f"calibration cannot be read: {error}") from error
    if not verify(signed.hotkey, DOMAIN + signed.result.encode(), signature):
        raise ArenaError("V2050", f"the signature of the calibration is not {signed.hotkey}'s")
    pinned = rubric.calibration_sha256
    bare = msgspec.structs.replace(rubric, calibration_sha256=msgspec.UNSET)
    if msgspec.structs.replace(found.rubric, calibration_sha256=msgspec.UNSET) != bare:
        raise ArenaError("V2050", "the calibration was measured with another panel, rubric or prompt")
    if pinned is not msgspec.UNSET and pinned != signed.sha256:
        raise ArenaError("V2050", f"the policy pins calibration {pinned[:12]}, this is {signed.sha256[:12]}")
    return found
