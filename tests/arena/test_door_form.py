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


LONG = st.sampled_from([";", ';\\"', "\\", '"', "; ", "a=", ' ; a="', "=;", "boundary=b;"]).flatmap(
    lambda piece: st.integers(HEADER_BYTES_MAX, 8_192).map(lambda size: (piece * size)[:size])
)


@given(LONG, st.sampled_from(["", ' x="', " boundary=b; x=", ' boundary="']))
def test_a_long_header_is_refused_by_its_size(text: str, before: str) -> None:
    for read in (read_form, lambda kind, body: read_form(kind, body, 0)):
        with pytest.raises(ArenaError, match=rf"the content type has more than {HEADER_BYTES_MAX} bytes"):
            read(f"multipart/form-data;{before}{text}", b"")
    heads = PLAIN_HEADS | {"file": f"content-disposition: form-data;{before}{text[: HEADER_BYTES_MAX + 1]}"}
    with pytest.raises(ArenaError, match=rf"a part's disposition has more than {HEADER_BYTES_MAX} bytes"):
        read_form("multipart/form-data; boundary=b", body_between("b", heads))


@given(st.text(st.sampled_from(' \t;="\\ab'), max_size=HEADER_BYTES_MAX - 40))
def test_any_short_header_is_read_or_refused(text: str) -> None:
    body = body_between("b", PLAIN_HEADS)
    try:
        assert read_form(f"multipart/form-data; boundary=b;{text}", body) == FORM
    except ArenaError as refused:
        assert refused.failure.code == "V2081"
