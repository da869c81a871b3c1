"""What counts as a model: a folder here, of a finished run or with a model's config. Nothing is ever fetched.

A name that is no such folder is told at once what to do, before anything is opened; no network is asked.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import msgspec

from foundation.errors import ArenaError
from training.stages.run import LINEAGE, RECIPE

NVIDIA_SMI = "nvidia-smi"


class Build(msgspec.Struct, frozen=True, kw_only=True):
    """The installed torch. `cuda` is the CUDA version it was built for, "" for processors alone."""

    version: str
    cuda: str


class Device(msgspec.Struct, frozen=True, kw_only=True):
    """What is computed on. `warning` says what keeps torch from an NVIDIA device, and what to install or look at."""

    name: str
    torch: str
    warning: str = ""

    def describe(self) -> str:
        """One line, without the warning."""
        return f"{self.name} (torch {self.torch})" if self.torch else self.name


def find_device() -> Device:
    """What a stage would compute on, on this machine. Imports torch where it is installed."""
    try:
        import torch
    except ModuleNotFoundError:
        return Device(
            name="none",
            torch="",
            warning="torch is not installed: `pip install -c constraints.txt -e '.[train]'` brings the engine",
        )
    used = torch.cuda.get_device_name() if torch.cuda.is_available() else ""
    build = Build(version=str(torch.__version__), cuda=torch.version.cuda or "")
    return judge_device(used, build, nvidia_sign(Path("/dev"), shutil.which))


def nvidia_sign(devices: Path, which: Callable[[str], str | None]) -> str:
    """What tells of an NVIDIA device: its node in `devices` (/dev), or the driver's program; "" where nothing does."""
    nodes = sorted(devices.glob("nvidia[0-9]*"))
    return str(nodes[0]) if nodes else which(NVIDIA_SMI) or ""


def judge_device(used: str, build: Build, sign: str) -> Device:
    """`used`: the GPU torch computes on, "" for none; `sign`: what tells of an NVIDIA device, "" for none."""
    if used or not sign:
        return Device(name=used or "cpu", torch=build.version)
    plain = build.version.partition("+")[0]
    if not build.cuda:
        warning = (
            f"{sign} tells of an NVIDIA device, and torch {build.version} is built for processors alone; install the "
            f"build with CUDA: `pip install --force-reinstall -c constraints.txt 'torch==={plain}'` (three equals "
            "signs: two would take the processor build for the same)"
        )
    else:
        warning = (
            f"{sign} tells of an NVIDIA device, and torch {build.version}, built for CUDA {build.cuda}, can use none: "
            f"see what `{NVIDIA_SMI}` says of the driver, and CUDA_VISIBLE_DEVICES"
        )
    return Device(name="cpu", torch=build.version, warning=warning)


CONFIG = "config.json"


def require_model(name: str) -> Path:
    """The folder of a model. Raises ArenaError V2124 for anything else, with what to do."""
    folder = Path(name)
    if not folder.is_dir():
        raise ArenaError(
            "V2124",
            f"{name} is no folder, and nothing is fetched: put the model there, as `hf download OWNER/{folder.name} "
            f"--local-dir {name}` does, or name the folder it is in",
        )
    if not (folder / CONFIG).exists():
        raise ArenaError("V2124", f"{name} holds no {CONFIG}: it is no folder of a model")
    return folder


def require_candidate(name: str) -> Path:
    """The folder of a finished run or of a model. Raises ArenaError V2124 for anything else, with what to do."""
    folder = Path(name)
    if (folder / LINEAGE).exists():
        return folder
    if (folder / RECIPE).exists():
        raise ArenaError(
            "V2124",
            f"{name} is a run that is not finished; go on: `arena train STAGE --recipe {folder / RECIPE} --out {name}`",
        )
    return require_model(name)
