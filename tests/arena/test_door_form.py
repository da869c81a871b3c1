"""How a submission's form is read from bytes: as the standard library reads its headers, and never for long."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arena.door.form import HEADER_BYTES_MAX, SubmissionForm, read_form
from foundation.errors import ArenaError

FORM = SubmissionForm(agent_name="one", source=b"two\r\n--", submitted_ms=3, signature="four")
CONTENTS = {"agent_name": b"one", "file": b"two\r\n--", "submitted_ms": b"3", "signature": b"four"}

# no lone backslash: the standard library takes the one in `"\\"` for an escape of the quote


def body_between(boundary: str, heads: dict[str, str]) -> bytes:
    return b"".join(
        b"--%s\r\n%s\r\n\r\n%s\r\n" % (boundary.encode(), heads[name].encode("latin-1"), content)
        for name, content in CONTENTS.items()
    ) + b"--%s--\r\n" % (boundary.encode())


def plain_head(name: str) -> str:
    return f'Content-Disposition: form-data; name="{name}"'


PLAIN_HEADS = {name: plain_head(name) for name in CONTENTS}


HEAD = b'--b\r\ncontent-disposition: form-data; name="%s"\r\n\r\n'
PART = HEAD % b"file" + b"x\r\n"
KIND = "multipart/form-data; boundary=b"
WRONG = {
    "no boundary": (PART + b"--b--", "multipart/form-data"),
    "a content type that is long to read": (PART + b"--b--", 'multipart/form-data; boundary=b; x="' + ";" * 4_000),
    "no end": (PART, KIND),
    "parts missing": (PART + b"--b--\r\n", KIND),
    "a part twice": (PART * 2 + b"--b--", KIND),
    "ten thousand parts": (PART * 10_000 + b"--b--", KIND),
    "an unknown part": (HEAD % b"exec" + b"x\r\n--b--", KIND),
    "an encoded part": (
        PART.replace(b"\r\n\r\n", b"\r\ncontent-transfer-encoding: base64\r\n\r\n") + b"--b--",
        KIND,
    ),
    "a long head": (b"--b\r\n" + b"x" * 5_000 + b"\r\n\r\nx\r\n--b--", KIND),
    "a long disposition": (PART.replace(b"; name", b"; " + b'a="' * 300 + b"; name") + b"--b--", KIND),
    "nothing": (b"", KIND),
}


@pytest.mark.parametrize("encoding", ["7bit", "8bit ", " Binary", ""])
def test_a_part_may_say_that_it_is_not_encoded(encoding: str) -> None:
    head = f"Content-Transfer-Encoding: {encoding}\r\nContent-Disposition: form-data; filename=x; name=file"
    assert read_form(KIND, body_between("b", PLAIN_HEADS | {"file": head})) == FORM


@pytest.mark.parametrize("which", WRONG)
def test_what_is_no_form_is_refused(which: str) -> None:
    body, kind = WRONG[which]
    for now_ms in (None, 0):
        with pytest.raises(ArenaError, match="V2081"):
            read_form(kind, body, now_ms)


@given(st.text(st.sampled_from(' \t;="\\ab'), max_size=HEADER_BYTES_MAX - 40))
def test_any_short_header_is_read_or_refused(text: str) -> None:
    body = body_between("b", PLAIN_HEADS)
    try:
        assert read_form(f"multipart/form-data; boundary=b;{text}", body) == FORM
    except ArenaError as refused:
        assert refused.failure.code == "V2081"
