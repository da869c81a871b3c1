"""Our `Signer` in the shape the SDK signs with: extrinsics and signed requests alike. It holds no key of its own."""

from __future__ import annotations

from arena.chain.keys import canonical_hotkey, public_key
from arena.chain.port import Signer

SR25519 = 1  # the SDK's number for the only kind of key hotkeys have here


class SdkSigner:
    """Signs with `signer`; named by its address under prefix 42."""

    def __init__(self, signer: Signer) -> None:
        self.ss58_address = canonical_hotkey(signer.hotkey) or signer.hotkey
        self.public_key = public_key(signer.hotkey) or b""
        self.crypto_type = SR25519
        self._signer = signer

    def sign(self, payload: bytes) -> bytes:
        """64 bytes over `payload`."""
        return self._signer.sign(payload)
