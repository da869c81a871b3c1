"""`arena corpus rewrite` and `build --rewritten` over an export of episodes that a program drove."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from arena.chain.keys import verify
from neurons.cli.app import main
from tests.training.firehose import Firehose, real_episodes, write_records
from training.agents import distilled_prompt
from training.corpus.building import read_rows
from training.corpus.exports import export_shards, open_export
from training.corpus.model import CorpusRow, ExecutedTrace
from training.rewriting.writing import with_calls

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
    scripted = ("--base-url", "scripted")
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
    driven = {
        row.source.place: row
        for shard in export_shards(open_export(export, verify))
        for row in with_calls(shard)()
        if isinstance(row, ExecutedTrace) and row.facts.is_agentic is False and row.facts.is_success
    }
    assert len(driven) == report["fates"]["rewritten"] >= 2
    lifted = [row.trace for row in rows if row.trace.provenance == "rewritten"]
    for trace in lifted:
        record = driven[trace.source.place]
        results = {message.call_id: message.content for message in trace.messages if message.role == "tool"}
        turns = [message for message in trace.messages if message.role == "assistant"]
        made = tuple((call.name, call.arguments, results[call.id]) for turn in turns for call in turn.calls)
        assert made == record.executed and trace.facts.recommended == record.facts.recommended
        assert [message.content for message in trace.messages[:2]] == [distilled_prompt(), record.query]
        assert all(turn.reasoning and not turn.content for turn in turns)
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
