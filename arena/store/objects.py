"""Bodies in an object store: a folder or an S3-compatible bucket, one zstd frame per object, named by its content.

`put` returns once the frames are durable (a folder: synced, with what leads to it; a bucket: acknowledged),
and an object is whole or absent. Keys are `<validator>/<first two digits>/<sha256>.zst`, so that a bucket's own rights
can hold validators apart. A location is one URL without secrets; credentials come from the environment (AWS_*). Nothing
here deletes, and nothing decides what a frame is worth: readers check it against its name.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import re
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from urllib.parse import SplitResult, parse_qs, quote, unquote, urlsplit

import obstore
from obstore import exceptions
from obstore.store import LocalStore, S3Store

from arena.records.model import BodyFrame
from foundation.durable_files import replacing, sync_path
from foundation.errors import ArenaError

SUFFIX = ".zst"
LOG, _SEQ_DIGITS = "log", 16  # where the copy of a log lies; names of one length, which sort as numbers
MARKER, MARKED = "marker", b"bodies of agent-arena\n"
AT_ONCE = 16
_FETCHED_AT_ONCE = 4 << 20
REQUEST_TIMEOUT = timedelta(seconds=30)
RETRIES = 3
FRAME_BYTES_MAX = 65 << 20  # a body's limit, and what a frame adds to bytes that do not compress

_PLAIN = re.compile(r"[A-Za-z0-9_-]{1,128}")
_S3_OPTIONS = ("endpoint", "region")
_REFUSALS = {  # S3's answers to a listing, which obstore passes on as text only
    "NoSuchBucket": "there is no such bucket",
    "403 Forbidden": "no right to list what is below the validator's own prefix",
    "401 Unauthorized": "the credentials in AWS_* are not accepted",
}
_UNUSABLE = (
    exceptions.InvalidPathError,
    exceptions.NotSupportedError,
    exceptions.PermissionDeniedError,
    exceptions.UnauthenticatedError,
    exceptions.UnknownConfigurationKeyError,
    FileExistsError,
    FileNotFoundError,
    NotADirectoryError,
    PermissionError,
    ValueError,
)


class BodyObjects:
    """The frames of bodies at one location. Safe to share between the tasks of one event loop."""

    def __init__(self, location: str, at: Path | S3Store) -> None:
        self.location, self._at = location, at
        self.folder = at if isinstance(at, Path) else None  # None: it is in a bucket
        self._slots = asyncio.Semaphore(AT_ONCE)
        self._lasting: set[Path] = set()  # folders whose own names are durable

    def __reduce__(self) -> tuple[Callable[[str], BodyObjects], tuple[str]]:
        return open_objects, (self.location,)  # another process opens them anew

    async def put(self, validator: str, frames: Sequence[BodyFrame]) -> None:
        """Write frames of a validator durably, over what stands under their names.

        Raises ArenaError V2028 when the store is away, V2029 when it refuses.
        """
        prefix = prefix_of(validator)
        with _coded(self.location):
            await self._write({_key(prefix, frame.body_sha256): frame.content for frame in frames})

    async def get(self, validator: str, body_sha256s: Sequence[str]) -> dict[str, bytes]:
        """The frames that are there, by the sha256 of the body; b"" for one too large to be a frame of ours.

        Raises ArenaError V2028 when the store is away, V2029 when it refuses or there is no such folder or bucket: an
        object counts as missing only where its store answers.
        """
        prefix = prefix_of(validator)
        with _coded(self.location):
            store = _opened(self._at)
            found = await asyncio.gather(*(self._get(store, _key(prefix, name)) for name in body_sha256s))
            if None in found:
                await self._require_location(store, prefix)
        return {name: content for name, content in zip(body_sha256s, found, strict=True) if content is not None}

    async def put_log_part(self, validator: str, last_seq: int, content: bytes) -> None:
        """Write a part of the copy of a log (`arena.store.log_copy`) durably, under the last record it holds. Raises as
        `put`."""
        with _coded(self.location):
            await self._write({_part_key(validator, last_seq): content})

    async def log_parts(self, validator: str, after_seq: int) -> list[int]:
        """The last records of the copy's parts that go beyond a record, in order. Raises as `get`."""
        prefix = f"{prefix_of(validator)}/{LOG}"
        with _coded(self.location):
            pages = obstore.list(_opened(self._at), prefix=prefix, offset=_part_key(validator, after_seq))
            return sorted([int(Path(meta["path"]).stem) async for page in pages for meta in page])

    async def log_part(self, validator: str, last_seq: int) -> bytes:
        """A part that `log_parts` named; b"" where it is gone since. Raises as `get`."""
        with _coded(self.location):
            return await self._get(_opened(self._at), _part_key(validator, last_seq)) or b""

    async def require_writable(self, validator: str) -> None:
        """Return when the store takes what this validator writes, and gives it back: tried with a marker beside its
        frames. Makes the folder. Raises ArenaError V2028 when the store is away, V2029 when it refuses."""
        key = f"{prefix_of(validator)}/{MARKER}"
        with _coded(self.location):
            await self._write({key: MARKED})
            if await self._get(_opened(self._at), key) != MARKED:
                raise ValueError("what was written is not what is read")

    async def _write(self, contents: dict[str, bytes]) -> None:
        """Durable when it returns."""
        if self.folder and not self.folder.is_dir():
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        store = _opened(self._at)
        await asyncio.gather(*(self._put(store, key, content) for key, content in contents.items()))
        if self.folder:
            await self._sync(self.folder, [self.folder / key for key in contents])

    async def _sync(self, root: Path, files: Sequence[Path]) -> None:
        """Files first, then the folders that name them, so that no name outlives a crash without its bytes. Side by
        side: a file system's journal commits together what waits together."""
        holding = {file.parent for file in files}
        folders = {part for file in files for part in file.parents if part == root or root in part.parents}
        naming = {folder.parent for folder in folders - self._lasting}
        for paths in (files, sorted(holding | naming)):
            await asyncio.gather(*(asyncio.to_thread(sync_path, path) for path in paths))
        self._lasting |= folders

    async def _put(self, store: LocalStore | S3Store, key: str, content: bytes) -> None:
        async with self._slots:
            await obstore.put_async(store, key, content, use_multipart=False)

    async def _get(self, store: LocalStore | S3Store, key: str) -> bytes | None:
        async with self._slots:
            try:
                found = await obstore.get_async(store, key)
            except FileNotFoundError:
                return None
            return bytes(await found.bytes_async()) if found.meta["size"] <= FRAME_BYTES_MAX else b""

    async def _require_location(self, store: LocalStore | S3Store, prefix: str) -> None:
        """Raises where there is no such folder or bucket, which answers of each object that it is not there. Looks
        below the validator's own prefix: it may have no right to list more."""
        if self.folder:
            self.folder.stat()
            return
        async for _ in obstore.list(store, prefix=f"{prefix}/-", chunk_size=1):
            break


def open_objects(location: str) -> BodyObjects:
    """The object store a URL names: `file:///path`, or `s3://bucket/prefix?endpoint=https://...&region=...`.

    Opening asks nothing of the store. Raises ArenaError V2029 for a location that can't be read or holds a secret.
    """
    return BodyObjects(location, _open_place(location))


class ObjectFolder:
    """What lies below a location, to be read: files by name. For one thread."""

    def __init__(self, location: str) -> None:
        """Raises as `open_objects`."""
        self._location, self._at = location, _open_place(location)

    def names(self) -> list[str]:
        """Every file below it, sorted. Raises ArenaError V2028 when the store is away, V2029 when it refuses or there
        is no such folder or bucket."""
        with _coded(self._location):
            return sorted(meta["path"] for page in obstore.list(_opened(self._at)) for meta in page)

    def fetch(self, name: str, path: Path) -> None:
        """Write a file of it to `path`, whole or not at all. Raises as `names`, V2029 for a file that is not there."""
        with _coded(self._location):
            stream = obstore.get(_opened(self._at), name).stream(_FETCHED_AT_ONCE)
            path.parent.mkdir(parents=True, exist_ok=True)
            with replacing(path) as file:
                for chunk in stream:
                    file.write(chunk)


def _opened(at: Path | S3Store) -> LocalStore | S3Store:
    """The store; a folder is opened late, since who only looks into it must not make it."""
    if not isinstance(at, Path):
        return at
    at.stat()
    return LocalStore(at)


def _open_place(location: str) -> Path | S3Store:
    # what may be shown of a location before it is known to hold no secret
    scheme, _, rest = location.partition("?")[0].partition("://")
    with _coded(f"{scheme}://{rest.rpartition('@')[2]}" if scheme == "s3" else location):
        url = urlsplit(location)
        if url.scheme == "file":
            folder = Path(unquote(url.path))
            if url.netloc or url.query or url.fragment or not folder.is_absolute():
                raise ValueError("a folder is file:///an/absolute/path")
            return folder
        if url.scheme == "s3":
            return _open_bucket(url)
        raise ValueError("not a file:// or s3:// URL")


def prefix_of(validator: str) -> str:
    """What the keys of a validator begin with: its hotkey, or a hash of one that no path could hold."""
    return validator if _PLAIN.fullmatch(validator) else "~" + hashlib.sha256(validator.encode()).hexdigest()


def folder_location(folder: Path) -> str:
    """The location of a folder."""
    return "file://" + quote(str(folder.absolute()))


def _open_bucket(url: SplitResult) -> S3Store:
    if "@" in url.netloc or "@" in unquote(url.query):
        raise ValueError("credentials come from the environment (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY)")
    options = parse_qs(url.query, strict_parsing=True) if url.query else {}
    unknown = sorted(set(options) - set(_S3_OPTIONS))
    if unknown or not url.netloc or url.fragment:
        raise ValueError(
            f"unknown option {unknown[0]}" if unknown else "a bucket is s3://bucket/prefix?endpoint=&region="
        )
    endpoint, region = (options.get(name, [None])[-1] for name in _S3_OPTIONS)
    return S3Store(
        url.netloc,
        prefix=unquote(url.path).strip("/") or None,
        config={**({"endpoint": endpoint} if endpoint else {}), **({"region": region} if region else {})},
        client_options={"timeout": REQUEST_TIMEOUT, "allow_http": (endpoint or "").startswith("http://")},
        retry_config={"max_retries": RETRIES, "retry_timeout": REQUEST_TIMEOUT},
    )


def _part_key(validator: str, last_seq: int) -> str:
    return f"{prefix_of(validator)}/{LOG}/{last_seq:0{_SEQ_DIGITS}d}{SUFFIX}"


def _key(prefix: str, body_sha256: str) -> str:
    return f"{prefix}/{body_sha256[:2]}/{body_sha256}{SUFFIX}"


@contextlib.contextmanager
def _coded(location: str) -> Iterator[None]:
    """Turns what obstore raises inside the block into coded errors. A location holds no secret: it may be shown."""
    try:
        yield
    except _UNUSABLE as error:
        raise ArenaError("V2029", f"{location}: {_reason(error)}") from error
    except (exceptions.BaseError, OSError) as error:
        for mark, reason in _REFUSALS.items():
            if mark in str(error):
                raise ArenaError("V2029", f"{location}: {reason}") from error
        raise ArenaError("V2028", f"{location}: {_reason(error)}") from error


def _reason(error: Exception) -> str:
    """The first line: what follows is a dump of the store's own structures."""
    return (str(error).splitlines() or [type(error).__name__])[0][:300]
