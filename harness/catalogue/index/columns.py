"""The filter and sort columns of an index folder: one value a document, in document order, mapped when read.

Both builders write them and both engines read them. Ids are fixed-width bytes, ascending, so a product id is found by
bisection and no table of ids is held in memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
import orjson

from harness.catalogue.index import layout
from harness.catalogue.index.first_pass import FirstPass
from harness.work import SCANNED_PER_UNIT, SOLD, WorkMeter


class Columns:
    """Mapped columns of a folder whose ids are `id_bytes` wide. Read-only and shared."""

    def __init__(self, folder: Path, id_bytes: int) -> None:
        names = ("prices", "sold_counts", "services", "shops")
        self.prices, self.sold_counts, self.services, self.shops = (layout.map_array(folder, name) for name in names)
        self.ids = layout.map_array(folder, "ids", f"|S{id_bytes}")
        self.shop_numbers = {shop: number for number, shop in enumerate(layout.read_shops(folder))}

    def product_ids(self) -> Iterator[str]:
        """Every id, in document order."""
        return (bytes(key).decode() for key in self.ids)

    def id_of(self, number: int) -> str:
        """The id of a document."""
        return bytes(self.ids[number]).decode()

    def number_of(self, product_id: str) -> int | None:
        """The document of that id, or None."""
        try:
            key = product_id.encode()
        except UnicodeEncodeError:
            return None
        if len(key) > self.ids.itemsize:  # numpy would copy the column, each id as wide as the key
            return None
        number = int(np.searchsorted(self.ids, np.bytes_(key)))
        return number if number < len(self.ids) and bytes(self.ids[number]) == key else None

    def numbers_of_shop(self, shop_id: str, work: WorkMeter | None = None) -> npt.NDArray[np.int64]:
        """The documents of a shop, ascending; none for an unknown one. Counts the column's documents and those of the
        shop on the meter, which may raise WorkExceededError."""
        meter = work or WorkMeter()
        meter.spend(len(self.shops) // SCANNED_PER_UNIT)
        numbers = np.flatnonzero(self.shops == self.shop_numbers.get(shop_id, -1))
        meter.spend(len(numbers) * SOLD)
        return numbers


def write_columns(intake: FirstPass, order: npt.NDArray[np.int64], folder: Path) -> int:
    """Write the columns of the documents of `intake` in that order; returns the width of an id in bytes."""

    def write(name: str, values: npt.NDArray[np.generic]) -> None:
        values[order].astype(layout.ARRAYS[name]).tofile(layout.array_path(folder, name))

    write("prices", np.frombuffer(intake.prices, np.float64))
    write("sold_counts", np.frombuffer(intake.sold_counts, np.int64))
    write("services", np.frombuffer(intake.services, np.uint8))
    shops = sorted(intake.shop_places)
    final = np.empty(len(shops), np.int32)
    final[[intake.shop_places[shop] for shop in shops]] = np.arange(len(shops))
    write("shops", final[np.frombuffer(intake.shops, np.int32)])
    (folder / layout.SHOPS).write_bytes(orjson.dumps(shops))
    ids = np.array([intake.ids[place].encode() for place in order.tolist()], "S")
    ids.tofile(layout.array_path(folder, "ids"))
    return ids.itemsize
