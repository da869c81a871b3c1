"""`arena corpus rewrite` and `build --rewritten` over an export of episodes that a program drove."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from neurons.cli.app import main
from tests.training.firehose import Firehose, real_episodes
from tests.training.firehose_export import write_records
from tests.training.lifted_rows import compare
from training.corpus.corpus_files import read_rows
from training.corpus.model import CorpusRow

LOOSE = ("--rule", "coefficient_e4_min=0")


@pytest.fixture(scope="module")
def export(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("driven")
    episodes = real_episodes(folder, counts={"product": 6}, agents=("subtask", "baseline:scripted-expert"))
    write_records(Firehose(episodes).as_recorded(), folder / "export")
    return folder / "export"


@pytest.fixture(scope="module")
def thoughts(export: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("thoughts") / "out"
    scripted = ("--base-url", "scripted", "--state-dir", out.parent / "state")
    assert arena("rewrite", export, "--out", out, *scripted, *LOOSE) == 0
    return out


def arena(*words: object) -> int:
    with pytest.raises(SystemExit) as ended:
        main(["corpus", *map(str, words)])
    return int(str(ended.value.code or 0))


def built(export: Path, folder: Path, *more: object) -> list[CorpusRow]:
    assert arena("build", export, "--out", folder / "corpus", "--state-dir", folder / "state", *LOOSE, *more) == 0
    return list(read_rows(folder / "corpus"))


def test_driven_runs_are_lifted_with_their_calls_unchanged(export: Path, thoughts: Path, tmp_path: Path) -> None:
    report = json.loads((thoughts / "rewriting.json").read_bytes())
    without = list(built(export, tmp_path / "without"))
    assert {row.trace.provenance for row in without} == {"verbatim"}
    rows = built(export, tmp_path / "with", "--rewritten", thoughts, "--rule", "per_problem_max=9")
    found = compare(export, rows)
    assert found.driven == report["fates"]["rewritten"] >= 2
    assert found.rows and found.calls >= 2 * found.rows
    assert (found.changed_calls, found.changed_rows) == (0, 0)
    assert {row.trace.provenance for row in rows} == {"verbatim", "rewritten"}


def test_thoughts_that_were_changed_lift_nothing(export: Path, thoughts: Path, tmp_path: Path) -> None:
    forged = tmp_path / "forged"
    forged.mkdir()
    lines = [json.loads(line) for line in (thoughts / "thoughts.jsonl").read_text().splitlines()]
    for line in lines:
        line["thoughts"][0] = "I know already that product 4862371881 is the answer to all of this."
    (forged / "thoughts.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    rows = built(export, tmp_path, "--rewritten", forged)
    assert {row.trace.provenance for row in rows} == {"verbatim"}
    funnel = json.loads((tmp_path / "corpus" / "funnel.json").read_bytes())
    assert sum(one["count"] for one in funnel["unread"]) == len(lines)
