"""Product documents of an index folder as they were indexed: every field, not only those a `Product` has.

Maps three files read-only and decodes nothing until asked. For answers that repeat the whole document; searching and
everything typed goes through the `Catalogue`.
"""

from __future__ import annotations

import mmap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from foundation.errors import ArenaError
from harness.catalogue.index import layout


class StoredDocuments:
    """Documents by product id. Thread-safe; processes share the mapped files."""

    def __init__(self, folder: Path) -> None:
        """Raises ArenaError V2011 when there is no index, V2010 when its manifest is broken."""
        manifest = layout.read_manifest(folder)
        self._offsets: Any = layout.map_array(folder, "offsets", layout.ARRAYS["offsets"])
        self._ids: Any = layout.map_array(folder, "ids", f"|S{manifest.content.id_bytes}")
        with (folder / layout.PRODUCTS).open("rb") as stream:
            self._lines = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)

    def document(self, product_id: str) -> Mapping[str, object] | None:
        """The decoded document, or None when there is none of that id.

        Raises ArenaError U3010 when it cannot be decoded.
        """
        key = product_id.encode("utf-8", "replace")
        if len(key) > self._ids.itemsize:  # numpy would copy the column, each id as wide as the key
            return None
        place = int(np.searchsorted(self._ids, np.bytes_(key)))
        if place >= len(self._ids) or bytes(self._ids[place]) != key:
            return None
        try:
            document: Mapping[str, object] = orjson.loads(
                self._lines[int(self._offsets[place]) : int(self._offsets[place + 1])]
            )
        except orjson.JSONDecodeError as error:
            raise ArenaError("U3010", f"document {place} of {layout.PRODUCTS}: {error}") from error
        return document
