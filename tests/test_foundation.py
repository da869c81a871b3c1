"""What every room stands on: files that appear whole, and pauses between attempts."""

from __future__ import annotations

import gc
import pickle
import re
import stat

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foundation import codes
from foundation.backoff import Backoff
from foundation.canonical import canonical_bytes, read_canonical
from foundation.codes import CODES
from foundation.durable_files import SCRATCH, replacing, write_whole
from foundation.errors import ArenaError, redacted
from foundation.long_work import OBJECTS_MADE, rare_collections
from harness.inference.port import RetryLaterError


def test_a_file_is_replaced_when_the_block_ends_well_and_an_error_leaves_it_alone(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"old")
    with pytest.raises(ValueError, match="mid way"), replacing(path) as stream:
        stream.write(b"half")
        raise ValueError("mid way")
    assert path.read_bytes() == b"old"
    assert [each.name for each in tmp_path.iterdir()] == ["file"]
    with replacing(path) as stream:
        stream.write(b"new")
        assert path.read_bytes() == b"old"
    assert path.read_bytes() == b"new"
    assert [each.name for each in tmp_path.iterdir()] == ["file"]


def test_a_secret_is_never_readable_by_others_whatever_a_killed_writer_left(tmp_path):
    path = tmp_path / "secret"
    (tmp_path / f"secret{SCRATCH}").write_bytes(b"left open to all")
    write_whole(path, b"hush", mode=0o600)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert path.read_bytes() == b"hush"


@given(st.integers(1, 10_000), st.integers(1, 1_000_000), st.integers(0, 10_000))
def test_pauses_double_up_to_the_bound(first_ms, longer_ms, failures):
    backoff = Backoff(first_ms=first_ms, most_ms=first_ms + longer_ms)
    pause, following = backoff.pause_ms(failures), backoff.pause_ms(failures + 1)
    assert backoff.pause_ms(0) == 0 and backoff.pause_ms(1) == first_ms
    assert following == (min(2 * pause, backoff.most_ms) if failures else first_ms)


def test_an_error_comes_whole_out_of_another_process():
    for error in (ArenaError("P4001", "x", fix="do"), RetryLaterError("U3002", "x", retry_after_ms=5)):
        back = pickle.loads(pickle.dumps(error))
        assert (type(back), str(back), vars(back)) == (type(error), str(error), vars(error))


@pytest.mark.parametrize(("value", "why"), [({"a": ([0.5],)}, "no floats"), ([{"ä": 1}], "ASCII string keys")])
def test_what_has_no_canonical_bytes_is_refused_written_and_read(value, why):
    with pytest.raises(TypeError, match=why):
        canonical_bytes(value)
    with pytest.raises(msgspec.ValidationError, match=why):
        read_canonical(msgspec.json.encode(value), type(value))


def test_every_name_of_a_code_is_of_one_row_of_the_registry():
    named = [value for value in vars(codes).values() if isinstance(value, str) and re.fullmatch(r"[AVUP]\d{4}", value)]
    assert len(set(named)) == len(named) > 30
    assert set(named) <= CODES.keys()


def test_a_pass_looks_for_garbage_rarely_and_leaves_the_process_as_it_was() -> None:
    before = gc.get_threshold()
    with pytest.raises(ArenaError), rare_collections():
        assert gc.get_threshold() == (OBJECTS_MADE, *before[1:])
        raise ArenaError("V2050", "a pass that fails")
    assert gc.get_threshold() == before


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("wss://node.example/ws?apikey=S3CRET", "wss://node.example/ws?apikey=***"),
        ("wss://node.example/ws?apikey%3DS3CRET#apikey=S3CRET", "wss://node.example/ws?apikey%3D***#apikey=***"),
        ("postgresql://arena:a S3CRET@db/arena", "postgresql://***@db/arena"),
        ("wss://node.example/S3CRETS3CRETS3CRET9", "wss://node.example/***"),
        ("https://user:S3CRET@models.example/v1", "https://***@models.example/v1"),
        ("postgresql://arena:S3/CR@ET@db/arena?sslmode=require", "postgresql://***@db/arena?sslmode=require"),
        (
            "s3://bucket/a?endpoint=https://h&secret_access_key=S3CRET",
            "s3://bucket/a?endpoint=https://h&secret_access_key=***",
        ),
        ("http://127.0.0.1:9100/v1/tail?after=3", "http://127.0.0.1:9100/v1/tail?after=3"),
    ],
)
def test_no_url_that_is_shown_holds_a_secret(url: str, shown: str) -> None:
    assert redacted(f"{url} is away") == f"{shown} is away"
    assert "S3CRET" not in str(ArenaError("U3030", url)) + ArenaError("U3030", url).failure.detail
