"""What counts as a model, and what a run computes on, said before anything is opened.

A model is a folder here, of a finished run or with a model's config; nothing is ever fetched. Torch's build for
processors satisfies every pin on a machine with a GPU, so a warning says where an NVIDIA device lies idle.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import msgspec

from foundation.errors import ArenaError
from training.run import LINEAGE, RECIPE


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
        missing = "torch is not installed: `pip install -c constraints.txt -e '.[train]'` brings the engine"
        return Device(name="none", torch="", warning=missing)
    version = str(torch.__version__)
    if torch.cuda.is_available():
        return Device(name=torch.cuda.get_device_name(), torch=version)
    warning = ""
    if any(Path("/dev").glob("nvidia[0-9]*")) or shutil.which("nvidia-smi"):  # two equals signs would take this build
        warning = (
            f"an NVIDIA device lies idle: torch {version} can't use it. Look at `nvidia-smi` and CUDA_VISIBLE_DEVICES, "
            "or install the build with CUDA: `pip install --force-reinstall -c constraints.txt "
            f"'torch==={version.partition('+')[0]}'` (three equals signs)"
        )
    return Device(name="cpu", torch=version, warning=warning)


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
