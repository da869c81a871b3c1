"""Whether another machine's worker is like one of this machine: then it does not matter where an episode runs. Pure."""

from __future__ import annotations

from harness.sandbox.port import SandboxLevel
from neurons.worker.protocol import Ready

_HASH_CHARACTERS = 12


def differences(found: Ready, wanted: Ready) -> str:
    """In what another machine's worker is unlike one of this machine, with both values; "" where it is alike."""
    told = []
    if found.release != wanted.release:
        told.append(f"release {found.release[:_HASH_CHARACTERS]}, here {wanted.release[:_HASH_CHARACTERS]}")
    if found.catalogue_sha256 != wanted.catalogue_sha256:
        own, home = found.catalogue_sha256[:_HASH_CHARACTERS], wanted.catalogue_sha256[:_HASH_CHARACTERS]
        told.append(f"index {own}, here {home}")
    if found.sandbox != wanted.sandbox:
        told.append(_jails(found.sandbox, wanted.sandbox))
    return "; ".join(told)


def _jails(found: SandboxLevel, wanted: SandboxLevel) -> str:
    """The first field in which two levels differ, with both values."""
    field = next(name for name in SandboxLevel.__struct_fields__ if getattr(found, name) != getattr(wanted, name))
    name = "jail" if field == "name" else f"jail's {field.replace('_', ' ')}"
    return f"{name} {_shown(getattr(found, field), field)}, here {_shown(getattr(wanted, field), field)}"


def _shown(value: object, field: str) -> str:
    if isinstance(value, tuple):
        return " + ".join(value) or "none"
    return str(value)[:_HASH_CHARACTERS] if field.endswith("_sha256") else str(value)
