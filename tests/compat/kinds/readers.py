"""Readers: the test of each foreign package that reads what this project writes, at the release that is installed."""

from __future__ import annotations

import re
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.compat.installed import last_words, release_of, run_command
from tests.compat.rows import Finding, Kind

ROOT = Path(__file__).parents[3]
TESTS = {
    "inspect-ai": ("tests/arena/test_export_formats.py", "-k", "inspect"),
    "verifiers": ("tests/prove/test_verifiers_reader.py", "-m", "prove"),
    "datasets": ("tests/arena/test_export_agents.py", "-k", "tables_load"),
    "duckdb": ("tests/arena/test_export_agents.py", "-k", "query"),
    "polars": ("tests/arena/test_export_agents.py", "-k", "python_block"),
    "trl": ("tests/training/test_trl_templates.py",),
}


def examine(record: Path) -> Sequence[Finding]:
    """Red where a test fails, and where it is skipped: then nothing was read."""
    release = release_of(record)
    wanted = TESTS[release.split(" ")[0]]
    with tempfile.TemporaryDirectory(prefix="compat-readers-") as home:
        command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--rootdir", ROOT]
        outcome = run_command([*command, ROOT / wanted[0], *wanted[1:]], Path(home), PYTHONPATH=str(ROOT))
    summary = re.findall(r"\d+ (?:passed|failed|skipped|error)[^\n]*?(?= in [\d.]+)", outcome.text)
    is_red = outcome.status != 0 or not summary or "skipped" in summary[-1]
    result = summary[-1] if summary else last_words(outcome)
    return (Finding(name=release, ran=f"pytest {' '.join(wanted)}", result=result, is_red=is_red),)


KIND = Kind(
    folder="readers",
    patterns=tuple(f"*/lib/python3*/site-packages/{name.replace('-', '_')}-*.dist-info/RECORD" for name in TESTS),
    examine=examine,
)
