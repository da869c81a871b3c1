"""The JSON Schema of records and bodies as the code is: types from its structures, a sentence a field from a table.

`python -m tests.arena.test_records_format` writes the published files from it.
"""

from __future__ import annotations

import tomllib
from functools import cache
from pathlib import Path
from typing import Any, Literal

import msgspec

from arena.records import schema
from arena.records.model import RecordContent, SignedRecord
from harness.trace import EvaluationBody

SchemaName = Literal["record", "body"]
SCHEMA_NAMES: tuple[SchemaName, ...] = ("record", "body")
FIELDS = Path(__file__).parent / "golden" / "record_fields.toml"
DIALECT = "https://json-schema.org/draft/2020-12/schema"
_ROOTS: dict[SchemaName, tuple[type, str]] = {
    "record": (RecordContent, "The content of a record: what is hashed, signed and stored."),
    "body": (EvaluationBody, "The body of an evaluation: one episode as the host recorded it."),
}


@cache
def field_table() -> dict[str, dict[str, str]]:
    """What every field means, by structure and field."""
    table: dict[str, dict[str, str]] = tomllib.loads(FIELDS.read_text("utf-8"))
    return table


def build_schema(name: SchemaName) -> dict[str, Any]:
    """The schema of the code as it is, each field with its sentence. The record's also describes the envelope
    (`SignedRecord`), which is no part of the content. Raises KeyError for a field that has no sentence."""
    root, title = _ROOTS[name]
    envelope = (SignedRecord,) if root is RecordContent else ()
    _, components = msgspec.json.schema_components((root, *envelope), ref_template="#/$defs/{name}")
    for structure, shape in components.items():
        for field, about in shape.get("properties", {}).items():
            about["description"] = field_table()[structure][field]
    return {
        "$schema": DIALECT,
        "$id": f"agent-arena/{name}/1",
        "title": title,
        "$ref": f"#/$defs/{root.__name__}",
        "$defs": components,
    }


def published_schema(name: SchemaName) -> str:
    """The text of a published schema."""
    return (Path(schema.__path__[0]) / f"{name}.json").read_text("utf-8")
