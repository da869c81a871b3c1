"""Own kernel uids for guests: one per running jail, leased on this host, no passwd entry needed.

A uid is a number nobody else uses, so that a guest that broke out of its namespaces would still own nothing. Leases are
file locks: they end with the process that holds them, so nothing is left behind by a kill. Only root can take one.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from foundation.errors import ArenaError

# Unassigned in systemd's table of uid ranges, and below 65536, so that it exists in small containers too.
FIRST_UID = 60_600
LAST_UID = 61_183
_LOCKS = Path("/run/agent-arena/uids")


@contextmanager
def lease_uid(locks: Path = _LOCKS) -> Iterator[int]:
    """A uid that no other jail on this host has while the context lasts. Raises ArenaError V2002 when all are taken."""
    try:
        locks.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise ArenaError("V2002", f"uid leases cannot be kept in {locks}: {error}") from error
    for uid in range(FIRST_UID, LAST_UID + 1):
        descriptor = os.open(locks / str(uid), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            continue
        try:
            yield uid
        finally:
            os.close(descriptor)
        return
    raise ArenaError("V2002", f"all uids from {FIRST_UID} to {LAST_UID} are in use")
