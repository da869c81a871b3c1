"""The guest root: one directory with everything a guest can see, built once and named by its content.

It holds an interpreter, its standard library, the shared objects these need, the runner, the SDK, and of packages only
those that the policy lists (beside the standard library, which they cannot shadow); no shell, no configuration of the
host. The guest's uid must be able to enter every path, which it cannot in a home of mode 0700. `content_sha256` covers
every file except bytecode caches, so two hosts with the same Python build have the same hash, and it is in every
record. Building is atomic: a directory under its final name is complete. All files are readable by any uid.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import importlib.metadata
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

import msgspec

from foundation.durable_files import move_into_place
from foundation.errors import ArenaError

PYTHON_HOME = "/opt/py"
RUNNER = "/arena/runner.py"
_GUEST = Path(__file__).parent / "guest"  # our own files that go into it
_LAYOUT_VERSION = 1
_MOUNT_POINTS = ("proc", "dev", "tmp")
_LEFT_OUT = {
    "site-packages",
    "dist-packages",
    "test",
    "tests",
    "idlelib",
    "tkinter",
    "turtledemo",
    "ensurepip",
    "lib2to3",
}
_LOADERS = {"x86_64": "lib64/ld-linux-x86-64.so.2", "aarch64": "lib/ld-linux-aarch64.so.1"}
_SYSTEM_DIRECTORIES = ("/lib/", "/lib64/", "/usr/lib/", "/usr/lib64/")

# Run by the interpreter that is to be copied: where it lives, and every shared object that it and its extension
# modules map. Asking the live process needs no ldd, no ELF reader and no guess about search paths.
_SURVEY = """
import glob, importlib, json, os, platform, sys, sysconfig
stdlib = sysconfig.get_path("stdlib")
# Where this interpreter was built for, DESTSHARED, need not be where it lives: some are unpacked elsewhere.
dynload = next((p for p in sys.path if os.path.basename(p) == "lib-dynload" and os.path.isdir(p)), None)
dynload = dynload or sysconfig.get_config_var("DESTSHARED") or os.path.join(stdlib, "lib-dynload")
for path in sorted(glob.glob(os.path.join(dynload, "*.so"))):
    name = os.path.basename(path).split(".")[0]
    if "test" in name or name in ("_tkinter", "readline"):
        continue
    try:
        importlib.import_module(name)
    except ImportError:
        pass
mapped = {line.split(None, 5)[5].strip() for line in open("/proc/self/maps") if line.count("/")}
print(json.dumps({
    "executable": os.path.realpath("/proc/self/exe"), "stdlib": stdlib, "dynload": dynload,
    "version": platform.python_version(), "machine": platform.machine(),
    "libraries": sorted(p for p in mapped if ".so" in os.path.basename(p) and not p.startswith(dynload)),
}))
"""


class GuestRoot(msgspec.Struct, frozen=True, kw_only=True):
    """A complete guest root. `path` is on the host; `content_sha256` identifies what is in it."""

    path: Path
    content_sha256: str
    python_version: str  # full version of the guest's interpreter

    @property
    def minor_version(self) -> str:
        """`3.11` of `3.11.7`: what a policy pins."""
        return ".".join(self.python_version.split(".")[:2])


class _Interpreter(msgspec.Struct, frozen=True, kw_only=True):
    executable: str
    stdlib: str
    dynload: str
    version: str
    machine: str
    libraries: tuple[str, ...]


def open_guest_root(
    state_dir: Path, interpreter: Path = Path(sys.executable), packages: Sequence[str] = ()
) -> GuestRoot:
    """The guest root for `interpreter` with `packages` (`name==version`), built under `state_dir/guest` when it is not
    there yet.

    Raises ArenaError V2060 when the interpreter cannot be surveyed, a package cannot be taken, or the directory cannot
    be written.
    """
    allowed = collect_packages(packages)
    directory = state_dir.absolute() / "guest"  # guests are started elsewhere
    pointer = directory / "by-source" / _fingerprint(interpreter, allowed)
    with contextlib.suppress(OSError, msgspec.DecodeError):
        sha256, version = msgspec.json.decode(pointer.read_bytes(), type=tuple[str, str])
        if (directory / sha256).is_dir():
            return GuestRoot(path=directory / sha256, content_sha256=sha256, python_version=version)
    try:
        directory.mkdir(parents=True, exist_ok=True)
        pointer.parent.mkdir(exist_ok=True)
        root = _build(directory, interpreter, allowed)
        with tempfile.NamedTemporaryFile(dir=pointer.parent, delete=False) as file:  # others may build the same now
            file.write(msgspec.json.encode((root.content_sha256, root.python_version)))
            os.fsync(file)
        move_into_place(Path(file.name), pointer)
    except OSError as error:
        raise ArenaError("V2060", f"the guest root cannot be built in {directory}: {error}") from error
    return root


def loader(machine: str) -> str:
    """Where every program for `machine` names its dynamic loader, without the leading slash; fixed by the platform's
    ABI. Raises ArenaError V2060 for a machine without a guest root."""
    if machine not in _LOADERS:
        raise ArenaError("V2060", f"no guest root for {machine}: x86_64 and aarch64 only")
    return _LOADERS[machine]


def library_directories(root: Path) -> tuple[Path, ...]:
    """Directories of the root's system libraries, for a guest that does not have the root as its `/`."""
    system = root / "usr"
    return tuple(sorted({path.parent for path in system.rglob("*.so*") if path.is_file()}))


def guest_environment(root: Path = Path("/")) -> dict[str, str]:
    """All variables a guest has. `root` is the guest root as the guest sees it."""
    home = str(root / PYTHON_HOME.lstrip("/"))
    return {
        "PATH": f"{home}/bin",
        "HOME": "/tmp",
        "TMPDIR": "/tmp",
        "LANG": "C.UTF-8",
        "LD_LIBRARY_PATH": f"{home}/lib",
        "MALLOC_ARENA_MAX": "2",  # the C library reserves 64 MiB of the address-space limit for each arena
        "PYTHONHOME": home,
        "PYTHONHASHSEED": "0",  # the order of sets is part of what an agent does: the same on every host
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONUTF8": "1",
    }


def guest_command(root: Path = Path("/")) -> list[str]:
    """How the runner is started. Not with -I, which would drop the variables above; -s -P keep user and script
    directories off the module path."""
    python = str(root / PYTHON_HOME.lstrip("/") / "bin" / "python3")
    return [python, "-s", "-P", str(root / RUNNER.lstrip("/"))]


def content_sha256(root: Path) -> str:
    """Identity of a guest root: relative path, kind and content of every entry, bytecode caches left out."""
    entries: list[Path] = []
    for directory, names, files in os.walk(root):
        links = [name for name in names if (Path(directory) / name).is_symlink()]
        names[:] = [name for name in names if name != "__pycache__" and name not in links]
        entries += (Path(directory) / name for name in (*files, *links))
    digest = hashlib.sha256()
    for path in sorted(entries):
        name = str(path.relative_to(root)).encode()
        if path.is_symlink():
            digest.update(b"L" + name + b"\0" + str(path.readlink()).encode() + b"\0")
        elif path.is_file():
            digest.update(b"F" + name + b"\0" + hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def _fingerprint(interpreter: Path, packages: tuple[PackageFile, ...]) -> str:
    """Cheap name of a build's inputs: the interpreter file, the system's loader (it and the C library are upgraded
    together, and only fit together), our own guest files and the packages."""
    real = interpreter.resolve()
    try:
        facts, system = real.stat(), Path("/", loader(platform.machine())).stat()
    except OSError as error:
        raise ArenaError("V2060", f"no Python interpreter at {interpreter}: {error}") from error
    digest = hashlib.sha256(f"{_LAYOUT_VERSION}\0{interpreter}\0{real}\0{facts.st_size}\0{facts.st_mtime_ns}".encode())
    digest.update(f"\0{system.st_size}\0{system.st_mtime_ns}".encode())
    for path in _guest_files():
        digest.update(str(path.relative_to(_GUEST)).encode() + b"\0" + path.read_bytes())
    for file in packages:
        digest.update(f"{file.name}\0{file.sha256}\0".encode())
    return digest.hexdigest()[:32]


def _guest_files() -> tuple[Path, ...]:
    return (_GUEST / "runner.py", *sorted((_GUEST / "arena_sdk").glob("*.py")), *sorted((_GUEST / "sn15").glob("*.py")))


def _build(directory: Path, interpreter: Path, packages: tuple[PackageFile, ...]) -> GuestRoot:
    command = [str(interpreter), "-I", "-S", "-c", _SURVEY]
    try:
        done = subprocess.run(command, capture_output=True, timeout=60, check=True, env={})
        python = msgspec.json.decode(done.stdout, type=_Interpreter)
    except (OSError, subprocess.SubprocessError, msgspec.DecodeError) as error:
        raise ArenaError("V2060", f"{interpreter} cannot be surveyed: {error}") from error
    loader(python.machine)
    building = Path(tempfile.mkdtemp(prefix="building-", dir=directory))
    try:
        _populate(building, python, packages)
        sha256 = content_sha256(building)
        building.chmod(0o755)
        final = directory / sha256
        os.sync()  # thousands of files: all of them at once takes less time than each by itself
        try:
            move_into_place(building, final)
        except OSError:
            if not final.is_dir():  # else another process built the same content first
                raise
        return GuestRoot(path=final, content_sha256=sha256, python_version=python.version)
    finally:
        shutil.rmtree(building, ignore_errors=True)


def _populate(root: Path, python: _Interpreter, packages: tuple[PackageFile, ...]) -> None:
    minor = "python" + ".".join(python.version.split(".")[:2])
    home = root / PYTHON_HOME.lstrip("/")
    (home / "bin").mkdir(parents=True)
    (root / "usr" / "lib").mkdir(parents=True)
    (root / "usr" / "lib64").mkdir()
    for name in ("lib", "lib64"):
        (root / name).symlink_to(f"usr/{name}")
    for name in _MOUNT_POINTS:
        (root / name).mkdir()
    _copy_file(Path(python.executable), home / "bin" / "python3", 0o755)
    _copy_tree(Path(python.stdlib), home / "lib" / minor)
    if not (home / "lib" / minor / "lib-dynload").is_dir():
        _copy_tree(Path(python.dynload), home / "lib" / minor / "lib-dynload")
    for library in map(Path, python.libraries):
        # Under every name that links to it: at its own place when the loader looks there by default, else in the
        # interpreter's private directory (LD_LIBRARY_PATH in the jail).
        if str(library).startswith(_SYSTEM_DIRECTORIES):
            target = root / "usr" / str(library).removeprefix("/usr/").lstrip("/")
        else:
            target = home / "lib" / library.name
        if not target.exists():
            _copy_file(library, target, 0o755)
        for entry in library.parent.iterdir():
            alias = target.parent / entry.name
            if entry.is_symlink() and ".so." in entry.name and entry.resolve() == library and not alias.exists():
                alias.symlink_to(library.name)
    target = root / "usr" / loader(python.machine)  # the path that the interpreter names in its header
    if not target.exists():
        _copy_file(Path("/", loader(python.machine)), target, 0o755)
    for file in packages:
        target = home / "lib" / minor / file.name
        if target.exists():
            raise ArenaError("V2060", f"guest package file {file.name} would replace one of the standard library")
        _copy_file(file.source, target, 0o644)
    arena = root / "arena"
    for source in _guest_files():
        _copy_file(source, arena / source.relative_to(_GUEST), 0o644)
    _compile(root)


def _copy_tree(source: Path, target: Path) -> None:
    """The library tree without tests, packages and build files; modes are opened to every uid."""
    for directory, names, files in os.walk(source):
        here = target / Path(directory).relative_to(source)
        here.mkdir(parents=True, exist_ok=True)
        names[:] = sorted(n for n in names if n not in _LEFT_OUT and not n.startswith("config-"))
        for name in files:
            if name.endswith((".opt-1.pyc", ".opt-2.pyc", ".a", ".exe")):
                continue
            _copy_file(Path(directory) / name, here / name, 0o644)
        here.chmod(0o755)


def _copy_file(source: Path, target: Path, mode: int) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy2(source, target)  # keeps mtime, so that copied bytecode stays valid
    target.chmod(mode)


def _compile(root: Path) -> None:
    """Bytecode for our own files, by the guest's interpreter outside any jail; the library's came along with it."""
    environment = {
        "LD_LIBRARY_PATH": f"{root}{PYTHON_HOME}/lib",
        "PYTHONHOME": f"{root}{PYTHON_HOME}",
    }
    command = [f"{root}{PYTHON_HOME}/bin/python3", "-s", "-S", "-m", "compileall", "-q", "--invalidation-mode"]
    command += ["unchecked-hash", f"{root}/arena", f"{root}{PYTHON_HOME}/lib"]
    subprocess.run(command, env=environment, check=False, capture_output=True, timeout=300)
    for path in root.rglob("__pycache__"):
        path.chmod(0o755)
        for cached in path.iterdir():
            cached.chmod(0o644)


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
