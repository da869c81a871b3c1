"""How a submission's form is read from bytes: as the standard library reads its headers, and never for long."""

from __future__ import annotations

from email.message import Message

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from arena.door.form import HEADER_BYTES_MAX, SubmissionForm, read_form
from foundation.errors import ArenaError

TOKEN = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$&^_.+-"
BOUNDARY = TOKEN[:62] + "'()+_,-./:=? "
FORM = SubmissionForm(agent_name="one", source=b"two\r\n--", submitted_ms=3, signature="four")
CONTENTS = {"agent_name": b"one", "file": b"two\r\n--", "submitted_ms": b"3", "signature": b"four"}

spaces = st.text(" \t", max_size=2)
tokens = st.text(TOKEN, min_size=1, max_size=12)
# no lone backslash: the standard library takes the one in `"\\"` for an escape of the quote
quoted = st.lists(st.sampled_from(["a", "Z", " ", ";", "=", ":", ",", "é", '\\"', "\t"]), max_size=12).map(
    lambda pieces: '"' + "".join(pieces) + '"'
)


def body_between(boundary: str, heads: dict[str, str]) -> bytes:
    return b"".join(
        b"--%s\r\n%s\r\n\r\n%s\r\n" % (boundary.encode(), heads[name].encode("latin-1"), content)
        for name, content in CONTENTS.items()
    ) + b"--%s--\r\n" % (boundary.encode())


def plain_head(name: str) -> str:
    return f'Content-Disposition: form-data; name="{name}"'


PLAIN_HEADS = {name: plain_head(name) for name in CONTENTS}


@st.composite
def headers(draw: st.DrawFn, kind: str, name: str, spellings: st.SearchStrategy[str]) -> str:
    """A well-formed header in which the parameter `name` stands once, among others."""
    others = st.tuples(tokens.filter(lambda other: other.lower() != name), tokens | quoted)
    given_ones = [*draw(st.lists(others, max_size=4)), (draw(st.sampled_from([name, name.upper()])), draw(spellings))]
    text = draw(st.sampled_from([kind, kind.upper(), kind.title()]))
    for parameter, value in draw(st.permutations(given_ones)):
        text += f"{draw(spaces)};{draw(spaces)}{parameter}={value}"
    return text + draw(spaces)


def spelt(values: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return values.flatmap(
        lambda value: st.sampled_from([f'"{value}"', value] if set(value) <= set(TOKEN) else [f'"{value}"'])
    )


boundaries = st.text(BOUNDARY, min_size=1, max_size=70).filter(lambda text: text[-1] != " ")


def as_the_library_reads(field: str, value: str, parameter: str) -> str:
    message = Message()
    message[field] = value
    read = message.get_param(parameter, header=field)
    assert isinstance(read, str)
    return read


@given(headers("multipart/form-data", "boundary", spelt(boundaries)))
def test_a_boundary_is_what_the_standard_library_reads(content_type: str) -> None:
    assume(len(content_type) <= HEADER_BYTES_MAX)
    boundary = as_the_library_reads("content-type", content_type, "boundary")
    assume(f"\r\n--{boundary}".encode() not in b"\r\ntwo\r\n--")
    assert read_form(content_type, body_between(boundary, PLAIN_HEADS)) == FORM


@given(st.sampled_from(sorted(CONTENTS)).flatmap(lambda name: headers("form-data", "name", spelt(st.just(name)))))
def test_a_part_has_the_name_that_the_standard_library_reads(disposition: str) -> None:
    assume(len(disposition) < HEADER_BYTES_MAX)
    name = as_the_library_reads("content-disposition", disposition, "name")
    heads = PLAIN_HEADS | {name: f"content-type: text/plain\r\ncontent-disposition: {disposition}"}
    assert read_form("multipart/form-data; boundary=b", body_between("b", heads)) == FORM


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
