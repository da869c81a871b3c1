"""The guest root: one directory with everything a guest can see, built once for each interpreter.

It holds an interpreter, its standard library, the shared objects these need, the runner and the SDK; no package, no
shell, no configuration of the host. The guest's uid must be able to enter every path, which it cannot in a home of mode
0700. `content_sha256` covers every file except bytecode caches, so two hosts with the same Python build have the same
hash, and it is in every record. Building is atomic: a directory under its final name is complete. All files are
readable by any uid.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import msgspec

from foundation.durable_files import coded, move_into_place
from foundation.errors import ArenaError

PYTHON_HOME = "/opt/py"
RUNNER = "/arena/runner.py"
_GUEST = Path(__file__).parent / "guest"  # our own files that go into it
_IDENTITY = "identity.json"  # content hash and Python version
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


def open_guest_root(state_dir: Path, interpreter: Path = Path(sys.executable)) -> GuestRoot:
    """The guest root for `interpreter`, built under `state_dir/guest` when it is not there yet.

    Raises ArenaError V2060 when the interpreter cannot be surveyed, or the directory cannot be written.
    """
    folder = state_dir.absolute() / "guest" / _fingerprint(interpreter)  # guests are started elsewhere
    with coded(f"the guest root cannot be built in {folder}", "V2060"):
        if not folder.is_dir():
            _build(folder, interpreter)
        sha256, version = msgspec.json.decode((folder / _IDENTITY).read_bytes(), type=tuple[str, str])
    return GuestRoot(path=folder / "root", content_sha256=sha256, python_version=version)


def loader(machine: str) -> str:
    """Where every program for `machine` names its dynamic loader, without the leading slash; fixed by the platform's
    ABI. Raises ArenaError V2060 for a machine without a guest root."""
    if machine not in _LOADERS:
        raise ArenaError("V2060", f"no guest root for {machine}: x86_64 and aarch64 only")
    return _LOADERS[machine]


def library_directories(root: Path) -> tuple[Path, ...]:
    """Directories of the root's system libraries, for a guest that does not have the root as its `/`."""
    return tuple(sorted({path.parent for path in (root / "usr").rglob("*.so*") if path.is_file()}))


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


def _own_files() -> dict[str, Path]:
    """Our own files that go into the root, by their names below `arena/`."""
    paths = (_GUEST / "runner.py", *(_GUEST / "arena_sdk").glob("*.py"), *(_GUEST / "sn15").glob("*.py"))
    return {str(path.relative_to(_GUEST)): path for path in sorted(paths)}


def _fingerprint(interpreter: Path) -> str:
    """Cheap name of a build's inputs: the interpreter file, the system's loader (it and the C library are upgraded
    together, and only fit together), and our own files."""
    real = interpreter.resolve()
    with coded(f"no Python interpreter at {interpreter}", "V2060"):
        facts, system = real.stat(), Path("/", loader(platform.machine())).stat()
    digest = hashlib.sha256(f"{interpreter}\0{real}\0{facts.st_size}\0{facts.st_mtime_ns}".encode())
    digest.update(f"\0{system.st_size}\0{system.st_mtime_ns}".encode())
    for name, source in _own_files().items():
        digest.update(name.encode() + b"\0" + source.read_bytes())
    return digest.hexdigest()[:32]


def _build(folder: Path, interpreter: Path) -> None:
    command = [str(interpreter), "-I", "-S", "-c", _SURVEY]
    try:
        done = subprocess.run(command, capture_output=True, timeout=60, check=True, env={})
        python = msgspec.json.decode(done.stdout, type=_Interpreter)
    except (OSError, subprocess.SubprocessError, msgspec.DecodeError) as error:
        raise ArenaError("V2060", f"{interpreter} cannot be surveyed: {error}") from error
    folder.parent.mkdir(parents=True, exist_ok=True)
    building = Path(tempfile.mkdtemp(prefix="building-", dir=folder.parent))
    try:
        _populate(building / "root", python)
        building.chmod(0o755)
        identity = (content_sha256(building / "root"), python.version)
        (building / _IDENTITY).write_bytes(msgspec.json.encode(identity))
        os.sync()  # thousands of files: all of them at once takes less time than each by itself
        try:
            move_into_place(building, folder)
        except OSError:
            if not folder.is_dir():  # else another process built the same first
                raise
    finally:
        shutil.rmtree(building, ignore_errors=True)


def _populate(root: Path, python: _Interpreter) -> None:
    home = root / PYTHON_HOME.lstrip("/")
    library = home / "lib" / f"python{'.'.join(python.version.split('.')[:2])}"
    for folder in (home / "bin", root / "usr/lib", root / "usr/lib64", *(root / name for name in _MOUNT_POINTS)):
        folder.mkdir(parents=True)
    for name in ("lib", "lib64"):
        (root / name).symlink_to(f"usr/{name}")
    shutil.copy2(python.executable, home / "bin" / "python3")
    shutil.copytree(python.stdlib, library, ignore=_left_out)  # keeps mtimes, so that copied bytecode stays valid
    if not (library / "lib-dynload").is_dir():
        shutil.copytree(python.dynload, library / "lib-dynload", ignore=_left_out)
    folders = {Path(library).parent for library in python.libraries}
    links = [Path(one) for folder in folders for one in os.scandir(folder) if ".so." in one.name and one.is_symlink()]
    ends = {link: link.resolve() for link in links}
    for mapped in map(Path, python.libraries):
        # Under every name that links to it: at its own place when the loader looks there by default, else in the
        # interpreter's private directory (LD_LIBRARY_PATH in the jail).
        if str(mapped).startswith(_SYSTEM_DIRECTORIES):
            target = root / "usr" / str(mapped).removeprefix("/usr/").lstrip("/")
        else:
            target = home / "lib" / mapped.name
        _copy(mapped, target)
        for link, end in ends.items():
            alias = target.parent / link.name
            if end == mapped and link.parent == mapped.parent and not alias.exists():
                alias.symlink_to(mapped.name)
    # at the path that the interpreter names in its header
    _copy(Path("/", loader(python.machine)), root / "usr" / loader(python.machine))
    for name, source in _own_files().items():
        _copy(source, root / "arena" / name)
    for directory, _, names in os.walk(root):  # open to every uid, and nobody's to write
        Path(directory).chmod(0o755)
        for path in (Path(directory, name) for name in names):
            if not path.is_symlink():
                path.chmod(0o755 if path.stat().st_mode & 0o100 else 0o644)
    environment = {"LD_LIBRARY_PATH": f"{home}/lib", "PYTHONHOME": str(home)}
    command = [f"{home}/bin/python3", "-s", "-S", "-m", "compileall", "-q", "--invalidation-mode", "unchecked-hash"]
    command += [f"{root}/arena", f"{home}/lib"]
    subprocess.run(command, env=environment, umask=0o022, check=False, capture_output=True, timeout=300)


def _left_out(directory: str, names: list[str]) -> list[str]:
    """Of the library: tests, packages and build files."""
    endings = (".opt-1.pyc", ".opt-2.pyc", ".a", ".exe")
    return [name for name in names if name in _LEFT_OUT or name.startswith("config-") or name.endswith(endings)]


def _copy(source: Path, target: Path) -> None:
    """A file to where there is none yet."""
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source, target)
