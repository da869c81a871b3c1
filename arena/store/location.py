"""Where a node's store is: the default state folder, and the small file in it that names the store.

`store.json` (mode 0600, it holds a password) is written by the process that opened a state folder's store, so that the
commands beside it (`arena records`) read the same one without a DSN. An embedded server is that of the
folder it is read from: one that was moved or copied is never led back to where it was written.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Literal
from urllib.parse import SplitResult, quote, urlsplit

import msgspec

from foundation.canonical import canonical_bytes
from foundation.durable_files import write_whole
from foundation.errors import ArenaError

FILE_NAME = "store.json"
SOCKET_NAME = ".s.PGSQL.5432"
SOCKET_PATH_MAX = 100  # the kernel's limit is 107 bytes
STATE_DIR_VARIABLE = "ARENA_STATE_DIR"


class StoreLocation(msgspec.Struct, frozen=True, kw_only=True):
    """The store of a state folder. `embedded`: its server lives in the folder and may have to be started first.

    `objects`: the URL of the object store its bodies are written to; "": they are in Postgres. `is_restored`: from a
    backup, after which its validator may have signed more.
    """

    kind: Literal["embedded", "external"]
    validator: str
    dsn: str
    objects: str = ""
    is_restored: bool = False


def default_state_dir() -> Path:
    """ARENA_STATE_DIR, else /var/lib/agent-arena as root or where this user's node is, else ~/.local/state/agent-arena.
    Makes nothing."""
    given = os.environ.get(STATE_DIR_VARIABLE)
    if given:
        return Path(given).expanduser()
    system = Path("/var/lib/agent-arena")
    if os.geteuid() == 0 or os.access(system / FILE_NAME, os.R_OK):
        return system
    return Path("~/.local/state/agent-arena").expanduser()


def write_location(state_dir: Path, location: StoreLocation) -> None:
    """Replace `store.json` in one step, readable by this user only."""
    state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_whole(state_dir / FILE_NAME, canonical_bytes(location), mode=0o600)


def read_location(state_dir: Path) -> StoreLocation | None:
    """What `store.json` says, or None where there is none. Raises ArenaError V2021 when it can't be read."""
    path = state_dir / FILE_NAME
    try:
        location = msgspec.json.decode(path.read_bytes(), type=StoreLocation)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, msgspec.DecodeError) as error:
        raise ArenaError("V2021", f"{path}: {error}") from error
    if location.kind == "external":
        return location
    server = location.dsn.partition("?")[0]
    return msgspec.structs.replace(location, dsn=f"{server}?host={quote(str(sockets_of(state_dir)), safe='/')}")


def read_dsn(dsn: str) -> SplitResult:
    """A `postgresql://` DSN, taken apart. Raises ArenaError V2030 for one that can't be read."""
    try:
        url = urlsplit(dsn)
        is_read = url.scheme in ("postgresql", "postgres") and url.port != 0
    except ValueError as error:
        raise ArenaError("V2030", f"the DSN is not a postgresql:// URL: {error}") from error
    if not is_read:
        raise ArenaError("V2030", "the DSN is not a postgresql:// URL")
    return url


def sockets_of(state_dir: Path) -> Path:
    """The folder of the embedded server's socket: in the state folder, unless its path is too long for the kernel."""
    home = (state_dir.resolve() / "postgres").resolve()
    sockets = home / "socket"
    if len(os.fsencode(sockets / SOCKET_NAME)) > SOCKET_PATH_MAX:
        return Path("/tmp") / f"arena-pg-{short_hash(home)}"
    return sockets


def short_hash(path: Path) -> str:
    """What tells the folders of one server from those of another, where they lie side by side."""
    return hashlib.sha256(os.fsencode(path)).hexdigest()[:12]
