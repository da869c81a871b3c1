"""The first pass over a documents file: every usable document's place and columns, in file order, and what was wrong.

Malformed lines are left out, counted and reported by line number; strict stops at the first. Documents with blank
contents are dropped, as the reference drops them. Ids must be unique. What is kept is about 150 bytes a document; the
documents themselves stay in the file and are read again by place, in the order of their ids.
"""

from __future__ import annotations

import gzip
import itertools
import os
import shutil
from array import array
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import numpy as np
import numpy.typing as npt

from foundation.errors import ArenaError
from foundation.progress import Progress
from harness.catalogue.index.documents import read_line
from problems.product import SERVICES, Product

FINDINGS_KEPT = 100
STRIDE = 500  # documents between two progress reports


class LineFinding(msgspec.Struct, frozen=True, kw_only=True):
    """One line that was left out. `line` counts from 1."""

    line: int
    detail: str


class FirstPass(msgspec.Struct, kw_only=True):
    """What the first pass keeps of every usable document, in file order."""

    ids: list[str] = msgspec.field(default_factory=list)
    shop_places: dict[str, int] = msgspec.field(default_factory=dict)  # shop id -> number by first appearance
    shops: array[int] = msgspec.field(default_factory=lambda: array("i"))
    lines: array[int] = msgspec.field(default_factory=lambda: array("q"))  # line numbers, from 1
    positions: array[int] = msgspec.field(default_factory=lambda: array("q"))  # byte offsets in the file
    sizes: array[int] = msgspec.field(default_factory=lambda: array("i"))
    prices: array[float] = msgspec.field(default_factory=lambda: array("d"))
    sold_counts: array[int] = msgspec.field(default_factory=lambda: array("q"))
    services: array[int] = msgspec.field(default_factory=lambda: array("B"))
    findings: list[LineFinding] = msgspec.field(default_factory=list)
    malformed: int = 0
    blank: int = 0

    def add(self, product: Product, line: int, position: int, size: int) -> None:
        """Keep a usable document."""
        self.ids.append(product.product_id)
        self.shops.append(self.shop_places.setdefault(product.shop_id, len(self.shop_places)))
        self.lines.append(line)
        self.positions.append(position)
        self.sizes.append(size)
        self.prices.append(product.price)
        self.sold_counts.append(product.sold_count)
        self.services.append(sum(1 << bit for bit, name in enumerate(SERVICES) if name in product.service))

    def order(self, source: Path) -> npt.NDArray[np.int64]:
        """Places in file order, by id as a string: the reference's tie-break becomes "lower number first".

        Raises ArenaError P4005 for a file without a usable document and for two documents of one id.
        """
        if not self.ids:
            where = f"; line {self.findings[0].line}: {self.findings[0].detail}" if self.findings else ""
            raise ArenaError("P4005", f"{source}: no document can be indexed{where}")
        order = sorted(range(len(self.ids)), key=self.ids.__getitem__)
        for first, second in itertools.pairwise(order):
            if self.ids[first] == self.ids[second]:
                lines = f"lines {self.lines[first]} and {self.lines[second]}"
                raise ArenaError("P4005", f"{source}: {lines} have the same id {self.ids[first]!r}")
        return np.array(order, np.int64)


@contextmanager
def open_plain(source: Path, work: Path) -> Iterator[Path]:
    """The file itself, or its decompressed twin in `work`: the second pass reads documents in id order.

    Raises ArenaError V2013 when it cannot be read.
    """
    if not source.is_file():
        raise ArenaError("V2013", f"{source}: no such file")
    if source.suffix != ".gz":
        yield source
        return
    plain = work / "documents.jsonl"
    try:
        with gzip.open(source, "rb") as packed, plain.open("wb") as unpacked:
            shutil.copyfileobj(packed, unpacked, 1 << 20)
    except (OSError, EOFError) as error:
        raise ArenaError("V2013", f"{source}: {error}") from error
    try:
        yield plain
    finally:
        plain.unlink()


def read_intake(plain: Path, *, is_strict: bool, progress: Progress) -> FirstPass:
    """Type every line, keep what filters and sorting need.

    Raises ArenaError P4005 for an empty file, and naming the line when `is_strict`; V2013.
    """
    intake, total, position = FirstPass(), plain.stat().st_size, 0
    if total == 0:
        raise ArenaError("P4005", f"{plain}: the documents file is empty")
    try:
        with plain.open("rb", buffering=1 << 20) as stream:
            for number, line in enumerate(stream, start=1):
                if number % STRIDE == 0:
                    progress("read", position, total)
                _take_line(intake, line, number, position, is_strict)
                position += len(line)
    except OSError as error:
        raise ArenaError("V2013", f"{plain}: {error.strerror or error}") from error
    progress("read", total, total)
    return intake


def _take_line(intake: FirstPass, line: bytes, number: int, position: int, is_strict: bool) -> None:
    try:
        document = read_line(line)
    except ArenaError as error:
        intake.malformed += 1
        if is_strict:
            raise ArenaError("P4005", f"line {number}: {error.failure.detail}") from error
        if len(intake.findings) < FINDINGS_KEPT:
            intake.findings.append(LineFinding(line=number, detail=error.failure.detail))
        return
    if document.contents.strip():
        intake.add(document.product, number, position, len(line))
    else:
        intake.blank += 1


def lines_in_order(plain: Path, intake: FirstPass, order: npt.NDArray[np.int64]) -> Iterator[bytes]:
    """The usable lines by id. Read by place, not mapped: a mapping would keep the whole file resident."""
    with plain.open("rb") as stream:
        descriptor = stream.fileno()
        for place in order.tolist():
            yield os.pread(descriptor, intake.sizes[place], intake.positions[place])
