"""The format of records is for ever: canonical bytes, chain values and the schema of every kind, held by files.

A deliberate change is a new record version: run this module (`python -m tests.arena.test_records_format`) to write the
files anew, and read the difference.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from arena.records.body import decode_body, decode_content, encode_body, encode_content
from arena.records.chain import first_head, record_hash, signing_message
from arena.records.model import HostFacts, Payload, RecordContent
from harness.trace import EvaluationBody
from problems.errors import ArenaError
from tests.arena.log_stand import HOST, START_MS, attempt, body, episode, release, settlement

FOLDER = Path(__file__).parent / "golden"
GOLDEN, SCHEMA = FOLDER / "records.json", FOLDER / "record_schema.json"
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
    }


def golden_now() -> dict[str, dict[str, str]]:
    """Bytes, hashes and chain of one log that holds every kind."""
    rows, head = {}, first_head(VALIDATOR).hash
    for seq, (name, payload) in enumerate(samples().items(), start=1):
        content = encode_content(RecordContent(recorded_ms=START_MS, host=HOST, payload=payload))
        sha256 = hashlib.sha256(content).hexdigest()
        message = signing_message(VALIDATOR, seq, head, sha256)
        rows[name] = {"content": content.decode(), "content_sha256": sha256, "prev": head, "message": message.hex()}
        head = record_hash(head, sha256)
    rows["body"] = {"content": encode_body(body(1)).content.decode(), "content_sha256": body(1).body_hash()}
    return rows


def schema_now() -> dict[str, object]:
    _, components = msgspec.json.schema_components([RecordContent, EvaluationBody], ref_template="#/$defs/{name}")
    return json.loads(json.dumps(components))  # tuples of defaults become lists, as in the file


@pytest.mark.parametrize("name", [*samples(), "body"])
def test_canonical_bytes_and_hashes_have_not_changed(name: str) -> None:
    assert golden_now()[name] == json.loads(GOLDEN.read_text("utf-8"))[name]


def test_the_schema_of_every_kind_and_of_the_body_has_not_changed() -> None:
    assert schema_now() == json.loads(SCHEMA.read_text("utf-8"))


@pytest.mark.parametrize("name", list(samples()))
def test_every_kind_survives_its_bytes(name: str) -> None:
    content = RecordContent(recorded_ms=START_MS, host=HOST, payload=samples()[name])
    assert decode_content(encode_content(content)) == content
    assert encode_content(decode_content(encode_content(content))) == encode_content(content)


def test_a_body_survives_its_bytes_and_is_named_by_its_own_hash() -> None:
    stored = encode_body(body(3))
    assert decode_body(stored.content) == body(3)
    assert stored.body_sha256 == body(3).body_hash()


def test_no_float_enters_a_record() -> None:
    with pytest.raises(TypeError, match="floats"):
        encode_content(RecordContent(recorded_ms=START_MS, host=HostFacts(episode_ms=1.5), payload=attempt(1)))


@given(st.binary(max_size=200))
def test_bytes_that_are_no_record_are_a_coded_failure(raw: bytes) -> None:
    for decode in (decode_content, decode_body):
        with pytest.raises(ArenaError, match="V2050"):
            decode(raw)


if __name__ == "__main__":
    for path, value in ((GOLDEN, golden_now()), (SCHEMA, schema_now())):
        path.write_text(json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False) + "\n", encoding="utf-8")
