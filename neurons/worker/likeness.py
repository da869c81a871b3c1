"""Whether another machine's worker is like one of this machine: then it does not matter where an episode runs. Pure."""

from __future__ import annotations

from harness.sandbox.port import SandboxLevel
from neurons.worker.protocol import Ready

_SHOWN = 12  # characters of a hash


def differences(found: Ready, wanted: Ready) -> str:
    """In what another machine's worker is unlike one of this machine, with both values; "" where it is alike."""
    told = []
    if found.release != wanted.release:
        told.append(f"release {found.release[:_SHOWN]}, here {wanted.release[:_SHOWN]}")
    if found.catalogue_sha256 != wanted.catalogue_sha256:
        told.append(f"index {found.catalogue_sha256[:_SHOWN]}, here {wanted.catalogue_sha256[:_SHOWN]}")
    own, home = found.sandbox, wanted.sandbox
    unlike = [field for field in SandboxLevel.__struct_fields__ if getattr(own, field) != getattr(home, field)]
    for field in unlike[:1]:  # what else differs follows from it
        name = "jail" if field == "name" else f"jail's {field.replace('_', ' ')}"
        told.append(f"{name} {_text(getattr(own, field), field)}, here {_text(getattr(home, field), field)}")
    return "; ".join(told)


def _text(value: object, field: str) -> str:
    if isinstance(value, tuple):
        return " + ".join(value) or "none"
    return str(value)[:_SHOWN] if field.endswith("_sha256") else str(value)
