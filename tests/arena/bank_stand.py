"""Batches for tests, made from nothing but a race's number and sealed by one operator."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

from arena.bank.batch import SALT_BYTES, seal
from arena.bank.sealing import SealedFile, lock_batch, write_sealed
from arena.bank.stock import SUFFIX, Bank
from arena.chain.beacon import LocalBeacon, LocalTimelock
from arena.chain.keys import keypair_signer, verify
from arena.chain.port import Signer
from problems.model import Problem, Product
from problems.synthesis import synthesize

OPERATOR = keypair_signer("//Operator")
TIMELOCK = LocalTimelock()


def problems_of(catalogue: Sequence[Product], number: int, count: int = 3) -> tuple[Problem, ...]:
    """Product problems in the order of a batch."""
    made = synthesize(catalogue, seed=number, counts={"product": count})
    return tuple(sorted(made, key=lambda problem: problem.problem_id))


def sealed_file(
    race_id: str, problems: Sequence[Problem], round_number: int, salts: random.Random, signer: Signer = OPERATOR
) -> SealedFile:
    """A batch without partition and titles, sealed to a round."""
    batch = seal(race_id, problems, salts.randbytes(SALT_BYTES))
    return lock_batch(batch, round_number, timelock=TIMELOCK, signer=signer, made_ms=5_000)


def put_sealed(folder: Path, sealed: SealedFile) -> Path:
    """The file where a node's bank looks for it, named by its round."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{sealed.notice.round:012}{SUFFIX}"
    write_sealed(path, sealed)
    return path


class SeededMaker:
    """Makes the batch of every race from its number, counted from `first`: the same at every validator."""

    def __init__(self, catalogue: Sequence[Product], first: int = 1) -> None:
        self._catalogue, self._first = catalogue, first

    def make(self, race_id: str, round_number: int, earlier: frozenset[str]) -> SealedFile:
        """The race's batch."""
        number = int(race_id.removeprefix("race-")) - self._first
        return sealed_file(race_id, problems_of(self._catalogue, number), round_number, random.Random(number))


def open_bank(folder: Path, beacon: LocalBeacon, maker: SeededMaker | None = None) -> Bank:
    """A local bank of the operator's batches."""
    return Bank(folder, OPERATOR.hotkey, verify, TIMELOCK, beacon, make=maker.make if maker else None)
