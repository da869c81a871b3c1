"""What goes wrong in a simulated race: drawn ahead from a seed, so that a run can be repeated."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Literal

import msgspec

from tests.arena.exchange_stand import PeerFault

Lie = Literal["show all", "show to one", "withhold", "distort", "break off", "boast"]
_LIES: tuple[Lie, ...] = ("show all", "show all", "show to one", "withhold", "distort", "break off", "boast")


class Crash(Exception):
    """A validator's process dies here: nothing it remembered is left."""


class CrashAt(msgspec.Struct, frozen=True, kw_only=True):
    """From a moment (share of the race) on, a validator dies at its n-th write to the store, before or after it."""

    desk: int
    at: float
    writes: int
    is_before: bool


class ReorgAt(msgspec.Struct, frozen=True, kw_only=True):
    """The newest blocks are replaced; what they held is accepted again, or gone."""

    at: float
    depth: int
    is_accepted_again: bool


class FaultPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What goes wrong in one race. Numbers are those of the validators."""

    liars: tuple[int, ...] = ()
    lies: dict[int, Lie] = {}  # how each liar shows its log
    countersigns_nonsense: bool = False
    copies: bool = False  # liars repeat what others showed as their own
    absent: tuple[tuple[int, float, float], ...] = ()  # validator, from, until (shares of the race)
    crashes: tuple[CrashAt, ...] = ()
    reorgs: tuple[ReorgAt, ...] = ()
    finality_stalls: bool = False
    leaving_miners: int = 0
    leaving_validator: int | None = None


def plan_faults(dice: random.Random, stakes: Sequence[int]) -> FaultPlan:
    """A plan in which liars hold less than half of the stake of those who are there."""
    order = list(range(len(stakes)))
    dice.shuffle(order)
    absent: tuple[tuple[int, float, float], ...] = ()
    if len(stakes) > 3 and dice.random() < 0.35:
        begins = dice.random() * 0.8
        absent = ((order.pop(), begins, min(1.0, begins + dice.choice((0.1, 0.2, 0.4, 1.0)))),)
    there = sum(stakes[number] for number in order)
    liars: list[int] = []
    for number in dice.sample(order, dice.randrange(len(order))):
        if 2 * (sum(stakes[liar] for liar in liars) + stakes[number]) < there:
            liars.append(number)
    honest = [number for number in order if number not in liars]
    crashes = tuple(
        CrashAt(desk=dice.choice(honest), at=dice.random(), writes=dice.randrange(1, 6), is_before=dice.random() < 0.5)
        for _ in range(dice.randrange(1, 4))
    )
    reorgs = tuple(
        ReorgAt(at=dice.random(), depth=dice.randrange(1, 4), is_accepted_again=dice.random() < 0.7)
        for _ in range(dice.randrange(3))
    )
    leaving = dice.choice(order) if not absent and dice.random() < 0.15 else None
    return FaultPlan(
        liars=tuple(sorted(liars)),
        lies={liar: dice.choice(_LIES) for liar in liars},
        countersigns_nonsense=dice.random() < 0.5,
        copies=dice.random() < 0.5,
        absent=absent,
        crashes=crashes,
        reorgs=reorgs,
        finality_stalls=dice.random() < 0.2,
        leaving_miners=dice.randrange(3),
        leaving_validator=leaving if leaving is not None and leaving not in liars and liars else None,
    )


def fault_towards(lie: Lie, reader: int, liar: int) -> PeerFault:
    """How a liar treats one reader. Its results are lies in any case; one that boasts has none."""
    if lie in ("show all", "boast"):
        return PeerFault()
    if lie == "withhold":
        return PeerFault(is_withholding=True)
    if lie == "distort":
        return PeerFault(is_lying=True)
    if lie == "break off":
        return PeerFault(rows_max=3)
    return PeerFault() if reader == (liar + 1) % 2 else PeerFault(is_withholding=True)


WRITES = ("put_event", "append", "enqueue", "put_weights_result")


class FaultyStore:
    """A store whose owner may die at a write. Every claim is watched: no item is ever held twice at once."""

    def __init__(self, store, counts: Counter[str]) -> None:
        self._store, self._counts = store, counts
        self._writes_left, self._is_before, self._is_armed = 0, False, False

    def __getattr__(self, name: str):
        found = getattr(self._store, name)
        return partial(self._dying, found) if name in WRITES else found

    def arm(self, crash: CrashAt) -> None:
        """Die at the n-th write from now on."""
        self._writes_left, self._is_before, self._is_armed = crash.writes, crash.is_before, True

    @contextmanager
    def spared(self) -> Iterator[None]:
        """Nobody dies within: these writes are not counted."""
        before, self._is_armed, self._writes_left = (self._is_armed, self._writes_left), False, 0
        yield
        self._is_armed, self._writes_left = before

    async def _dying(self, write, *given):
        self._writes_left -= bool(self._writes_left)
        if self._writes_left or not self._is_armed:
            return await write(*given)
        self._is_armed = False
        self._counts["crashes"] += 1
        if not self._is_before:
            await write(*given)
        raise Crash
