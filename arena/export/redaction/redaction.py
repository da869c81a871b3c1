"""Credentials on their way out: found in signed bytes, removed from the trajectories that views are written from.

Promise: what `cleaned` returns holds nothing that `holds_secret` would find; where removal fails there is no
trajectory. Signed bytes are never changed: a record with a credential is withheld from the log as a stub.
"""

from __future__ import annotations

import msgspec

from arena.export.model import Trajectory
from arena.export.redaction.credentials import find_secrets, scrub


def holds_secret(content: bytes) -> bool:
    """Whether canonical bytes hold what looks like a credential."""
    return bool(find_secrets(content))


def cleaned(trajectory: Trajectory) -> Trajectory | None:
    """The trajectory with every credential replaced, or None when it can't be."""
    plain = _scrubbed(msgspec.to_builtins(trajectory))
    try:
        clean = msgspec.convert(plain, Trajectory)
    except msgspec.ValidationError:  # a credential stood where only certain words may
        return None
    return None if holds_secret(msgspec.json.encode(clean)) else clean


def _scrubbed(value: object) -> object:
    if isinstance(value, str):
        return scrub(value) if find_secrets(value) else value
    if isinstance(value, dict):
        return {key: _scrubbed(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_scrubbed(item) for item in value]
    return value
