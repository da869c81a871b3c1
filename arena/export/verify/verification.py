"""Verification of an export, offline: from the manifest down to each byte of each view.

It trusts the signature check it is given and nothing else, needs no store, and raises nothing for whatever the
folder holds: each thing wrong is a place with what is wrong there. It finds any changed byte, any file lost or added,
any row changed, dropped, doubled, swapped or cut off, a row that the release rule or the request keeps back, and a view
that is not what its format makes of the log. It can't tell why a stub is a stub: that is the exporter's word.
"""

from __future__ import annotations

import tempfile
from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec

from arena.chain.port import Verifier
from arena.export.model import Manifest
from arena.export.reading import VerdictFile, read_lines
from arena.export.selection import check_request
from arena.export.verify.line_scan import ScannedRow, look_all
from arena.export.verify.rows import LogRows, Remaking
from arena.export.writing.manifest import CHECKSUM, MANIFEST, SIGNATURE, read_manifest, signer_of
from arena.export.writing.shards import LOG, REFERENCES, file_hash, require_views, shard_name
from arena.records.log import Checkpoint, read_checkpoint
from arena.records.verification import LogCheck, VerifyReport
from foundation.codes.names import VERIFIER_DIED
from foundation.errors import ArenaError
from foundation.executors.port import HERE, Executor
from foundation.garbage import rare_collections
from foundation.progress import PhaseProgress

WRONG_KEPT = 100
_BESIDE = {MANIFEST, CHECKSUM, SIGNATURE}


class Wrong(msgspec.Struct, frozen=True, kw_only=True):
    """One place that is wrong: a file, or a record of the log."""

    place: str
    detail: str


class ExportReport(msgspec.Struct, frozen=True, kw_only=True):
    """What verification of an export found. `signer` is the hotkey that signed the manifest, "" for nobody."""

    validator: str = ""
    first_seq: int = 0
    last_seq: int = 0
    signer: str = ""
    trajectories: int = 0
    log: VerifyReport | None = None
    wrong: tuple[Wrong, ...] = ()

    @property
    def is_ok(self) -> bool:
        """True when nothing is wrong."""
        return not self.wrong


def verify_export(
    folder: Path,
    verify_signature: Verifier,
    *,
    executor: Executor = HERE,
    progress: PhaseProgress | None = None,
) -> ExportReport:
    """Verify a whole export. Files are looked at first: where one is not what the manifest says, rows are not read.

    `executor`: who looks at rows; the views are made again in this process. What is found is the same. Raises
    ArenaError V2052 when processes died: then nothing is known.
    """
    try:
        manifest = read_manifest(folder)
        signer = signer_of(folder, verify_signature)
    except ArenaError as error:
        return ExportReport(wrong=(Wrong(place=MANIFEST, detail=error.failure.detail),))
    log = manifest.log
    report = ExportReport(validator=log.validator, first_seq=log.first_seq, last_seq=log.last_seq, signer=signer)
    wrong = _wrong_files(folder, manifest)
    if wrong:
        return msgspec.structs.replace(report, wrong=tuple(wrong[:WRONG_KEPT]))
    try:
        points = _read_range(manifest, verify_signature)
        rows = _Rows(folder, manifest, verify_signature, executor, progress)
        with rare_collections():
            found, wrong = rows.verify(points)
    except ArenaError as error:
        if error.failure.code == VERIFIER_DIED:
            raise
        return msgspec.structs.replace(report, wrong=(Wrong(place="log", detail=error.failure.detail),))
    return msgspec.structs.replace(
        report, log=found, trajectories=manifest.trajectories, wrong=tuple(wrong[:WRONG_KEPT])
    )


def _wrong_files(folder: Path, manifest: Manifest) -> list[Wrong]:
    """Files that are missing, changed or nobody's."""
    wrong, named = [], {file.path: file for file in manifest.files}
    if len(named) != len(manifest.files):
        wrong.append(Wrong(place=MANIFEST, detail="it names a file twice"))
    present = {
        path.relative_to(folder).as_posix(): path
        for path in sorted(folder.rglob("*"))
        if path.is_symlink() or not path.is_dir()
    }
    for name in sorted(named.keys() | present.keys() - _BESIDE):
        if name not in present:
            detail = "the file is missing"
        elif name not in named:
            detail = "the manifest does not name this file"
        elif present[name].is_symlink() or not present[name].is_file():
            detail = "not a plain file"
        elif file_hash(present[name]) != (named[name].sha256, named[name].size_bytes):
            detail = "its bytes are not those the manifest names"
        else:
            continue
        wrong.append(Wrong(place=name.encode("utf-8", "backslashreplace").decode(), detail=detail))
    return wrong


def _read_range(manifest: Manifest, verify_signature: Verifier) -> list[Checkpoint]:
    """The signed checkpoints of the range's ends, held against request and start. Raises ArenaError V2050, V2073."""
    log, request = manifest.log, manifest.request
    check_request(request)
    require_views(request)
    end = read_checkpoint(log.end_note, verify_signature)
    points = [end]
    if (end.validator, end.size) != (log.validator, log.last_seq) or request.validator != log.validator:
        raise ArenaError("V2050", "the end note is not one of this log and size")
    if log.start.after_seq + 1 != log.first_seq or log.start.validator != log.validator:
        raise ArenaError("V2050", "the range does not begin where its start says")
    if log.start_note:
        start = read_checkpoint(log.start_note, verify_signature)
        points.append(start)
        if (start.validator, start.size) != (log.validator, log.start.after_seq):
            raise ArenaError("V2050", "the start note is not one of the tree the range begins with")
    return points


class _Rows:
    """The rows of one export, gone over twice."""

    def __init__(
        self,
        folder: Path,
        manifest: Manifest,
        verify_signature: Verifier,
        executor: Executor,
        progress: PhaseProgress | None,
    ) -> None:
        self._folder, self._manifest = folder, manifest
        self._verify_signature, self._executor, self._progress = verify_signature, executor, progress
        self._shards = _shards(manifest)

    def verify(self, points: list[Checkpoint]) -> tuple[VerifyReport, list[Wrong]]:
        """First chain, tree, signatures and references; then rules, trajectories and views. Raises ArenaError V2050."""
        check = LogCheck(points, starts=[self._manifest.log.start])
        with VerdictFile() as verdicts:
            rows = LogRows(self._manifest, verdicts, check)
            for path, scanned in self._scanned():
                if path == REFERENCES:
                    rows.take_reference(scanned)
                else:
                    rows.take(scanned)
            found = check.report()
            if found.defects:
                return found, [
                    Wrong(place=f"record {defect.seq}", detail=f"{defect.rule}: {defect.detail}")
                    for defect in found.defects
                ]
            rows.finish()
            with tempfile.TemporaryDirectory(prefix="arena-export-") as name, ThreadPoolExecutor(1) as threads:
                again = Remaking(self._folder, Path(name), self._manifest, rows, threads)
                made = again.run(self._shards, lambda done: self._tell(check.records + done))
            return found, _compare(self._manifest, made)

    def _scanned(self) -> Iterator[tuple[str, ScannedRow]]:
        """The lines of all files, looked at, each with its file. One that is no row is named by its number."""
        shards = [f"{LOG}/{shard_name(number)}" for number in range(self._shards)]
        paths = [REFERENCES, *shards] if (self._folder / REFERENCES).exists() else shards
        read: deque[tuple[str, int]] = deque()  # what is being looked at, in order
        before, ended = "", 0

        def lines() -> Iterator[bytes]:
            for path in paths:
                for number, line in enumerate(read_lines(self._folder / path), 1):
                    read.append((path, number))
                    yield line

        for scanned in look_all(lines(), self._verify_signature, self._executor):
            path, number = read.popleft()
            if scanned.finding is None:
                raise ArenaError("V2050", f"{path}, line {number}: {scanned.wrong}")
            yield path, scanned
            if path != before:
                self._tell(ended)
            before, ended = path, ended + (path != REFERENCES)
        self._tell(ended)

    def _tell(self, done: int) -> None:
        if self._progress:
            self._progress(done, 2 * (self._manifest.log.last_seq - self._manifest.log.first_seq + 1))


def _shards(manifest: Manifest) -> int:
    names = sorted(file.path for file in manifest.files if file.path.startswith(f"{LOG}/"))
    if names != [f"{LOG}/{shard_name(number)}" for number in range(len(names))]:
        raise ArenaError("V2050", "the shards of the log are not numbered from 0 on")
    return len(names)


def _compare(stated: Manifest, derived: Manifest) -> list[Wrong]:
    """Where the manifest or a view is not what the rows come to."""
    made = {file.path: file for file in derived.files}
    wrong = [
        Wrong(place=file.path, detail="it is not what its format makes of the log rows")
        for file in stated.files
        if made.get(file.path) != file
    ]
    missing = made.keys() - {file.path for file in stated.files}
    wrong += [Wrong(place=path, detail="the log rows make this file, and it is missing") for path in sorted(missing)]
    for name in Manifest.__struct_fields__:
        if getattr(stated, name) != getattr(derived, name) and not (wrong and name == "files"):
            wrong.append(Wrong(place=MANIFEST, detail=f"the rows do not bear out `{name}`"))
    return wrong
