"""Duplicates: traces that teach the same, found by what the model wrote.

`fingerprint` reduces a trace to a few hundred bytes, and `likenesses` says of fingerprints offered
best first which repeat one that was kept before; nothing depends on the order traces were read in. Fingerprints and
bands lie in mapped files, a kilobyte each, whose pages the system takes back when it needs the memory.

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
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import re
import sqlite3
import tempfile
import zlib
from array import array
from collections.abc import Iterable, Iterator, Sequence
from typing import IO, Any, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray
from rensa import RMinHash

from training.corpus.gates import query_of
from training.corpus.model import Fingerprint, Trace


def sorted_on_disk(pairs: Iterable[tuple[bytes, bytes]]) -> Iterator[tuple[bytes, bytes]]:
    """Pairs by key, then by value, whatever their number, in an empty database where the system puts what is temporary.
    Raises OSError or sqlite3.Error when the disk is full.
    """
    with tempfile.NamedTemporaryFile() as file:  # SQLite has it open when the name goes
        store = sqlite3.connect(file.name, isolation_level=None, check_same_thread=False)
        for pragma in ("journal_mode = OFF", "locking_mode = EXCLUSIVE", "synchronous = OFF", "cache_size = -8192"):
            store.execute(f"PRAGMA {pragma}")
        store.execute("CREATE TABLE pair (key BLOB, value BLOB)")
    with contextlib.closing(store):
        store.execute("BEGIN")
        store.executemany("INSERT INTO pair VALUES (?, ?)", pairs)
        store.execute("COMMIT")
        yield from store.execute("SELECT key, value FROM pair ORDER BY key, value")


SEARCHED_SAME_E4 = 5_000

_BANDS, _PHRASE_ROWS, _SEARCH_ROWS = 32, 4, 1
_PHRASE_HASHES, _SEARCH_HASHES = _BANDS * _PHRASE_ROWS, _BANDS * _SEARCH_ROWS
_SEED = 20_260_801
_BAND_MEMBERS_MAX = 32
_BATCH = 64  # fingerprints put down at a time
_ZEROS = 1 << 18  # numbers written at a time
_PRINT = np.dtype(  # a fingerprint on disk
    [
        ("normal_sha", "<u8", (2,)),
        ("phrases", "<u4", (_PHRASE_HASHES,)),
        ("searched", "<u4", (_SEARCH_HASHES,)),
    ]
)
_ROOM = 1 + np.arange(_BAND_MEMBERS_MAX)  # of the kept of a band, behind how many they are

_ID_DIGITS = 6
_NUMBER = re.compile(r"([0-9](?=[0-9,.])(?<!\w[0-9])[0-9]*(?:,[0-9]{3})*(?![0-9])(?:\.[0-9]+)?(?!\w))")
_WORD = re.compile(r"\w+")
_TURN = "\x1e"
_ODD_SIGN = re.compile(r"[^\x00-\x7f\w]")
_BLANKED = bytes(code if code > 127 or chr(code).isalnum() or chr(code) in f"_#{_TURN}" else 32 for code in range(256))

_Words = NDArray[np.uint64]

Likeness = Literal["duplicate", "near_duplicate"]


def normal_words(trace: Trace) -> list[bytes]:
    """The normal form of a trace, word by word, with a sign before each turn."""
    parts = [trace.query or next((m.content for m in trace.messages if m.role == "user"), "")]
    for message in trace.messages:
        if message.role == "assistant":
            parts += (_TURN, message.reasoning, message.content)
            parts += [f"{call.name} {_even(call.arguments)}" for call in message.calls]
    pieces = _NUMBER.split("\n".join(parts).lower())  # every other one is a number
    ids = (f"id{number}" for number in itertools.count())
    named = {
        number: number if len(number) == 1 else next(ids) if number.isdigit() and len(number) >= _ID_DIGITS else "#"
        for number in dict.fromkeys(pieces[1::2])
    }
    pieces[1::2] = map(named.__getitem__, pieces[1::2])
    text = "".join(pieces).replace("#", " # ").replace(_TURN, f" {_TURN} ")
    if not text.isascii():
        text = _ODD_SIGN.sub(" ", text)
    return text.encode().translate(_BLANKED).split()


def fingerprint(trace: Trace) -> Fingerprint:
    """What is compared of a trace."""
    words = normal_words(trace)
    queries = " ".join(
        query for m in trace.messages if m.role == "assistant" for c in m.calls if (query := query_of(c))
    )
    searched = _WORD.findall(queries) or _WORD.findall(trace.query.lower())
    hashes = _hashes(words)
    if len(hashes) > 2:
        hashes = hashes[:-2] * _MIX[0] + hashes[1:-1] * _MIX[1] + hashes[2:] * _MIX[2]
    return Fingerprint(
        normal_sha=hashlib.sha256(b" ".join(words)).digest()[:16],
        phrases=_digest(hashes, _PHRASE_HASHES),
        searched=_digest(_hashes([word.encode("utf-8", "surrogatepass") for word in searched]), _SEARCH_HASHES),
    )


def likenesses(
    offered: Iterable[tuple[int, Fingerprint]], near_e4: int | None
) -> Iterator[tuple[int, Likeness | None]]:
    """Of fingerprints offered best first, each with a number that stands for it: what it is to those kept before it.

    None is one that is kept; what repeats it is not, and nothing is compared with that. `near_e4` None finds exact
    duplicates only. All are taken before the first answer; they lie on disk. Raises OSError when the disk does not
    take them.
    """
    numbers, coming = array("Q"), iter(offered)
    with tempfile.TemporaryFile() as prints_file, tempfile.TemporaryFile() as keys_file:
        while batch := list(itertools.islice(coming, _BATCH)):
            packed = b"".join(one.normal_sha + one.phrases + one.searched for _, one in batch)
            prints_file.write(packed)
            keys_file.write(_band_keys(np.frombuffer(packed, _PRINT), is_near=near_e4 is not None).tobytes())
            numbers.extend(number for number, _ in batch)
        if not numbers:
            return
        prints = _mapped(prints_file, _PRINT)
        bands = _Bands(_mapped(keys_file, np.dtype(np.int64)).reshape(len(numbers), -1))
    for place, number in enumerate(numbers):
        met = bands.kept_beside(place)
        likeness = likeness_to(prints[met], prints[place], near_e4) if len(met) else None
        if likeness is None:
            bands.keep(place)
        yield number, likeness


def _mapped(file: IO[bytes], kind: np.dtype[Any]) -> NDArray[Any]:
    """What a file holds. It is written whole before, so that a full disk raises OSError and sends no signal."""
    file.flush()
    return np.asarray(np.memmap(file, kind, "r+"))


class _Bands:
    """For each band that two or more share, the places of the first kept, for as many as it has room. On disk."""

    def __init__(self, keys: NDArray[np.int64]) -> None:
        """`keys`: a row for each place. They are written over: with where a band's room begins, 0 for one of no room.
        Meanwhile memory holds some fifty bytes a place. Raises OSError when the disk is full.
        """
        self._begins, end = keys, 1
        for band in self._begins.T:
            _, which, counts = np.unique(band, return_inverse=True, return_counts=True)
            sizes = np.where(counts > 1, 1 + np.minimum(counts, _BAND_MEMBERS_MAX), 0)
            band[:] = np.where(sizes > 0, end + np.cumsum(sizes) - sizes, 0)[which]
            end += int(sizes.sum())
        with tempfile.TemporaryFile() as file:
            for _ in range(0, end + _BAND_MEMBERS_MAX, _ZEROS):
                file.write(bytes(4 * _ZEROS))
            self._rooms = _mapped(file, np.dtype(np.uint32))

    def kept_beside(self, place: int) -> NDArray[np.uint32]:
        """Those kept that share a band with this one."""
        begins = self._begins[place]
        held = self._rooms[begins[:, None] + _ROOM]
        found: NDArray[np.uint32] = np.unique(held[self._rooms[begins, None] >= _ROOM])
        return found

    def keep(self, place: int) -> None:
        """Remember this one in its bands that have room."""
        begins = self._begins[place]
        counts = self._rooms[begins]
        is_open = (begins > 0) & (counts < _BAND_MEMBERS_MAX)
        self._rooms[begins[is_open]] += 1
        self._rooms[begins[is_open] + counts[is_open] + 1] = place


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


def likeness_to(kept: NDArray[np.void], one: np.void, near_e4: int | None) -> Likeness | None:
    """What one fingerprint is to those kept that share a band with it."""
    if (kept["normal_sha"] == one["normal_sha"]).all(axis=1).any():
        return "duplicate"
    if near_e4 is None:
        return None
    about = kept[(kept["searched"] == one["searched"]).sum(axis=1) * 10_000 >= SEARCHED_SAME_E4 * _SEARCH_HASHES]
    alike = (about["phrases"] == one["phrases"]).sum(axis=1) * 10_000 >= near_e4 * _PHRASE_HASHES
    return "near_duplicate" if alike.any() else None


_BAND_MIX = np.random.default_rng(_SEED).integers(1, 2**63, _PHRASE_ROWS + _SEARCH_ROWS, np.uint64) * 2 + 1
_BAND_SALT = np.random.default_rng(_SEED + 1).integers(0, 2**63, _BANDS, np.uint64)
_MIX = np.array([0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9], np.uint64)


class _HashOfWord(dict[bytes, int]):
    """Hashes by word: the common ones are met again and again."""

    def __missing__(self, word: bytes) -> int:
        if len(self) >= 1 << 16:
            self.clear()
        self[word] = made = zlib.crc32(word) << 32 | zlib.crc32(word, 0x5EED)
        return made


_HASH = _HashOfWord()


def _hashes(words: Sequence[bytes]) -> _Words:
    return np.fromiter(map(_HASH.__getitem__, words), np.uint64, len(words))


def _digest(values: _Words, hashes: int) -> bytes:
    rows = RMinHash.digest_matrix_from_flat_token_hashes(values, [0, len(values)], hashes, _SEED).to_rows()
    return np.array(rows[0], "<u4").tobytes()


def _even(arguments: str) -> str:
    """Arguments with their keys sorted; other text as it stands."""
    try:
        return msgspec.json.encode(msgspec.json.decode(arguments), order="deterministic").decode()
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
        return arguments
