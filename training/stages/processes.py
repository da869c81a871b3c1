"""The processes that train one run together (`accelerate launch`), and which of them does what.

The first process alone writes and samples; the others wait for it and read what it wrote. Rows of a step are
shared out, never added to: with the recipe's accumulation divided by their number, a step is the step of one process.
What can't be shared out is refused before anything is done.

Will not do: find a process that hangs. One that ends with an error makes the launcher end the others.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

import msgspec

from foundation.errors import ArenaError
from training.recipe import Recipe

WAIT = timedelta(days=14)  # sampling may take days, and the others wait all of it
SAMPLING_STAGES = ("kto", "grpo")  # they sample from the policy that is being trained


class Processes(msgspec.Struct, frozen=True, kw_only=True):
    """`count` processes of one run; this is number `index`, from 0."""

    index: int = 0
    count: int = 1

    @property
    def is_first(self) -> bool:
        """Whether this process writes and samples for all."""
        return self.index == 0

    def wait(self) -> None:
        """Go on when all have come here. The engine takes over the process group that the first call opens."""
        if self.count == 1:
            return
        import torch
        from accelerate import PartialState

        PartialState(cpu=not torch.cuda.is_available(), timeout=WAIT).wait_for_everyone()


ALONE = Processes()


def launched(environment: Mapping[str, str]) -> Processes:
    """The processes that torchrun or `accelerate launch` names in `environment`; one without a launcher."""
    if "LOCAL_RANK" not in environment:
        return ALONE
    return Processes(index=int(environment.get("RANK", "0")), count=int(environment.get("WORLD_SIZE", "1")))


def require_shareable(recipe: Recipe, processes: Processes) -> None:
    """Raises ArenaError V2124 for a stage that one process has to run, V2120 for steps that can't be shared out."""
    if processes.count == 1:
        return
    if recipe.stage in SAMPLING_STAGES:
        raise ArenaError(
            "V2124",
            f"{recipe.stage} samples from the policy it trains, which one process has to hold: start it without a "
            f"launcher, or with one process instead of {processes.count}",
        )
    if recipe.optim.accumulation % processes.count:
        raise ArenaError(
            "V2120",
            f"optim.accumulation = {recipe.optim.accumulation} does not divide among {processes.count} processes: a "
            "step would hold other rows than the recipe says",
        )
