"""Duplicates: traces that teach the same, found by what the model wrote.

`read` reduces a trace to a fingerprint of a few hundred bytes, and `likenesses` says of fingerprints offered
best first which repeat one that was kept before; nothing depends on the order traces were read in. Memory does not
follow their number: fingerprints and bands lie on disk.

A trace is normalised to what a model would learn from it: the query, and what the assistant wrote (thinking, text,
calls). Tool results are left out: they follow from the calls, and are nine tenths of the bytes. Case, spacing and
punctuation go, and the order of a call's arguments. Long numbers (product ids, times) become "the first, second, ...
id of this trace", so which one is looked at again still counts; other numbers of two digits and more (prices, budgets)
become one sign; single digits stay, since a page or a position is part of the policy. Ids of calls are no part of it.

Two traces are exact duplicates when their normal forms are equal. They are near duplicates when the sets of three-word
phrases are alike (Jaccard, `Rules.near_duplicate_e4`) *and* half of the words they searched for are the same: agents
write filled-in forms, and the same form about another product is another lesson. Both are estimated by MinHash
(`rensa`); a pair is compared when one of 32 bands agrees, which at the default of 0.7 finds 99.9 % of pairs that search
alike. A band remembers the first 32 kept traces of a value, the best by rank: a trace that resembles more than these
ranks far below the one or two that its problem may keep, and the cost stays linear.

On disk, in files without a name: every fingerprint in the order of offers; 64 bits of each band, sorted, which shows
what bands several traces have; and for each of these bands the numbers of its kept traces, in room made for them before
the first is compared. A trace that shares no band with another is never compared.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import os
import re
import struct
import tempfile
import zlib
from collections.abc import Iterable, Iterator, Sequence
from operator import itemgetter
from pathlib import Path
from typing import Literal

import msgspec
import numpy as np
from numpy.typing import NDArray
from rensa import RMinHash

from training.corpus.disk_sort import Numbers, sorted_numbers
from training.corpus.gates import query_of
from training.corpus.model import Trace

SEARCHED_SAME_E4 = 5_000

_BANDS, _PHRASE_ROWS, _SEARCH_ROWS = 32, 4, 1
_PHRASE_HASHES, _SEARCH_HASHES = _BANDS * _PHRASE_ROWS, _BANDS * _SEARCH_ROWS
_SEED = 20_260_801
_DIGEST_BYTES = 4  # of one MinHash value
_BAND_MEMBERS_MAX = 32
_ROOM_BITS = 6  # that _BAND_MEMBERS_MAX fits in
_RUN_BYTES = 4 << 20  # of a sort
_BATCH = 512  # pairs given to a sort at a time
_PRINT = np.dtype(  # a fingerprint on disk
    [
        ("index", "<u8"),
        ("normal_sha", "<u8", (2,)),
        ("phrases", "<u4", (_PHRASE_HASHES,)),
        ("searched", "<u4", (_SEARCH_HASHES,)),
    ]
)
_PRINT_HELD_BYTES = 1_000  # with what Python holds beside it
_MEMBER = struct.Struct("=I")  # one more than the number of a kept trace; 0 where there is none yet

_ID_DIGITS = 6
_NUMBER = re.compile(r"[0-9](?<!\w[0-9])[0-9]*(?:,[0-9]{3})*(?![0-9])(?:\.[0-9]+)?(?!\w)")
_WORD = re.compile(r"\w+")
_TURN = "\x1e"
_WORD_OR_SIGN = re.compile(rf"\w+|#|{_TURN}")

_Words = NDArray[np.uint64]

Likeness = Literal["duplicate", "near_duplicate"]


class TextReading(msgspec.Struct, frozen=True, gc=False):
    """What is read off one trace before its MinHash: hash of its normal form, hashes of phrases and words, repeated
    ones too."""

    normal_sha: bytes  # 16 bytes of sha256
    phrases: _Words
    searched: _Words


class Fingerprint(msgspec.Struct, frozen=True, gc=False):
    """What is kept of a trace to find its duplicates. Bytes are little-endian 32-bit MinHash values."""

    normal_sha: bytes
    phrases: bytes
    searched: bytes


def normal_words(trace: Trace) -> list[str]:
    """The normal form of a trace, word by word, with a sign before each turn."""
    parts = [trace.query or next((m.content for m in trace.messages if m.role == "user"), "")]
    for message in trace.messages:
        if message.role == "assistant":
            parts += (_TURN, message.reasoning, message.content)
            parts += [f"{call.name} {_even(call.arguments)}" for call in message.calls]
    names: dict[str, str] = {}

    def named(match: re.Match[str]) -> str:
        number = match[0]
        if len(number) == 1:
            return number
        if number.isdigit() and len(number) >= _ID_DIGITS:
            return names.setdefault(number, f"id{len(names)}")
        return "#"

    text = _NUMBER.sub(named, "\n".join(parts).lower())
    return _WORD_OR_SIGN.findall(text)


def read(trace: Trace) -> TextReading:
    """The reading of one trace."""
    words = normal_words(trace)
    queries = " ".join(
        query for m in trace.messages if m.role == "assistant" for c in m.calls if (query := query_of(c))
    )
    searched = _WORD.findall(queries) or _WORD.findall(trace.query.lower())
    hashes = _hashes(words)
    if len(hashes) > 2:
        hashes = hashes[:-2] * _MIX[0] + hashes[1:-1] * _MIX[1] + hashes[2:] * _MIX[2]
    return TextReading(
        normal_sha=hashlib.sha256(" ".join(words).encode("utf-8", "surrogatepass")).digest()[:16],
        phrases=hashes,
        searched=_hashes(searched),
    )


def fingerprints(readings: Sequence[TextReading]) -> list[Fingerprint]:
    """Fingerprints of readings, in their order."""
    phrases = _digests([reading.phrases for reading in readings], _PHRASE_HASHES)
    searched = _digests([reading.searched for reading in readings], _SEARCH_HASHES)
    return [
        Fingerprint(normal_sha=reading.normal_sha, phrases=one, searched=other)
        for reading, one, other in zip(readings, phrases, searched, strict=True)
    ]


def likenesses(
    offered: Iterable[tuple[int, Fingerprint]],
    near_e4: int | None,
    *,
    folder: Path | None = None,
    run_bytes: int = _RUN_BYTES,
) -> Iterator[tuple[int, Likeness | None]]:
    """Of fingerprints offered best first, each with a number that stands for it: what it is to those kept before it.

    None is one that is kept; what repeats it is not, and nothing is compared with that. `near_e4` None finds exact
    duplicates only. All are taken before the first answer. `folder` takes 664 bytes of each on disk, 528 while bands
    are sorted, and up to 660 where all are shared. Memory: up to nine `run_bytes`. Raises OSError when the disk does
    not take them.
    """
    with tempfile.TemporaryFile(dir=folder) as prints, tempfile.TemporaryFile(dir=folder) as members:

        def band_keys() -> Iterator[Numbers]:
            coming, first = iter(offered), 0
            while batch := list(itertools.islice(coming, _BATCH // _BANDS)):
                data = b"".join(
                    part
                    for index, one in batch
                    for part in (index.to_bytes(8, "little"), one.normal_sha, one.phrases, one.searched)
                )
                prints.write(data)
                keys = _band_keys(np.frombuffer(data, _PRINT), is_near=near_e4 is not None)
                numbers = np.arange(first, first + len(batch), dtype=np.uint64)
                yield np.stack([keys.ravel(), numbers.repeat(keys.shape[1])])
                first += len(batch)

        bands = shared_bands(sorted_numbers(band_keys(), folder=folder, run_bytes=run_bytes))
        shared = sorted_numbers(bands, folder=folder, run_bytes=run_bytes)
        by_number = itertools.groupby(_one_by_one(shared), itemgetter(0))
        ahead = next(by_number, None)
        prints.flush()
        count = prints.tell() // _PRINT.itemsize
        # zeros for as many as there can be: what nothing is written to takes no disk
        os.ftruncate(members.fileno(), count * (_BANDS + 1) * _MEMBER.size)

        @functools.lru_cache(maxsize=run_bytes // _PRINT_HELD_BYTES)  # those kept first are met again and again
        def print_of(number: int) -> bytes:
            return os.pread(prints.fileno(), _PRINT.itemsize, number * _PRINT.itemsize)

        for number in range(count):
            record = print_of(number)
            likeness: Likeness | None = None
            open_places: list[int] = []
            if ahead is not None and ahead[0] == number:
                met: set[int] = set()
                for _, band in ahead[1]:
                    place, room = band >> _ROOM_BITS, band & (1 << _ROOM_BITS) - 1
                    data = os.pread(members.fileno(), room * _MEMBER.size, place * _MEMBER.size)
                    seated = memoryview(data).cast("I").tolist()
                    met.update(seated)
                    if not seated[-1]:
                        open_places.append(place + seated.index(0))
                ahead = next(by_number, None)
                met.discard(0)
                kept = np.frombuffer(b"".join(print_of(one - 1) for one in sorted(met)), _PRINT)
                likeness = likeness_to(kept, np.frombuffer(record, _PRINT), near_e4)
            if likeness is None:
                for place in open_places:
                    os.pwrite(members.fileno(), _MEMBER.pack(number + 1), place * _MEMBER.size)
            yield int.from_bytes(record[:8], "little"), likeness


def _band_keys(prints: NDArray[np.void], *, is_near: bool) -> _Words:
    """A row for each fingerprint: 64 bits of its normal form, which is a band like others, and of each band. A
    comparison decides, so keys that happen to be equal cost time and no more."""
    normal = prints["normal_sha"][:, :1]
    if not is_near:
        return normal
    values = np.concatenate(
        [
            prints["phrases"].reshape(-1, _BANDS, _PHRASE_ROWS),
            prints["searched"].reshape(-1, _BANDS, _SEARCH_ROWS),
        ],
        axis=2,
    )
    return np.concatenate([normal, (values * _BAND_MIX).sum(axis=2) + _BAND_SALT], axis=1)


def likeness_to(kept: NDArray[np.void], one: NDArray[np.void], near_e4: int | None) -> Likeness | None:
    """What one fingerprint is to those kept that share a band with it."""
    if (kept["normal_sha"] == one["normal_sha"]).all(axis=1).any():
        return "duplicate"
    if near_e4 is None:
        return None
    alike = (kept["phrases"] == one["phrases"]).sum(axis=1) * 10_000 >= near_e4 * _PHRASE_HASHES
    about = (kept["searched"] == one["searched"]).sum(axis=1) * 10_000 >= SEARCHED_SAME_E4 * _SEARCH_HASHES
    return "near_duplicate" if (alike & about).any() else None


def shared_bands(pieces: Iterable[Numbers]) -> Iterator[Numbers]:
    """Of pairs sorted by key, batches for the values of those keys that several have: value, and the key's room.

    A room is the place of its first entry times 64, and how many entries it has: one for each value, at most 32.
    """

    def not_alone() -> Iterator[Numbers]:
        for piece in pieces:
            is_same = piece[0, 1:] == piece[0, :-1]
            # pieces may part a key: the first and the last are looked at below
            yield piece[:, np.insert(is_same, 0, True) | np.append(is_same, True)]

    def rooms() -> Iterator[tuple[int, int]]:
        place = 0
        for _, group in itertools.groupby(_one_by_one(not_alone()), itemgetter(0)):
            first = list(itertools.islice(group, _BAND_MEMBERS_MAX))
            if len(first) > 1:
                for _, value in itertools.chain(first, group):
                    yield value, place << _ROOM_BITS | len(first)
                place += len(first)

    every = rooms()
    while batch := list(itertools.islice(every, _BATCH)):
        yield np.array(batch, np.uint64).T


def _one_by_one(pieces: Iterable[Numbers]) -> Iterator[list[int]]:
    for piece in pieces:
        for start in range(0, piece.shape[1], _BATCH):
            yield from piece[:, start : start + _BATCH].T.tolist()


_BAND_MIX = np.random.default_rng(_SEED).integers(1, 2**63, _PHRASE_ROWS + _SEARCH_ROWS, np.uint64) * 2 + 1
_BAND_SALT = np.random.default_rng(_SEED + 1).integers(0, 2**63, _BANDS, np.uint64)
_MIX = np.array([0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9], np.uint64)


class _WordHashes(dict[str, int]):
    """64-bit hashes of words, remembered: the common ones come early."""

    def __missing__(self, word: str) -> int:
        data = word.encode("utf-8", "surrogatepass")
        value = zlib.crc32(data) << 32 | zlib.crc32(data, 0x5EED)
        if len(self) < 1 << 16:
            self[word] = value
        return value


_WORD_HASHES = _WordHashes()


def _hashes(words: Sequence[str]) -> _Words:
    return np.fromiter(map(_WORD_HASHES.__getitem__, words), np.uint64, len(words))


def _digests(sets: Sequence[_Words], hashes: int) -> list[bytes]:
    if not sets:
        return []
    rows = RMinHash.digest_matrix_from_flat_token_hashes(
        np.concatenate(sets), [0, *np.cumsum([len(one) for one in sets]).tolist()], hashes, _SEED
    ).to_rows()
    return [np.array(row, "<u4").tobytes() for row in rows]


def _even(arguments: str) -> str:
    """Arguments with their keys sorted; text that is no JSON as it stands."""
    try:
        return msgspec.json.encode(msgspec.json.decode(arguments), order="deterministic").decode()
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
        return arguments
