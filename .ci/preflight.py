"""Early checks before anything is installed: each failure is one line of what is wrong and one of how to fix it.

It runs on any Python 3.5 or newer, imports the standard library only and changes nothing. Exit code 0 when
the installation can begin, 3 when the host is not ready for it. Usage: preflight.py CHECKOUT VENV
"""

import glob
import importlib
import os
import platform
import shutil
import sys
import sysconfig

OLDEST_PYTHON = (3, 11)
NEWEST_PYTHON = (3, 14)  # bittensor 11 says < 3.15
OLDEST_GLIBC = (2, 28)  # of the pinned wheels: manylinux_2_28
MACHINES = ("x86_64", "aarch64", "arm64")
DEMO_BYTES, TEST_BYTES = 2 << 30, 4 << 30  # the second has the training engine too


def check_python(version: tuple, names_on_path: list) -> object:
    """Fault and fix for this interpreter's version (major, minor), or None. `names_on_path` are better ones found."""
    if OLDEST_PYTHON <= version <= NEWEST_PYTHON:
        return None
    wanted = "%d.%d to %d.%d" % (OLDEST_PYTHON + NEWEST_PYTHON)
    if names_on_path:
        fix = "make %s PYTHON=%s" % (os.environ.get("ARENA_MAKE_TARGET", "demo"), names_on_path[0])
    else:
        fix = "install Python %s, then run `make demo PYTHON=python3.11`" % wanted
    return "Python %d.%d is not supported; %s is needed" % (*version, wanted), fix


def check_libc(platform_name: str, libc: tuple, host_type: str, musl_loaders: list) -> object:
    """Fault and fix for the C library, or None. Our wheels (Postgres, bubblewrap, numba) are built for glibc."""
    if not platform_name.startswith("linux"):
        return (
            "%s is not supported: agents run in Linux jails" % platform_name,
            "use Linux (x86_64 or aarch64) with glibc, for example a Debian or Ubuntu virtual machine",
        )
    name, version = libc
    if "musl" in host_type or name == "musl" or (name != "glibc" and musl_loaders):
        return (
            "this Python is built for musl libc (Alpine?); the pinned wheels need glibc",
            "use a Debian, Ubuntu or Fedora host or image, for example the container image python:3.11-slim",
        )
    numbers = tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
    if numbers and numbers < OLDEST_GLIBC:
        return (
            "glibc %s is too old; %d.%d is needed" % (version, *OLDEST_GLIBC),
            "use Debian 10, Ubuntu 20.04, RHEL 8 or newer",
        )
    return None


def check_machine(machine: str, is_64_bit: bool) -> object:
    """Fault and fix for the processor, or None."""
    if machine in MACHINES and is_64_bit:
        return None
    width = "64" if is_64_bit else "32"
    return (
        "a %s-bit Python on %s is not supported" % (width, machine),
        "use a 64-bit Python on x86_64 or aarch64",
    )


def check_venv(missing_modules: list, version: tuple) -> object:
    """Fault and fix for the modules that make a virtual environment, or None."""
    if not missing_modules:
        return None
    return (
        "this Python cannot make a virtual environment: module %s is missing" % " and ".join(missing_modules),
        "Debian or Ubuntu: apt install python%d.%d-venv (or python3-venv); Fedora: dnf install python3-pip" % version,
    )


def check_writable(path: str, is_writable: bool) -> object:
    """Fault and fix for a folder that has to be written, or None."""
    if is_writable:
        return None
    return (
        "%s is not writable for this user" % path,
        'clone it again into a folder of your own, or: chown -R "$(id -un)" %s' % path,
    )


def check_space(path: str, free_bytes: int, is_demo: bool) -> object:
    """Fault and fix for the disk that takes the environment, or None."""
    if free_bytes >= (DEMO_BYTES if is_demo else TEST_BYTES):
        return None
    return (
        "only %d MB are free in %s; the environment needs about %s MB"
        % (free_bytes >> 20, path, "1,200" if is_demo else "2,400"),
        "free some space, or put the environment elsewhere: make demo VENV=/path/with/space/venv",
    )


def modules_missing(names: tuple) -> list:
    """The modules among `names` that this Python does not have."""
    missing = []
    for name in names:
        try:
            importlib.import_module(name)
        except ImportError:
            missing.append(name)
    return missing


def faults(checkout: str, venv: str) -> list:
    """Every (fault, fix) of this host, most fundamental first."""
    version = sys.version_info[:2]
    venv_home = os.path.dirname(venv)
    better = ["python3.%d" % minor for minor in range(NEWEST_PYTHON[1], OLDEST_PYTHON[1] - 1, -1)]
    found = (
        check_libc(
            sys.platform,
            platform.libc_ver(),
            str(sysconfig.get_config_var("HOST_GNU_TYPE")),
            glob.glob("/lib/ld-musl-*"),
        ),
        check_machine(platform.machine(), sys.maxsize > 2**32),
        check_python(version, [name for name in better if shutil.which(name)]),
        check_venv(modules_missing(("venv", "ensurepip")), version),
        check_writable(checkout, os.access(checkout, os.W_OK)),
        check_writable(venv_home, os.access(venv_home, os.W_OK)),
        check_space(
            venv_home, shutil.disk_usage(venv_home).free, os.environ.get("ARENA_MAKE_TARGET", "demo") == "demo"
        ),
    )
    return [fault for fault in found if fault is not None]


def main(arguments: list) -> int:
    """Print every fault with its fix to stderr; the exit code."""
    if len(arguments) != 2:
        sys.stderr.write("usage: preflight.py CHECKOUT VENV\n")
        return 2
    found = faults(*map(os.path.abspath, arguments))
    for fault, fix in found:
        sys.stderr.write("%s\n      fix: %s\n" % (fault, fix))
    return 3 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
