"""What counts as a model: a folder here, of a finished run or with a model's config. Nothing is ever fetched.

A name that is no such folder is told at once what to do, before anything is opened; no network is asked.
"""

from __future__ import annotations

from pathlib import Path

from foundation.errors import ArenaError
from training.stages.run import LINEAGE, RECIPE

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
