"""Gather what `make prove-gpu` needs beside torch, for a machine without a network.

    python -m tests.prove.wheels FOLDER

The wheels are of Python 3.12 on x86-64, at the versions that `constraints.txt` pins: whatever the training room's
packages ask for but torch and what torch brings.
"""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
LEFT_OUT = ("torch", "nvidia", "triton", "cuda")
PLATFORMS = ("manylinux_2_28_x86_64", "manylinux_2_17_x86_64", "manylinux2014_x86_64", "any")


def closure(name: str, extras: tuple[str, ...] = ()) -> set[str]:
    """The packages that `name` needs, by what is installed here."""
    found, open_ends = set[str](), [(name, extras)]
    while open_ends:
        package, asked = open_ends.pop()
        try:
            lines = requires(package) or []
        except PackageNotFoundError:
            continue
        for line in map(Requirement, lines):
            fits = line.marker is None or any(line.marker.evaluate({"extra": one}) for one in (*asked, ""))
            if fits and line.name.lower() not in found and not line.name.lower().startswith(LEFT_OUT):
                found.add(line.name.lower())
                open_ends.append((line.name, tuple(line.extras)))
    return found


def main() -> int:
    """Download into the folder named on the command line. The exit code is pip's."""
    words = ["-m", "pip", "download", "--no-deps", "--only-binary", ":all:", "--python-version", "3.12"]
    words += [word for platform in PLATFORMS for word in ("--platform", platform)]
    words += ["-c", str(ROOT / "constraints.txt"), "-d", sys.argv[1]]
    return subprocess.call([sys.executable, *words, *sorted(closure("agent-arena", ("train",)))])


if __name__ == "__main__":
    sys.exit(main())
