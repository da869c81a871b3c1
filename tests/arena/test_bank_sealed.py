"""Sealed batch files: signed, public in their notice alone, unreadable before their round, and what they committed to
after it."""

from __future__ import annotations

import stat
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from arena.bank.batch import read_batch, seal, write_batch
from arena.bank.partition_file import read_partition, read_public_manifest, write_partition
from arena.bank.sealing import (
    SealedFile,
    SignedNotice,
    decode_sealed,
    lock_batch,
    notice_bytes,
    open_batch,
    read_sealed,
    write_sealed,
)
from arena.chain.keys import keypair_signer, verify
from foundation.errors import ArenaError
from problems.titles import AcceptedTitles, reward_titles
from tests.arena.test_bank_partition import KEY, MANIFEST
from tests.arena.test_chain_timelock import STANDS, Stand
from tests.problems.stand import PROBLEMS

OPERATOR, STRANGER = keypair_signer("//Operator"), keypair_signer("//Stranger")
BATCH = seal("race-1", PROBLEMS, bytes(range(32)), pools=("train", "eval", "dev"), partition_sha256="ab" * 32)
TITLES = AcceptedTitles(
    name="qwen@bank-1", accepted={title: frozenset({"31415926"}) for title in sorted(reward_titles(PROBLEMS))}
)
TITLED = seal("race-1", PROBLEMS, bytes(range(32)), titles=TITLES)
ROUND = 1
replace = msgspec.structs.replace


def locked(stand: Stand, batch=BATCH, signer=OPERATOR) -> SealedFile:
    return lock_batch(batch, ROUND, timelock=stand.timelock, signer=signer, made_ms=1_800_000_000_000)


@pytest.fixture(params=STANDS)
def stand(request: pytest.FixtureRequest) -> Stand:
    return STANDS[request.param]


def code_of(caught: pytest.ExceptionInfo[ArenaError]) -> str:
    return caught.value.failure.code


# -- when it opens
def test_accepted_titles_lie_inside_and_cannot_be_read_before_the_round(stand):
    sealed = locked(stand, TITLED)
    held, public = msgspec.json.encode(sealed), notice_bytes(sealed)
    assert sealed.notice.titles == "qwen@bank-1"  # the matcher's name alone
    for secret in (b"31415926", *(title.encode() for title in TITLES.accepted)):
        assert secret in msgspec.json.encode(TITLES)
        assert secret not in sealed.ciphertext and secret not in held and secret not in public
    with pytest.raises(ArenaError, match=r"V2085.*race-1 opens at .*, round 1"):
        open_batch(sealed, None, timelock=stand.timelock)
    assert open_batch(sealed, stand.published, timelock=stand.timelock).titles == TITLES


def test_a_content_other_than_the_notice_committed_to_is_refused(stand):
    promised = locked(stand)
    for batch in (
        seal("race-2", PROBLEMS, bytes(range(32)), pools=BATCH.pools, partition_sha256="ab" * 32),
        seal("race-1", PROBLEMS, bytes(32), pools=BATCH.pools, partition_sha256="ab" * 32),
        seal("race-1", PROBLEMS, bytes(range(32)), pools=("train",) * 3, partition_sha256="ab" * 32),
        seal("race-1", PROBLEMS, bytes(range(32)), pools=BATCH.pools, partition_sha256="cd" * 32),
        seal("race-1", PROBLEMS[:2], bytes(range(32)), pools=BATCH.pools[:2], partition_sha256="ab" * 32),
        replace(BATCH, titles=TITLES),
    ):
        swapped = SealedFile(signed=promised.signed, ciphertext=locked(stand, batch).ciphertext)
        with pytest.raises(ArenaError) as caught:
            open_batch(swapped, stand.published, timelock=stand.timelock)
        assert code_of(caught) == "P4010"


# -- integrity and signature


def test_a_file_of_another_key_is_refused_whatever_it_says_of_itself(stand):
    foreign = locked(stand, signer=STRANGER)
    with pytest.raises(ArenaError, match="P4010"):
        decode_sealed(msgspec.json.encode(foreign), OPERATOR.hotkey, verify, "f")
    posing = replace(foreign.notice, signer=OPERATOR.hotkey)
    signed = SignedNotice(notice=posing, signature=STRANGER.sign(b"anything").hex())
    with pytest.raises(ArenaError, match=r"P4010.*the signature does not fit"):
        decode_sealed(msgspec.json.encode(replace(foreign, signed=signed)), OPERATOR.hotkey, verify, "f")


# -- at rest, whatever the file of a bank


def lay(kind: str, folder: Path) -> tuple[Path, Callable[[Path], object], object]:
    """Where it lies, how it is read, and what it holds."""
    path = folder / "file"
    if kind == "batch":
        write_batch(path, TITLED)
        return path, read_batch, TITLED
    if kind == "sealed":
        sealed = locked(STANDS["local"])
        write_sealed(path, sealed)
        return path, lambda path: read_sealed(path, OPERATOR.hotkey, verify), sealed
    write_partition(path, MANIFEST, KEY, OPERATOR)
    if kind == "partition":
        return path, lambda path: read_partition(path, verify).manifest, MANIFEST
    public = folder / "partitions" / f"{MANIFEST.sha256}.json"
    assert KEY.hex().encode() not in public.read_bytes()
    return public, lambda path: read_public_manifest(path, OPERATOR.hotkey, verify), MANIFEST


@pytest.mark.parametrize("kind", ["batch", "sealed", "partition", "public partition"])
def test_a_file_reads_back_equal_is_its_owners_and_is_refused_torn_or_with_a_flipped_byte(kind, tmp_path):
    path, read, held = lay(kind, tmp_path)
    assert read(path) == held
    assert kind == "public partition" or stat.S_IMODE(path.stat().st_mode) == 0o600
    content = path.read_bytes()
    for place in (-1, *range(0, len(content), 7)):
        damaged = bytearray(content[:-9] if place < 0 else content)
        damaged[place] ^= 1 << place % 7
        path.write_bytes(damaged)
        with pytest.raises(ArenaError) as caught:
            read(path)
        assert code_of(caught) in ("P4001", "P4003", "P4010", "P4026"), place
    path.unlink()
    with pytest.raises(ArenaError, match=f"P4001.*{path.name}"):
        read(path)
