"""The environment of the processes that a node starts: without keys, and with this installation's modules."""

from __future__ import annotations

import os
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[2]
_SECRET = ("KEY", "TOKEN", "SECRET", "PASSWORD", "DSN")


def child_environment(*, kept_prefix: str = "") -> dict[str, str]:
    """This process's environment without what may be a secret by its name; names with `kept_prefix` stay. A child gets
    its endpoints and its DSN over a pipe."""
    plain = {
        name: value
        for name, value in os.environ.items()
        if (kept_prefix and name.startswith(kept_prefix)) or not any(part in name.upper() for part in _SECRET)
    }
    path = os.pathsep.join([str(_ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    return {**plain, "PYTHONPATH": path}
