"""The manifest on disk: canonical bytes, the sha256 of them beside it, and a hotkey's signature where one was given.

It is written last and atomically, so a folder with a manifest is complete; reading refuses bytes that are not
the canonical form of a manifest of a known version. The sha256 file shows a damaged manifest, the signature a false
one.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from arena.chain.port import Signer, Verifier
from arena.export.model import MANIFEST_DOMAIN, MANIFEST_VERSION, Manifest
from foundation.canonical import UNREADABLE_JSON, canonical_bytes, read_canonical
from foundation.durable_files import write_whole
from foundation.errors import ArenaError

MANIFEST, CHECKSUM, SIGNATURE = "manifest.json", "manifest.sha256", "manifest.sig"


def write_manifest(folder: Path, manifest: Manifest, signer: Signer | None = None) -> None:
    """Write the manifest and what goes with it, the manifest itself last."""
    content = canonical_bytes(manifest)
    digest = hashlib.sha256(content)
    write_whole(folder / CHECKSUM, _checksum_text(digest.hexdigest()))
    if signer:
        signature = signer.sign(MANIFEST_DOMAIN + digest.digest()).hex()
        write_whole(folder / SIGNATURE, f"{signer.hotkey} {signature}\n".encode())
    write_whole(folder / MANIFEST, content)


def read_manifest(folder: Path) -> Manifest:
    """The manifest of an export. Raises ArenaError V2074 when there is none or it is of no version known."""
    try:
        content = (folder / MANIFEST).read_bytes()
        manifest = read_canonical(content, Manifest)
    except (OSError, *UNREADABLE_JSON) as error:
        raise ArenaError("V2074", f"{folder / MANIFEST}: {error}") from error
    if manifest.version != MANIFEST_VERSION:
        detail = f"version {manifest.version}, this release reads version {MANIFEST_VERSION}; export again"
        raise ArenaError("V2074", f"{folder / MANIFEST}: {detail}")
    if canonical_bytes(manifest) != content:
        raise ArenaError("V2074", f"{folder / MANIFEST}: not in canonical form")
    return manifest


def signer_of(folder: Path, verify_signature: Verifier) -> str:
    """The hotkey that signed the manifest, "" for an unsigned one.

    Raises ArenaError V2074 when the checksum does not fit the manifest, or the signature does not.
    """
    digest = hashlib.sha256((folder / MANIFEST).read_bytes())
    try:
        if (folder / CHECKSUM).read_bytes() != _checksum_text(digest.hexdigest()):
            raise ArenaError("V2074", f"{CHECKSUM} is not that of the manifest")
    except OSError as error:
        raise ArenaError("V2074", f"{CHECKSUM}: {error}") from error
    if not (folder / SIGNATURE).exists():
        return ""
    try:
        text = (folder / SIGNATURE).read_text("ascii")
        hotkey, _, signature = text.removesuffix("\n").partition(" ")
        raw = bytes.fromhex(signature)
    except ValueError as error:
        raise ArenaError("V2074", f"{SIGNATURE}: {error}") from error
    if text != f"{hotkey} {raw.hex()}\n" or not verify_signature(hotkey, MANIFEST_DOMAIN + digest.digest(), raw):
        raise ArenaError("V2074", f"{SIGNATURE} is not a signature of this manifest")
    return hotkey


def _checksum_text(sha256: str) -> bytes:
    return f"{sha256}  {MANIFEST}\n".encode()
