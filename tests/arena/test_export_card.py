"""The dataset card: every code block of a card that was written runs where it stands, and says what the log says."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import duckdb
import pytest

from arena.export.model import FORMATS, Format
from tests.arena.agents_stand import NOW_MS, season
from tests.arena.export_stand import export

SHOWN: dict[str, tuple[Format, ...]] = {
    "whole": FORMATS,
    "tables": ("jsonl", "parquet"),
    "log": ("jsonl",),
}
PROGRAM = """
import json, os, sys
from pathlib import Path
for folder, blocks in json.loads(sys.stdin.read()):
    os.chdir(folder)
    for block in blocks:
        exec(compile(block, f"{folder}/README.md", "exec"), {"__name__": "__main__"})
from datasets import load_dataset
for name in (sys.argv[1:], ["json", None, None, sys.argv[1] + "/agents.jsonl"]):
    rows = load_dataset(*name)
    print("loaded", {split: len(part) for split, part in rows.items()}, sorted(rows["train"].features)[0])
"""


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """By name, exports of one season."""
    log, room = season(), tmp_path_factory.mktemp("cards")
    for name, formats in SHOWN.items():
        export(log, room / name, now_ms=NOW_MS, formats=formats, signer=log.signer, rows_per_shard=4)
    return {name: room / name for name in SHOWN}


def card(folder: Path) -> str:
    return (folder / "README.md").read_text("utf-8")


def blocks(folder: Path, language: str, page: str = "README.md") -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", (folder / page).read_text("utf-8"), re.DOTALL | re.MULTILINE)


def surroundings(home: Path) -> dict[str, str]:
    """No network, and our commands before all others."""
    commands = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    offline = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "HF_HOME": str(home), "HOME": str(home)}
    return {**os.environ, **offline, "PATH": commands, "ARENA_STATE_DIR": str(home / "state")}


def test_every_python_block_of_every_card_runs_and_both_tables_load(folders: dict[str, Path], tmp_path: Path) -> None:
    told = [(str(folders[name]), blocks(folders[name], "python")) for name in ("whole", "log")]
    assert [len(each) for _, each in told] == [4, 0]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(folders["tables"])],
        input=json.dumps(told),
        capture_output=True,
        text=True,
        env=surroundings(tmp_path),
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("8 episodes, 7 of them written by the model throughout") == 1
    assert "lamp-finder" in done.stdout and "agent-arena 4" in done.stdout
    assert "Ignoring" not in done.stderr
    assert "loaded {'train': 8} agent_ms" in done.stdout
    assert "loaded {'train': 4} agent_version_id" in done.stdout


# -- what each agent solved and cost, from the export alone

EXPECTED = {  # agent, models -> episodes, agentic, solved, prompt tokens, unpriced, usd, usd per solved
    ("leaky", "dear"): (2, 1.0, 2, 2_000, 0, 0.028, 0.014),
    ("lamp-finder", "cheap"): (3, 1.0, 2, 3_000, 0, 0.000_42, 0.000_21),
    ("budget-first", "cheap"): (1, 1.0, 1, 1_000, 0, 0.000_14, 0.000_14),
    ("plain", "ours"): (2, 0.5, 1, 2_000, 2, None, None),
    ("all", "all"): (8, 0.875, 6, 8_000, 2, None, None),
}


@pytest.mark.parametrize("name", ["whole", "tables"])
def test_the_cards_query_has_the_rows_of_the_papers_table(
    folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    (query,) = blocks(folders[name], "sql")
    monkeypatch.chdir(folders[name])
    table = duckdb.connect().sql(query)
    found = [dict(zip(table.columns, row, strict=True)) for row in table.fetchall()]
    assert list(found[0])[:7] == ["agent", "models", "episodes", "agentic_share", "solved", "unscored", "asr"]
    kept = ("episodes", "agentic_share", "solved", "prompt_tokens", "unpriced", "usd", "usd_per_solved")
    assert {(row["agent"], row["models"]): tuple(row[column] for column in kept) for row in found} == EXPECTED
    by_agent = {row["agent"]: row for row in found}
    assert found[-1]["agent"] == "all" and by_agent["lamp-finder"]["asr"] == 66.7
    assert (by_agent["leaky"]["against_dearest"], by_agent["lamp-finder"]["against_dearest"]) == (1.0, 0.015)
    assert (by_agent["lamp-finder"]["median_s"], by_agent["budget-first"]["median_s"]) == (2.0, None)


# -- front matter and figures


def test_the_card_names_agents_and_says_of_each_source_where_it_is(folders: dict[str, Path]) -> None:
    said = card(folders["tables"])
    rows = dict(re.findall(r"^\| ([\w-]+) \| `[0-9a-f]{12}` \| .* \| (.*) \|$", said, re.MULTILINE))
    assert re.fullmatch(r"\[source\]\(agents/[0-9a-f]{64}\.py\)", rows["lamp-finder"])
    assert re.fullmatch(r"under embargo until 2026-\d\d-\d\d 19:00 UTC", rows["budget-first"])
    assert rows["plain"] == "its miner's: no promotion opened it"
    assert rows["leaky"] == "left out: holds what looks like a credential"
    links = re.findall(r"\]\(([^)]+)\)", said)
    assert links and all((folders["tables"] / link).is_file() for link in links)
