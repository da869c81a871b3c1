"""The allow-list of packages in the guest root: which files of an installed distribution a guest may see.

A package is taken only in exactly the named version, file by file with the hash of its wheel's RECORD checked,
and only when it is pure Python; what an installer adds is left out, so the same wheel gives the same files on every
host. Dependencies are not followed: the list is the policy's and names every package.
"""

from __future__ import annotations

import base64
import hashlib
import importlib.metadata
import re
import sys
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

import msgspec

from foundation.errors import ArenaError

_REQUIREMENT = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*)==([A-Za-z0-9.+!_]+)")
_WRITTEN_BY_INSTALLERS = {"RECORD", "INSTALLER", "REQUESTED", "direct_url.json"}
_COMPILED = (".so", ".pyd", ".dll", ".dylib")


class PackageFile(msgspec.Struct, frozen=True, kw_only=True):
    """One file: `name` relative to the library directory, `source` on the host, `sha256` in hexadecimal."""

    name: str
    source: Path
    sha256: str


def collect_packages(requirements: Sequence[str], directories: Sequence[Path] | None = None) -> tuple[PackageFile, ...]:
    """The files of all `requirements` (`name==version`), ordered by name.

    Installed distributions are looked for in `directories` (None: where this interpreter imports from). Raises
    ArenaError V2060 for a requirement that is not exact, not installed in that version, compiled, or altered since it
    was installed.
    """
    files: dict[str, PackageFile] = {}
    for requirement in requirements:
        match = _REQUIREMENT.fullmatch(requirement)
        if not match:
            raise ArenaError("V2060", f"guest package {requirement!r}: write name==version")
        is_empty = True
        for entry in _find(match[1], match[2], directories).files or ():
            if entry.hash is None or entry.name in _WRITTEN_BY_INSTALLERS or entry.suffix == ".pyc":
                continue
            if ".." in PurePosixPath(entry).parts:
                continue  # scripts and data files, outside the library
            if entry.name.endswith(_COMPILED):
                reason = f"guest package {requirement}: {entry} is compiled; only pure Python is allowed"
                raise ArenaError("V2060", reason)
            name = str(PurePosixPath(entry))
            files[name] = _check(requirement, name, Path(str(entry.locate())), entry.hash)
            is_empty = False
        if is_empty:
            reason = f"guest package {requirement} lists no files; an editable install cannot be used"
            raise ArenaError("V2060", reason)
    return tuple(files[name] for name in sorted(files))


def _find(name: str, version: str, directories: Sequence[Path] | None) -> importlib.metadata.Distribution:
    path = sys.path if directories is None else [str(directory) for directory in directories]
    found = list(importlib.metadata.distributions(name=name, path=path))
    for distribution in found:
        if distribution.version == version:
            return distribution
    installed = ", ".join(distribution.version for distribution in found) or "none"
    raise ArenaError("V2060", f"guest package {name}=={version} is not installed here (found: {installed})")


def _check(requirement: str, name: str, source: Path, recorded: importlib.metadata.FileHash) -> PackageFile:
    try:
        digest = hashlib.new(recorded.mode, source.read_bytes())
        sha256 = hashlib.sha256(source.read_bytes()).hexdigest()
    except (OSError, ValueError) as error:
        raise ArenaError("V2060", f"guest package {requirement}: {name} cannot be read: {error}") from error
    if base64.urlsafe_b64encode(digest.digest()).rstrip(b"=").decode() != recorded.value:
        raise ArenaError("V2060", f"guest package {requirement}: {name} differs from its wheel's RECORD")
    return PackageFile(name=name, source=source, sha256=sha256)
