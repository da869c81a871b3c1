"""Whether decoded bytes are canonical: the quick answer is the one that looks at everything."""

from __future__ import annotations

import json

import orjson
import pytest

from arena.records.body import decode_body, decode_content, encode_content, is_canonical
from arena.records.model import RecordContent
from foundation.canonical import canonical_bytes
from tests.arena.log_stand import HOST, attempt, episode, release, settlement

PAYLOADS, BODY = episode(1)
CONTENTS = [
    encode_content(RecordContent(recorded_ms=1, host=HOST, payload=payload))
    for payload in (*PAYLOADS, attempt(1), settlement(), release())
]
DECODED = [(content, decode_content(content)) for content in CONTENTS] + [(BODY.content, decode_body(BODY.content))]


def is_canonical_in_full(content: bytes, value: object) -> bool:
    """The slow answer: value and bytes are both looked at for what has no canonical form."""
    try:
        return content in (canonical_bytes(value), canonical_bytes(orjson.loads(content)))
    except (TypeError, orjson.JSONDecodeError, RecursionError):
        return False


@pytest.mark.parametrize(("content", "value"), DECODED)
def test_canonical_bytes_are_canonical(content: bytes, value: object) -> None:
    assert is_canonical(content, value) and is_canonical_in_full(content, value)


@pytest.mark.parametrize(("content", "value"), DECODED)
@pytest.mark.parametrize(
    ("change", "is_so"),
    [
        (lambda text: text[:-1] + ',"zz":1}', True),  # a field of a later release
        (lambda text: text[:-1] + ',"zz":1.5}', False),
        (lambda text: text[:-1] + ',"zz":{"\\u00e9":1}}', False),
        (lambda text: '{"zz":1,' + text[1:], False),
        (lambda text: text + " ", False),
        (lambda text: text.replace(":", ": ", 1), False),
        (lambda text: json.dumps(dict(reversed(json.loads(text).items())), separators=(",", ":")), False),
    ],
)
def test_other_bytes_of_the_same_value_get_the_answer_of_the_full_look(content, value, change, is_so) -> None:
    changed = change(content.decode()).encode()
    decode = decode_content if isinstance(value, RecordContent) else decode_body
    assert is_canonical(changed, decode(changed)) is is_canonical_in_full(changed, decode(changed)) is is_so
