"""PostgreSQL's own pg_dump and pg_restore on one database: the embedded server's, or those of a folder.

No password is in a command line or a file; archives go through handles that this process opened, so that the
tools may run as the server's OS user, who can't reach the backup. A tool that fails is an error with what it said.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import IO

import msgspec

from arena.store.embedded.binaries import ServerUser, binaries
from arena.store.postgres.connect import libpq_url
from foundation.errors import ArenaError

SCHEMA = "arena"
COMPRESSION = "gzip:1"  # every build has it; it takes back what writing bytes as hexadecimal doubles
LOCK_WAIT = "60s"
SAID_MAX = 600


class PgTools(msgspec.Struct, frozen=True, kw_only=True):
    """The tools of one folder, run as one OS user."""

    folder: Path
    user: ServerUser

    def dump(self, dsn: str, snapshot: str, archive: IO[bytes]) -> None:
        """Write the schema, as an exported snapshot sees it, to a custom-format archive. Raises ArenaError V2056."""
        options = ["--format=custom", f"--compress={COMPRESSION}", f"--schema={SCHEMA}", f"--snapshot={snapshot}"]
        self._run("pg_dump", [*options, f"--lock-wait-timeout={LOCK_WAIT}"], dsn, stdout=archive)

    def restore(self, dsn: str, owner_role: str, archive: IO[bytes]) -> None:
        """Make everything of an archive in the (existing, empty) schema, whole or not at all, owned by `owner_role`.

        Raises ArenaError V2056.
        """
        options = [f"--schema={SCHEMA}", "--no-owner", f"--role={owner_role}", "--single-transaction"]
        self._run("pg_restore", [*options, "--exit-on-error"], dsn, stdin=archive)

    def _run(self, tool: str, options: list[str], dsn: str, **handles: IO[bytes]) -> None:
        url = libpq_url(dsn)
        environment = {"PATH": os.defpath, "LC_ALL": "C", "TZ": "UTC", "PGAPPNAME": "agent-arena"}
        if url.password:
            environment["PGPASSWORD"] = str(url.password)
        if not self.user.is_dropped:
            environment["HOME"] = os.environ.get("HOME", "/")  # where libpq looks for client certificates
        address = url._replace(password=None).render_as_string()
        done = subprocess.run(
            [str(self.folder / tool), *options, "--no-password", f"--dbname={address}"],
            stdin=handles.get("stdin", subprocess.DEVNULL),
            stdout=handles.get("stdout"),
            stderr=subprocess.PIPE,
            env=environment,
            cwd="/",
            check=False,
            user=self.user.uid if self.user.is_dropped else None,
            group=self.user.gid if self.user.is_dropped else None,
            extra_groups=[] if self.user.is_dropped else None,
        )
        if done.returncode != 0:
            said = done.stderr.decode(errors="replace").strip()[-SAID_MAX:]
            raise ArenaError("V2056", f"{tool} ended with status {done.returncode}: {said}")


def own_tools(folder: Path | None) -> PgTools:
    """The tools for a server elsewhere, run as this process's own user: of a folder, or (None) of the embedded
    server's package, whose build speaks no TLS. Raises ArenaError V2020 without the package, V2027 without the tools.
    """
    user = ServerUser(uid=os.geteuid(), gid=os.getegid(), name="", is_dropped=False)
    folder = folder.absolute() if folder else binaries(Path("/"), user)
    for tool in ("pg_dump", "pg_restore"):
        if not (folder / tool).is_file():
            raise ArenaError("V2027", f"there is no {tool} in {folder}")
    return PgTools(folder=folder, user=user)
