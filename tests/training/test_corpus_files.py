"""A corpus on disk, its report and its sheet: the same bytes, the same rows back, and nothing half-written."""

from __future__ import annotations

import csv
import hashlib
import html.parser
import io
import json
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import datasets
import msgspec
import pytest

from foundation.errors import ArenaError
from foundation.executors import executor_of
from tests.prove.corpus_scale_run import folder_sha256
from tests.training.labelled import make_labelled, select, stand_guard
from training.corpus.building import Filtered, Sources, arms_of, filter_sources, write_filtered
from training.corpus.corpus_files import (
    DATA,
    FUNNEL,
    LINEAGE,
    REJECTED,
    read_rows,
    write_corpus,
)
from training.corpus.model import CorpusRow, Lineage, Rejection, Rules, Trace
from training.corpus.report import (
    Funnel,
    plain_text,
    render_page,
    sections,
)
from training.corpus.sampling import (
    SHEET_COLUMNS,
    draw_sample,
    sheet_csv,
    sheet_html,
)
from training.corpus.selection import Task, kept_rows, rejections

LINEAGE_VALUE = Lineage(
    rules=Rules(),
    sources=("ab" * 32,),
    is_trusted_unsigned=False,
    tokenizer_sha256="stand-in/1",
    partition_sha256="cd" * 32,
    code_commit="f6",
    rows_sha256="",
)


@pytest.fixture(scope="module")
def filtered() -> tuple[list[CorpusRow], list[Rejection], Filtered]:
    traces = [one.trace for one in make_labelled(400, seed=7)]
    found = select([lambda: traces], Task(arms=(Rules(),)), stand_guard)
    rows = list(kept_rows([lambda: traces], found.appraised, found.decisions[0]))
    return rows, list(rejections(found.appraised, found.decisions[0])), found


def write(
    folder: Path, filtered: tuple[list[CorpusRow], list[Rejection], Filtered], *, is_reversed: bool = False
) -> Lineage:
    rows, left, found = filtered
    step = -1 if is_reversed else 1
    return write_corpus(
        folder, rows[::step], lineage=LINEAGE_VALUE, funnel=found.funnels[0], rejected=left[::step], guard=stand_guard
    )


def digests(folder: Path) -> dict[str, str]:
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_the_same_rows_in_any_order_are_the_same_bytes(tmp_path: Path, filtered: tuple) -> None:
    one, other = write(tmp_path / "a", filtered), write(tmp_path / "b", filtered, is_reversed=True)
    assert one == other
    assert digests(tmp_path / "a") == digests(tmp_path / "b")
    assert sorted(digests(tmp_path / "a")) == sorted([DATA, "README.md", LINEAGE, FUNNEL, REJECTED, "report.html"])


def test_the_folder_loads_as_a_dataset_with_messages_as_text(tmp_path: Path, filtered: tuple) -> None:
    write(tmp_path / "a", filtered)
    loaded = datasets.load_dataset(str(tmp_path / "a"), split="train", cache_dir=str(tmp_path / "cache"))
    assert loaded.num_rows == len(filtered[0])
    calls = [call for message in json.loads(loaded[0]["messages"]) for call in message.get("tool_calls", ())]
    assert all(isinstance(call["function"]["arguments"], str) and call["type"] == "function" for call in calls)
    assert loaded.features["coefficient_e4"].dtype == "int64"


def test_rows_that_are_not_the_lineages_are_noticed(tmp_path: Path, filtered: tuple) -> None:
    write(tmp_path / "a", filtered)
    write(tmp_path / "b", (filtered[0][1:], *filtered[1:]))
    (tmp_path / "b" / DATA).replace(tmp_path / "a" / DATA)
    with pytest.raises(ArenaError, match="lineage"):
        list(read_rows(tmp_path / "a"))


HOSTILE = '<script>alert(1)</script>"\n\x1b[31m'


def funnel_under(rules: Rules, count: int = 300) -> Funnel:
    traces = [one.trace for one in make_labelled(count, seed=11)]
    return select([lambda: traces], Task(arms=(rules,)), stand_guard).funnels[0]


@pytest.fixture(scope="module")
def funnel() -> Funnel:
    return funnel_under(Rules())


@pytest.fixture(scope="module")
def page(funnel: Funnel) -> str:
    return render_page(LINEAGE_VALUE, funnel)


def test_a_name_of_a_source_stays_on_its_line_and_is_no_markup(funnel: Funnel) -> None:
    first = msgspec.structs.replace(funnel.agents[0], name=HOSTILE, title=HOSTILE, traces=10**6)
    found = msgspec.structs.replace(funnel, agents=(first, *funnel.agents[1:]))
    assert "\x1b" not in plain_text(sections(found))
    text = render_page(LINEAGE_VALUE, found)
    assert "<script" not in text
    assert "&lt;script&gt;" in text


def test_the_page_needs_nothing_but_itself(page: str) -> None:
    class Tags(html.parser.HTMLParser):
        def __init__(self) -> None:
            super().__init__()
            self.seen: list[tuple[str, dict[str, str | None]]] = []

        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            self.seen.append((tag, dict(attrs)))

    tags = Tags()
    tags.feed(page)
    names = {tag for tag, _ in tags.seen}
    assert not names & {"script", "link", "img", "iframe", "object", "embed", "base"}
    assert not any({"src", "href", "srcset", "onload", "onclick"} & set(attributes) for _, attributes in tags.seen)
    assert "://" not in page and "@import" not in page and "url(" not in page


@pytest.fixture(scope="module")
def rows() -> list[CorpusRow]:
    traces = [one.trace for one in make_labelled(300, seed=13)]
    found = select([lambda: traces], Task(arms=(Rules(),)), stand_guard)
    kept = kept_rows([lambda: traces], found.appraised, found.decisions[0])
    secret = {"agent": "agent-secret", "team": "team-secret", "reward_e4": 7_531, "race_id": "race-secret"}
    return [
        msgspec.structs.replace(
            row, trace=msgspec.structs.replace(row.trace, facts=msgspec.structs.replace(row.trace.facts, **secret))
        )
        for row in kept
    ]


def test_neither_sheet_tells_who_wrote_a_trace_or_how_it_was_judged(rows: list[CorpusRow]) -> None:
    items, keys = draw_sample(rows, 20, seed=1)
    for sheet in (sheet_csv(items), sheet_html(items)):
        assert "secret" not in sheet and "7531" not in sheet and "emitter" not in sheet
        assert all(key["trace_id"] not in sheet and key["place"] not in sheet for key in keys)


def test_the_csv_has_empty_answers_and_runs_no_formula(rows: list[CorpusRow]) -> None:
    one = msgspec.structs.replace(rows[0].trace, query='=HYPERLINK("x")')
    items, _ = draw_sample([msgspec.structs.replace(rows[0], trace=one)], 1, seed=1)
    header, row = csv.reader(io.StringIO(sheet_csv(items)))
    assert tuple(header) == SHEET_COLUMNS
    assert row[1].startswith("'=") and row[3:] == ["", ""]


RULES = Rules()
ORIGIN = {"partition_sha256": "cd" * 32, "code_commit": "f6"}
KILLED = """
import os, signal, sys
from pathlib import Path
from tests.training.test_corpus_files import build, dealt
def progress(phase, done, total):
    if phase == sys.argv[2] and done == int(sys.argv[3]):
        os.kill(os.getpid(), signal.SIGKILL)
build(Path(sys.argv[1]), dealt(int(sys.argv[4])), workers=int(sys.argv[5]), progress=progress)
"""


class Dealt:
    """A shard that a process can be sent."""

    def __init__(self, traces: Sequence[Trace]) -> None:
        self._traces = tuple(traces)

    def __call__(self) -> Iterator[Trace]:
        return iter(self._traces)


def dealt(count: int) -> list[Dealt]:
    """The same 90 labelled traces, in `count` shards."""
    traces = [one.trace for one in make_labelled(90, seed=4)]
    return [Dealt(traces[start::count]) for start in range(count)]


def build(out: Path, shards: Sequence[Dealt], *, workers: int = 0, progress: object = None, arms: tuple[str, ...] = ()):
    """What `arena corpus build` does once its sources are open."""
    sources = Sources(shards=tuple(shards), hashes=("ab" * 32,), is_trusted_unsigned=False)
    ways = {"executor": executor_of(workers), "progress": progress}
    filtered = filter_sources(sources, Task(arms=(RULES,)), arms_of(RULES, arms), stand_guard, **ways)
    write_filtered(filtered, out, stand_guard, **ORIGIN, **ways)


@pytest.mark.parametrize(("phase", "at", "shards", "workers"), [("filter", 4, 9, 2), ("write", 3, 5, 1)])
def test_a_killed_build_leaves_nothing_and_ends_in_the_same_bytes(
    tmp_path: Path, phase: str, at: int, shards: int, workers: int
) -> None:
    build(tmp_path / "whole", dealt(1))
    out = tmp_path / "corpus"
    words = [sys.executable, "-c", KILLED, str(out), phase, str(at), str(shards), str(workers)]
    assert subprocess.run(words, check=False).returncode == -signal.SIGKILL
    assert not out.exists()
    build(out, dealt(shards))
    assert folder_sha256(out) == folder_sha256(tmp_path / "whole")
    assert sorted(one.name for one in tmp_path.iterdir()) == ["corpus", "whole"]
