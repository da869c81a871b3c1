"""Where the packages of the Lucene engine are: importable already, or in the folder that `make prove` installs into."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Callable
from pathlib import Path

from harness.catalogue.lucene import java_thread

ROOT = Path(__file__).parents[2]
PACKAGES = Path(os.environ.get("ARENA_LUCENE_PACKAGES") or ROOT / "build" / "lucene")
REQUIREMENTS = ROOT / "harness" / "catalogue" / "requirements-lucene.txt"


def missing_lucene() -> str:
    """Why the engine cannot run here, or the empty string. Makes installed packages importable."""
    if importlib.util.find_spec("pyserini") is None and (PACKAGES / "pyserini").is_dir():
        sys.path.append(str(PACKAGES))
    if importlib.util.find_spec("pyserini") is None or importlib.util.find_spec("jnius") is None:
        return "the packages of the Lucene engine are not installed; `make prove` installs them into build/lucene"
    return ""


def lucene_terms() -> Callable[[str], list[str]]:
    """Anserini's English analyzer: text -> terms."""
    call = java_thread()

    def start() -> Callable[[str], list[str]]:
        import jnius

        analyzer = jnius.autoclass("io.anserini.analysis.DefaultEnglishAnalyzer").newDefaultInstance()
        analyze = jnius.autoclass("io.anserini.analysis.AnalyzerUtils").analyze
        return lambda text: list(analyze(analyzer, text).toArray())

    analyze: Callable[[str], list[str]] = call(start)
    return lambda text: call(analyze, text)
