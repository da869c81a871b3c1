"""Suite signatures: the operator's key under a suite's manifest.

Promise: a signature covers a domain tag and the manifest's canonical bytes, so it holds for one name, version,
catalogue recipe, problem file and title release, and for nothing else; `check_suite` raises P4018 unless the key is
the one expected. The suites that come with the code are signed with the **well-known development key** `//Owner`,
whose secret everybody can derive: that proves which files belong together, not who made them. An operator of a real
network signs suites of its own.
"""

from __future__ import annotations

import msgspec

from arena.chain.port import Signer, Verifier
from problems.errors import ArenaError
from problems.shipped_suites import ShippedSuite, SuiteManifest, load_shipped, manifest_bytes, shipped_bytes

_DOMAIN = b"agent-arena/suite/1\n"
DEVELOPMENT_KEY_URI = "//Owner"  # the local subnet's owner
DEVELOPMENT_HOTKEY = "5FTyuyEQQZs8tCcPTUFqotkm2SYfDnpefn9FitRgmTHnFDBD"  # its address; a test derives it


class SuiteSignature(msgspec.Struct, frozen=True, kw_only=True):
    """Who signed a manifest. `signature` is 64 bytes, hex; randomised, so never an identity."""

    suite: str
    hotkey: str
    signature: str


def sign_suite(manifest: SuiteManifest, signer: Signer) -> SuiteSignature:
    """The signer's signature under a manifest."""
    return SuiteSignature(suite=manifest.name, hotkey=signer.hotkey, signature=signer.sign(_message(manifest)).hex())


def check_suite(manifest: SuiteManifest, signature: SuiteSignature, verify: Verifier, operator: str) -> None:
    """Raises ArenaError P4018 unless `operator` (ss58) signed exactly this manifest."""
    if signature.hotkey != operator:
        raise ArenaError("P4018", f"{manifest.name} is signed by {signature.hotkey}, not by {operator}")
    try:
        content = bytes.fromhex(signature.signature)
    except ValueError:
        content = b""
    if not verify(operator, _message(manifest), content):
        raise ArenaError("P4018", f"{manifest.name}: the signature of {operator} does not hold")


def open_shipped(name: str, verify: Verifier, operator: str = DEVELOPMENT_HOTKEY) -> ShippedSuite:
    """A shipped suite whose files match its manifest and whose manifest the operator signed.

    Raises ArenaError P4018 otherwise. The default operator is the development key.
    """
    suite = load_shipped(name)
    check_suite(suite.manifest, decode_signature(shipped_bytes(f"{name}.signature.json")), verify, operator)
    return suite


def decode_signature(content: bytes) -> SuiteSignature:
    """A signature from its JSON. Raises ArenaError P4018 when it has another shape."""
    try:
        return msgspec.json.decode(content, type=SuiteSignature)
    except (msgspec.MsgspecError, UnicodeError) as error:
        raise ArenaError("P4018", str(error)) from error


def _message(manifest: SuiteManifest) -> bytes:
    return _DOMAIN + manifest_bytes(manifest)
