"""The index builder: a documents file in, one complete index folder out, or nothing at all.

Two passes and sorted runs, so memory grows with documents and vocabulary but not with postings. The folder is made
beside its target and renamed when the manifest is in place: a reader never meets half an index. `intake.py` says which
documents are usable.
"""

from __future__ import annotations

import shutil
from array import array
from collections.abc import Iterator
from pathlib import Path

import msgspec
import numpy as np
import orjson

from foundation.canonical import content_hash
from harness.catalogue.analysis.analyzer import analyzer_sha256
from harness.catalogue.index import layout
from harness.catalogue.index.columns import write_columns
from harness.catalogue.index.external_sort import RunWriter, merge_runs
from harness.catalogue.index.first_pass import (
    STRIDE,
    FirstPass,
    LineFinding,
    Progress,
    lines_in_order,
    open_plain,
    read_intake,
)

BLOCK_DOCUMENTS = 100_000  # documents analysed before a sorted run is written


class BuildReport(msgspec.Struct, frozen=True, kw_only=True):
    """What was built; `findings` holds the first hundred malformed lines."""

    manifest: layout.IndexManifest
    findings: tuple[LineFinding, ...]


def build_index(
    source: Path,
    target: Path,
    *,
    is_strict: bool = False,
    block_documents: int = BLOCK_DOCUMENTS,
    progress: Progress = lambda phase, done, total: None,
) -> BuildReport:
    """Build the index of `source` (`.jsonl` or `.jsonl.gz`) at `target`, replacing an index that is there.

    Raises ArenaError: V2013 when the source cannot be read, V2012 when the target is in the way or not writable, P4005
    for duplicate ids, for a file without a usable document, and for a malformed line when `is_strict`.
    """
    with layout.folder_in_the_making(target, layout.MANIFEST) as folder:
        work = folder / "work"
        work.mkdir()
        with open_plain(source, work) as plain:
            intake = read_intake(plain, is_strict=is_strict, progress=progress)
            order = intake.order(source)
            lines = lines_in_order(plain, intake, order)
            counts = _write_postings(lines, len(order), folder, block_documents, progress)
        id_bytes = write_columns(intake, order, folder)
        shutil.rmtree(work)
        manifest = _describe(folder, source, intake, counts, id_bytes)
        layout.write_manifest(folder, manifest)
    return BuildReport(manifest=manifest, findings=tuple(intake.findings))


class _TermCounts(msgspec.Struct, frozen=True, kw_only=True):
    scored_documents: int
    total_terms: int
    terms: int
    postings: int
    pairs: int


def _write_postings(
    lines: Iterator[bytes], total: int, folder: Path, block_documents: int, progress: Progress
) -> _TermCounts:
    """Second pass, in document order: write the products and the runs, then merge the runs into postings."""
    writer = RunWriter(folder / "work")
    offsets = array("q", [0])
    with (folder / layout.PRODUCTS).open("wb", buffering=1 << 20) as products:
        for number, line in enumerate(lines):
            raw = orjson.loads(line)
            writer.add(number, raw["contents"])
            offsets.append(offsets[-1] + products.write(orjson.dumps(raw["product"]) + b"\n"))
            if (number + 1) % block_documents == 0:
                writer.flush()
            if number % STRIDE == 0:
                progress("analyse", number, total)
    writer.flush()
    progress("analyse", total, total)
    np.frombuffer(offsets, np.int64).astype("<i8").tofile(layout.array_path(folder, "offsets"))
    merged = merge_runs(writer, folder, progress)
    return _TermCounts(
        scored_documents=writer.scored_documents,
        total_terms=writer.total_terms,
        terms=merged.terms,
        postings=merged.postings,
        pairs=merged.pairs,
    )


def _describe(
    folder: Path, source: Path, intake: FirstPass, counts: _TermCounts, id_bytes: int
) -> layout.IndexManifest:
    files = tuple(layout.describe_file(path) for path in sorted(folder.iterdir()))
    content = layout.IndexContent(
        analyzer_sha256=analyzer_sha256(),
        documents=len(intake.ids),
        scored_documents=counts.scored_documents,
        total_terms=counts.total_terms,
        terms=counts.terms,
        postings=counts.postings,
        pairs=counts.pairs,
        id_bytes=id_bytes,
        files=files,
    )
    return layout.IndexManifest(
        content=content,
        content_sha256=content_hash(content),
        source=layout.describe_source(source),
        blank_dropped=intake.blank,
        malformed=intake.malformed,
    )
