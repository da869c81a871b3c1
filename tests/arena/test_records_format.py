"""The format of records is for ever: canonical bytes, chain values and the schema of every kind, held by files.

A deliberate change is a new record version: run this module (`python -m tests.arena.test_records_format`) to write the
golden values and the published schemas anew, and read the difference.
"""

from __future__ import annotations

import hashlib
import json
import tomllib
from functools import cache
from pathlib import Path
from typing import Any, Literal

import jsonschema
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from arena.records import schema
from arena.records.body import decode_body, decode_content, encode_body
from arena.records.log import first_head, head_after, message_of
from arena.records.model import Envelope, Payload, RecordContent, SignedRecord
from foundation.canonical import canonical_bytes
from foundation.errors import ArenaError
from harness.trace import EvaluationBody
from tests.arena.log_stand import HOST, START_MS, attempt, body, episode, gate, release, settlement

# -- the JSON Schema of records and bodies as the code is: types from structures, a sentence a field from a table
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


# -- what is held by files
FOLDER = Path(__file__).parent / "golden"
GOLDEN = FOLDER / "records.json"
BLIND = "0f" * 16
VALIDATOR = "5GrwvaEF5zXb26Fz9rcQpDWS57CtERHpNehXCPcNoHGKutQY"


def samples() -> dict[str, Payload]:
    payloads, _ = episode(1)
    evaluated, evaluation, verdict = payloads
    return {
        "attempt": evaluated,
        "attempt-abandoned": attempt(2),
        "evaluation": evaluation,
        "verdict": verdict,
        "settlement": settlement(),
        "release": release(),
        "gate": gate(1),
        "gate-person": gate(1, decided_by="person", outcome="accept"),
    }


def golden_now() -> dict[str, dict[str, str]]:
    """Bytes, hashes and chain of one log that holds every kind."""
    rows, head = {}, first_head(VALIDATOR)
    for name, payload in samples().items():
        content = canonical_bytes(RecordContent(recorded_ms=START_MS, blind=BLIND, host=HOST, payload=payload))
        sha256 = hashlib.sha256(content).hexdigest()
        fields = {"validator": VALIDATOR, "seq": head.seq + 1, "prev": head.hash, "content_sha256": sha256}
        record = Envelope(**fields, signature="")
        made = {"content_sha256": sha256, "prev": head.hash, "message": message_of(record).hex()}
        rows[name], head = {"content": content.decode(), **made}, head_after(record)
    rows["body"] = {"content": encode_body(body(1)).content.decode(), "content_sha256": body(1).body_hash()}
    return rows


def file_text(value: object) -> str:
    return json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False) + "\n"


@pytest.mark.parametrize("name", [*samples(), "body"])
def test_canonical_bytes_and_hashes_have_not_changed(name: str) -> None:
    assert golden_now()[name] == json.loads(GOLDEN.read_text("utf-8"))[name]


@pytest.mark.parametrize("name", SCHEMA_NAMES)
def test_the_published_schema_is_that_of_the_code(name: Any) -> None:
    assert file_text(build_schema(name)) == published_schema(name)


@pytest.mark.parametrize("name", [*samples(), "body"])
def test_every_kind_is_valid_under_the_published_schema_and_other_things_are_not(name: str) -> None:
    published = json.loads(published_schema("body" if name == "body" else "record"))
    jsonschema.Draft202012Validator.check_schema(published)
    validator = jsonschema.Draft202012Validator(published)
    stored = json.loads(json.loads(GOLDEN.read_text("utf-8"))[name]["content"])
    validator.validate(stored)
    validator.validate({**stored, "a_later_field": 1})
    for field in [field for field in stored if field in ("recorded_ms", "events", "problem_id")]:
        assert not validator.is_valid({**stored, field: 1.5})
        assert not validator.is_valid({key: value for key, value in stored.items() if key != field})


@given(st.binary(max_size=200))
def test_bytes_that_are_no_record_are_a_coded_failure(raw: bytes) -> None:
    for decode in (decode_content, decode_body):
        with pytest.raises(ArenaError, match="V2050"):
            decode(raw)


def test_what_is_no_record_of_this_version_is_refused() -> None:
    golden = json.loads(GOLDEN.read_text("utf-8"))
    content, body_content = (json.loads(golden[name]["content"]) for name in ("attempt", "body"))
    for wrong in (
        {**content, "version": 2},
        {**content, "payload": {"kind": "rebuttal", "of": "x"}},
        {"version": 2},
        [],
    ):
        with pytest.raises(ArenaError, match="V2050"):
            decode_content(canonical_bytes(wrong))
    with pytest.raises(ArenaError, match="version 2"):
        decode_body(canonical_bytes({**body_content, "version": 2}))


if __name__ == "__main__":
    GOLDEN.write_text(file_text(golden_now()), encoding="utf-8")
    for schema_name in SCHEMA_NAMES:
        path = Path(schema.__path__[0]) / f"{schema_name}.json"
        path.write_text(file_text(build_schema(schema_name)), encoding="utf-8")
