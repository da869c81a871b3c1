"""The site is built strictly, asks nothing of another host and holds every command, setting, code and metric. Its pages
are true: tests that they name exist, commands run."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from foundation.codes import CODES
from neurons.cli.app import COMMANDS, main
from neurons.health.metrics import Metrics
from tests.readme_blocks import GUIDES

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
RUN_HERE = "<!-- run by tests/site/test_site.py -->\n```sh\n"


FETCHED = re.compile(  # what a browser fetches by itself for a page
    r'<(?:script|img|iframe|source|video|audio|embed|use)\b[^>]*?\b(?:src|xlink:href)="([^"]*)"'
    r'|<link\b(?![^>]*rel="(?:canonical|prev|next)")[^>]*?\bhref="([^"]*)"'
)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def text_of(page: Path) -> str:
    return re.sub(r"<[^>]+>", "", page.read_text("utf-8")).replace("&lt;", "<").replace("&amp;", "&")


def test_no_page_asks_anything_of_another_host(site: Path) -> None:
    pages = [page for page in site.rglob("*.html") if page.name != "404.html"]
    assert len(pages) > 60
    for page in pages:
        found = [target for pair in FETCHED.findall(page.read_text("utf-8")) for target in pair]
        assert any(found), page
        foreign = [target for target in found if re.match(r"(?:\w+:)?//", target)]
        assert not foreign, (page, foreign)
        # the theme's script would fetch these two by itself
        assert 'class="mermaid"' not in page.read_text("utf-8") and 'data-md-component="source"' not in page.read_text()
    for sheet in site.rglob("*.css"):
        assert not re.search(r"(?:url\(|@import\s*)['\"]?(?:https?:)?//", sheet.read_text("utf-8")), sheet


def test_the_references_hold_every_command_code_and_metric(site: Path) -> None:
    pages = {path.stem: text_of(path) for path in (site / "docs" / "reference").glob("*.html")}
    assert not [entry.name for entry in COMMANDS if f"arena {entry.name}" not in pages["commands"]]
    assert set(CODES) <= set(re.findall(r"\b[AVUP]\d{4}\b", pages["codes"]))
    names = {one.name + ("_total" if one.type == "counter" else "") for one in Metrics().registry.collect()}
    assert names == set(re.findall(r"\barena_\w+\b", pages["metrics"]))


def test_every_test_that_the_threat_model_names_exists() -> None:
    named = re.findall(r"`(tests/[\w/]+\.py)::(test_\w+)`", (DOCS / "threats.md").read_text("utf-8"))
    assert len(named) > 25
    for file, test in named:
        assert re.search(rf"^(?:async )?def {test}\(", (ROOT / file).read_text("utf-8"), re.MULTILINE), (file, test)


@pytest.fixture
def arena(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """An environment of its own."""
    for variable in list(os.environ):
        if variable.startswith(("ARENA_", "OPENAI_")):
            monkeypatch.delenv(variable)
    monkeypatch.setenv("ARENA_STATE_DIR", str(tmp_path / "state"))
    return tmp_path


def test_the_lines_that_need_nothing_run_as_printed(
    arena: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    parts = [page.read_text("utf-8").split(RUN_HERE)[1:] for page in GUIDES]
    lines = [line for found in parts for part in found for line in part.partition("```")[0].splitlines()]
    assert len(lines) >= 4
    for line in lines:
        with pytest.raises(SystemExit) as ended:
            main(line.split()[1:])
        assert not ended.value.code, (line, capsys.readouterr())
