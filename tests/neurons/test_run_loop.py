"""Loops that fail: growing pauses that are spread, a wait that is kept and told, a full disk that only waits."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable

import pytest

from foundation.errors import ArenaError
from neurons.loops import run_loop as run_loop_module
from neurons.loops.run_loop import SPREAD, StopSignal, persist, run_loop
from tests.neurons.clock_stand import LOG, Time


class Stage:
    """A loop whose pauses pass at once; keeps how long each would have been."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, spread: Callable[[float, float], float]) -> None:
        self.pauses: list[float] = []
        self.heard: list[tuple[str, str]] = []
        self.drain = StopSignal(Time(), spread=spread, on_failure=lambda *heard: self.heard.append(heard))

        async def pause(drain: asyncio.Event, seconds: float) -> bool:
            self.pauses.append(seconds)
            await asyncio.sleep(0)
            return drain.is_set()

        monkeypatch.setattr(run_loop_module, "drained_within", pause)

    async def play(self, *acts: BaseException | None) -> None:
        """Turns that end as given, one after the other; then the drain."""
        waiting = list(acts)

        async def turn() -> None:
            act = waiting.pop(0)
            if not waiting:
                self.drain.set()
            if act is not None:
                raise act

        await run_loop("loop", turn, self.drain, LOG, every_s=0)


def away() -> ArenaError:
    return ArenaError("U3030", "away")


async def test_pauses_grow_and_are_spread_by_the_chance_that_was_given(monkeypatch: pytest.MonkeyPatch) -> None:
    for factor in SPREAD:
        stage = Stage(monkeypatch, spread=lambda low, high, factor=factor: factor)
        await stage.play(*(away() for _ in range(8)), None)
        assert stage.pauses[:8] == [pytest.approx(seconds * factor) for seconds in (1, 2, 4, 8, 16, 32, 60, 60)]


async def test_what_a_loop_waits_for_is_kept_until_it_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage(monkeypatch, spread=lambda low, high: 1.0)
    await stage.play(away(), away(), away())
    wait = stage.drain.waits["loop"]
    assert (wait.code, wait.failures, stage.heard) == ("U3030", 3, [("loop", "U3030")] * 3)
    stage.drain.clear()
    await stage.play(None)
    assert stage.drain.waits == {}


async def test_what_is_to_stand_is_written_again_until_it_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage(monkeypatch, spread=lambda low, high: 1.0)
    answers: list[BaseException | None] = [OSError(errno.ENOSPC, "full", "/state/inbox"), away(), None]

    async def write() -> None:
        if (act := answers.pop(0)) is not None:
            raise act

    await persist("append item:1", write, stage.drain, LOG)
    assert stage.heard == [("append", "V2115"), ("append", "U3030")]
    assert stage.drain.waits == {} and not answers
