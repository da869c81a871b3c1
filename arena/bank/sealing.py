"""Sealing ahead: an operator's problems dealt to the coming races, each batch locked to the round after its close.

Every batch has the same mix of buckets, whatever order the problems came in; no problem goes into two batches;
a batch is named after its race's close, since every node counts its own races. Clock, randomness and ports come from
the caller. What was left over, and what the partition refused, stays with the operator.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable, Collection, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

import msgspec
from msgspec.structs import replace

from arena.bank.batch import SALT_BYTES, Batch, OpenBatch, SealedProblem, decode_batch, encode_batch, seal
from arena.bank.partition_file import PoolAssignment
from arena.bank.signed import check_signed, decode_written, read_file, signed_bytes
from arena.chain.port import Beacon, BeaconRound, Signer, Timelock, Verifier
from foundation.durable_files import write_whole
from foundation.errors import ArenaError
from problems.model import BUCKETS
from problems.titles import AcceptedTitles, cut_titles


def deal(assigned: PoolAssignment, races: int, size: int, used_ids: Collection[str] = ()) -> tuple[PoolAssignment, ...]:
    """`size` problems for each of so many races, in the order of their public ids. Those whose public ids are in
    `used_ids` were sealed before, and are passed over.

    Raises ArenaError P4014 when there are too few problems left, P4009 when two share an id.
    """
    rows = sorted(
        (
            row
            for row in zip(assigned.problems, assigned.pools, assigned.cluster_ids, strict=True)
            if row[0].problem_id not in used_ids
        ),
        key=lambda row: row[0].problem_id,
    )
    for before, after in itertools.pairwise(rows):
        if before[0].problem_id == after[0].problem_id:
            raise ArenaError("P4009", after[0].problem_id)
    if len(rows) < races * size:
        left = f"{len(rows)} problems are left to race, {races} races take {races * size}"
        raise ArenaError("P4014", f"{left}; they make {len(rows) // size} batches of {size}")
    by_bucket = [row for bucket in BUCKETS for row in rows if row[0].bucket == bucket]
    made = []
    for number in range(races):
        hand = sorted(by_bucket[number::races][:size], key=lambda row: row[0].problem_id)
        problems, pools, cluster_ids = zip(*hand, strict=True)
        made.append(replace(assigned, problems=problems, pools=pools, cluster_ids=cluster_ids, refused=()))
    return tuple(made)


def lock_all(
    dealt: Sequence[PoolAssignment],
    closes_ms: Sequence[int],
    *,
    timelock: Timelock,
    beacon: Beacon,
    signer: Signer,
    random_bytes: Callable[[int], bytes],
    now_ms: Callable[[], int],
    titles: AcceptedTitles | None = None,
) -> Iterator[SealedFile]:
    """Each batch under a salt of its own, sealed to the first round after its race's close, and signed.

    Of `titles` each batch takes those of its own problems inside. Raises ArenaError P4001 when one is missing.
    """
    for one, close_ms in zip(dealt, closes_ms, strict=True):
        batch = seal(
            race_named(close_ms),
            one.problems,
            random_bytes(SALT_BYTES),
            pools=one.pools,
            cluster_ids=one.cluster_ids,
            partition_sha256=one.partition_sha256,
            titles=cut_titles(titles, one.problems) if titles else None,
        )
        opens_with = beacon.round_after(close_ms)
        yield lock_batch(batch, opens_with, timelock=timelock, signer=signer, made_ms=now_ms())


def race_named(closes_ms: int) -> str:
    """The bank's name for the race that closes then (unix milliseconds): `close-20261201T200000Z`."""
    return datetime.fromtimestamp(closes_ms / 1_000, UTC).strftime("close-%Y%m%dT%H%M%SZ")


_DOMAIN = b"agent-arena/sealed-batch/1\n"


class BatchNotice(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is public of a sealed batch. `race_id` is the bank's name for the race that closes before `round`."""

    version: Literal[1]
    race_id: str
    network: str  # the beacon
    round: int  # the first round after the race's close
    batch_sha256: str
    partition_sha256: str
    problems: tuple[SealedProblem, ...]
    ciphertext_sha256: str
    made_ms: int  # unix milliseconds, by the bank's clock
    signer: str  # hotkey, ss58
    titles: str = ""  # name of the matcher whose verdicts lie inside; "": none lie there

    @property
    def batch(self) -> Batch:
        """The batch as a race commits to it."""
        return Batch(batch_sha256=self.batch_sha256, partition_sha256=self.partition_sha256, problems=self.problems)


class SignedNotice(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A notice with the bank's signature (hex): the public form of a sealed batch file."""

    notice: BatchNotice
    signature: str


class SealedFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A sealed batch as it travels to validators."""

    signed: SignedNotice
    ciphertext: bytes

    @property
    def notice(self) -> BatchNotice:
        """What is public of it."""
        return self.signed.notice


def lock_batch(batch: OpenBatch, round_number: int, *, timelock: Timelock, signer: Signer, made_ms: int) -> SealedFile:
    """The batch, readable from that round on."""
    ciphertext, public = timelock.encrypt(encode_batch(batch), round_number), batch.public
    notice = BatchNotice(
        version=1,
        race_id=batch.race_id,
        network=timelock.network,
        round=round_number,
        **msgspec.structs.asdict(public),
        ciphertext_sha256=hashlib.sha256(ciphertext).hexdigest(),
        made_ms=made_ms,
        signer=signer.hotkey,
        titles=batch.titles.name if batch.titles else "",
    )
    signed = SignedNotice(notice=notice, signature=signer.sign(signed_bytes(_DOMAIN, notice)).hex())
    return SealedFile(signed=signed, ciphertext=ciphertext)


def open_batch(sealed: SealedFile, beacon_round: BeaconRound | None, *, timelock: Timelock) -> OpenBatch:
    """The batch inside. `beacon_round` is the file's round, None while it is not published.

    Raises ArenaError V2085 before the round, saying when it comes; P4026 for another round or another signature; P4010
    or P4003 to P4009 when the content is not what the notice committed to.
    """
    notice = sealed.notice
    if beacon_round is None:
        raise ArenaError("V2085", f"{notice.race_id} opens at {opening_time(notice, timelock)}, round {notice.round}")
    if (beacon_round.network, beacon_round.round) != (notice.network, notice.round):
        raise ArenaError("P4026", f"{notice.race_id} opens with round {notice.round}, not {beacon_round.round}")
    batch = decode_batch(timelock.decrypt(sealed.ciphertext, beacon_round), f"sealed batch of {notice.race_id}")
    found = (batch.race_id, batch.public, batch.titles.name if batch.titles else "")
    if found != (notice.race_id, notice.batch, notice.titles):
        raise ArenaError("P4010", f"sealed batch of {notice.race_id}: it is not what its notice committed to")
    return batch


def opening_time(notice: BatchNotice, timelock: Timelock) -> str:
    """The moment the batch opens, UTC, ISO 8601."""
    return datetime.fromtimestamp(timelock.opens_ms(notice.round) / 1_000, UTC).isoformat(timespec="seconds")


def notice_bytes(sealed: SealedFile) -> bytes:
    """The public form: the signed notice alone, one JSON object."""
    return msgspec.json.encode(sealed.signed)


def decode_sealed(content: bytes, bank_hotkey: str, verify: Verifier, place: str) -> SealedFile:
    """The file in these bytes. Raises ArenaError P4010 for any bytes but those the bank of that hotkey signed."""
    sealed = decode_written(content, SealedFile, place)
    notice = sealed.notice
    try:
        message = signed_bytes(_DOMAIN, notice)
    except (ValueError, TypeError) as error:
        raise ArenaError("P4010", f"{place}: {error}") from error
    check_signed(notice.signer, sealed.signed.signature, message, bank_hotkey, verify, place)
    if hashlib.sha256(sealed.ciphertext).hexdigest() != notice.ciphertext_sha256:
        raise ArenaError("P4010", f"{place}: the ciphertext is not the one that was signed")
    return sealed


def write_sealed(path: Path, sealed: SealedFile) -> None:
    """Write the file with mode 0600. Raises OSError when the folder can't be written."""
    write_whole(path, msgspec.json.encode(sealed), mode=0o600)


def read_sealed(path: Path, bank_hotkey: str, verify: Verifier) -> SealedFile:
    """The sealed batch in a file. Raises ArenaError P4001 when it can't be read, P4010 as `decode_sealed` does."""
    return decode_sealed(read_file(path), bank_hotkey, verify, str(path))
