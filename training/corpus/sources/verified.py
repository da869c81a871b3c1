"""Whether an export may be read at all: verified whole, once, and signed by the validator whose log it is.

An export that does not verify is never opened, whatever is asked for. One that nobody signed is opened only
with `trust_unsigned`, and its traces say that they are not verified. A finished verification leaves a seal, named by
the manifest's hash: the same manifest is not verified again, but each file is still hashed against it. Whoever can
write into the seals' folder can make a seal: it is the reader's own folder, never one that came with the export.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from pathlib import Path

import msgspec

from arena.chain.port import Verifier
from arena.export.agents import AGENTS, AgentRow
from arena.export.elsewhere import ExportFiles
from arena.export.model import Manifest
from arena.export.verify.verification import verify_export
from arena.export.writing.manifest import MANIFEST, read_manifest, signer_of
from arena.export.writing.shards import file_hash
from foundation.durable_files import write_whole
from foundation.errors import ArenaError
from foundation.executors.port import HERE, Executor
from foundation.progress import PhaseProgress

SEAL_VERSION = 1  # raised when verification finds more than it used to
_AGENT = msgspec.json.Decoder(AgentRow)


class Export(msgspec.Struct, frozen=True, kw_only=True):
    """An export that may be read. `signer` is "" where `trust_unsigned` waived the signature."""

    folder: str
    manifest: Manifest
    manifest_sha256: str
    signer: str
    location: str = ""  # where machines without the folder find its files; "": nowhere

    def files(self, *names: str) -> ExportFiles:
        """Those of these files that it has, to be read on any machine."""
        sha256s = {file.path: file.sha256 for file in self.manifest.files if file.path in names}
        return ExportFiles(self.folder, self.location, tuple(sorted(sha256s.items())))

    @property
    def is_verified(self) -> bool:
        """Whether the validator's own signature vouches for the whole of it."""
        return self.signer == self.manifest.log.validator

    @property
    def names(self) -> dict[str, str]:
        """The names of its agent versions by id, those it knows: the exporter's word. Raises ArenaError V2050."""
        try:
            rows = map(_AGENT.decode, (Path(self.folder) / AGENTS).read_bytes().splitlines())
            return {row.agent_version_id: row.name for row in rows if row.name}
        except FileNotFoundError:
            return {}  # an export of version 1 has none
        except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise ArenaError("V2050", f"{AGENTS}: {error}") from error


class _Seal(msgspec.Struct, frozen=True, kw_only=True):
    version: int
    manifest_sha256: str


def open_export(
    folder: Path,
    verify_signature: Verifier,
    *,
    validators: Collection[str] = (),
    trust_unsigned: bool = False,
    seals: Path | None = None,
    executor: Executor = HERE,
    progress: PhaseProgress | None = None,
    location: str = "",
) -> Export:
    """The export in `folder`, verified now or before. `validators`: whose logs are trusted, anybody's when empty.
    `location`: the object store it was brought from, "" for none.

    `seals` is a folder of finished verifications, None for none; `executor` is where verification looks at rows
    (`verify_export`), with a `verify_signature` that other processes can import. Raises ArenaError V2074 without a
    readable manifest, V2096 when its validator is not one of `validators` or did not sign it, V2095 when the export
    does not verify, V2052 when processes died.
    """
    manifest = read_manifest(folder)
    signer, validator = signer_of(folder, verify_signature), manifest.log.validator
    if validators and validator not in validators:
        raise ArenaError("V2096", f"{folder}: {validator} is not among the validators asked for")
    if signer != validator and not trust_unsigned:
        whose = f"signed by {signer}" if signer else "not signed"
        raise ArenaError("V2096", f"{folder}: {whose}; the log is that of {validator}")
    manifest_sha256 = hashlib.sha256((folder / MANIFEST).read_bytes()).hexdigest()
    if seals is not None and _is_sealed(seals, manifest_sha256):
        _check_files(folder, manifest)
    else:
        report = verify_export(folder, verify_signature, executor=executor, progress=progress)
        if not report.is_ok:
            first = report.wrong[0]
            raise ArenaError("V2095", f"{folder}: {first.place}: {first.detail} ({len(report.wrong)} in all)")
        if seals is not None:
            seal = _Seal(version=SEAL_VERSION, manifest_sha256=manifest_sha256)
            path = _seal_path(seals, manifest_sha256)
            path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(path, msgspec.json.encode(seal))
    return Export(
        folder=str(folder),
        manifest=manifest,
        manifest_sha256=manifest_sha256,
        signer=signer if signer == validator else "",
        location=location,
    )


def _seal_path(seals: Path, manifest_sha256: str) -> Path:
    return seals / f"{manifest_sha256}.json"


def _is_sealed(seals: Path, manifest_sha256: str) -> bool:
    try:
        seal = msgspec.json.decode(_seal_path(seals, manifest_sha256).read_bytes(), type=_Seal)
    except (OSError, msgspec.DecodeError):
        return False  # none, or one that was cut short: verified again
    return seal == _Seal(version=SEAL_VERSION, manifest_sha256=manifest_sha256)


def _check_files(folder: Path, manifest: Manifest) -> None:
    """Raises ArenaError V2095 when a file is not the one the manifest names."""
    for file in manifest.files:
        path = folder / file.path
        if not path.is_file() or file_hash(path) != (file.sha256, file.size_bytes):
            raise ArenaError("V2095", f"{folder}: {file.path}: its bytes are not those the manifest names")
