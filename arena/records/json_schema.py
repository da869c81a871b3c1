"""The published JSON Schema of records and bodies: types from the code, a sentence per field from a table.

Promise: `schema/record.json` and `schema/body.json` are package files that say exactly what this release reads and
writes (a test compares them with the code); what they allow is a little more, since fields they do not name are ignored
by readers. The sentences are in `schema/fields.toml`. Reads package files when asked, and never at import.
"""

from __future__ import annotations

import tomllib
from functools import cache
from importlib.resources import files
from typing import Any, Literal

import msgspec

from arena.records.model import RecordContent, SignedRecord
from harness.trace import EvaluationBody

SchemaName = Literal["record", "body"]
SCHEMA_NAMES: tuple[SchemaName, ...] = ("record", "body")
DIALECT = "https://json-schema.org/draft/2020-12/schema"
_ROOTS: dict[SchemaName, tuple[type, str]] = {
    "record": (RecordContent, "The content of a record: what is hashed, signed and stored."),
    "body": (EvaluationBody, "The body of an evaluation: one episode as the host recorded it."),
}


def published_schema(name: SchemaName) -> str:
    """The text of a published schema."""
    return files("arena.records.schema").joinpath(f"{name}.json").read_text("utf-8")


@cache
def field_table() -> dict[str, dict[str, str]]:
    """What every field means, by structure and field."""
    table: dict[str, dict[str, str]] = tomllib.loads(
        files("arena.records.schema").joinpath("fields.toml").read_text("utf-8")
    )
    return table


def build_schema(name: SchemaName) -> dict[str, Any]:
    """The schema of the code as it is, each field with its sentence. The record's also describes the envelope
    (`SignedRecord`), which is no part of the content. Raises KeyError for a field that has no sentence."""
    root, title = _ROOTS[name]
    envelope = (SignedRecord,) if root is RecordContent else ()
    _, components = msgspec.json.schema_components((root, *envelope), ref_template="#/$defs/{name}")
    for structure, schema in components.items():
        for field, about in schema.get("properties", {}).items():
            about["description"] = field_table()[structure][field]
    return {
        "$schema": DIALECT,
        "$id": f"agent-arena/{name}/1",
        "title": title,
        "$ref": f"#/$defs/{root.__name__}",
        "$defs": components,
    }
