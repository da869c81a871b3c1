"""The published JSON Schema of records and bodies.

`schema/record.json` and `schema/body.json` are package files that say exactly what this release reads and
writes (a test makes them anew from the code and compares); what they allow is a little more, since fields they do not
name are ignored by readers. Reads package files when asked, and never at import.
"""

from __future__ import annotations

from importlib.resources import files
from typing import Literal

SchemaName = Literal["record", "body"]
SCHEMA_NAMES: tuple[SchemaName, ...] = ("record", "body")


def published_schema(name: SchemaName) -> str:
    """The text of a published schema."""
    return files("arena.records.schema").joinpath(f"{name}.json").read_text("utf-8")
