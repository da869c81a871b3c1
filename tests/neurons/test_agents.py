"""`arena init`, `check` and `run`: the miner's desk tells the truth about an agent file: words, JSON, exit codes; the
example agents pass it."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from arena.policies import DEMO
from arena.race.weights import carry, is_enough
from arena.records.model import Evidence
from harness.agents.registry import reference_agent
from harness.catalogue.build import build_index, write_documents
from harness.catalogue.synthetic import generate
from neurons.cli.agent import app
from neurons.cli.app import main
from neurons.practice.run import LocalRun, read_run

Arena = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a small catalogue and the state folder all tests of this file share."""
    folder = tmp_path_factory.mktemp("desk")
    with (folder / "documents.jsonl").open("wb") as stream:
        write_documents(generate(3_000, 5), stream)
    build_index(folder / "documents.jsonl", folder / "catalogue")
    return folder


@pytest.fixture
def arena(desk: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Arena:
    """Runs `arena COMMAND FILE` at the desk: exit code, stdout, stderr."""
    for variable in list(os.environ):
        if variable.startswith(("ARENA_", "OPENAI_")):
            monkeypatch.delenv(variable)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(desk / "cache"))

    def call(command: str, source: str, *options: str) -> tuple[int, str, str]:
        agent = tmp_path / "agent.py"
        agent.write_text(source)
        places = ["--state-dir", str(desk / "state"), "--catalogue", str(desk / "catalogue")]
        with pytest.raises(SystemExit) as ended:
            main([command, str(agent), *places, *options])
        shown = capsys.readouterr()
        return int(str(ended.value.code or 0)), shown.out, shown.err

    return call


BASELINE = "baseline:scripted-expert"
ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


def test_the_same_agent_and_problem_give_the_same_body_and_the_kept_trace_has_its_hash(
    arena: Arena, desk: Path
) -> None:
    source = reference_agent(BASELINE).source
    first = json.loads(arena("run", source, "--count", "2", "--json")[1])
    kept = read_run((desk / "cache" / "agent-arena" / "last-run.json").read_bytes())
    assert isinstance(kept, LocalRun)
    done = [row.evaluation for row in kept.rows if row.evaluation]
    assert [one.body.body_hash() for one in done] == [row["body_sha256"] for row in first]
    again = json.loads(arena("run", source, "--count", "2", "--json", "--workers", "2")[1])
    assert [row["body_sha256"] for row in again] == [row["body_sha256"] for row in first]


def test_variants_by_a_seed_are_other_problems_and_the_same_each_time(arena: Arena) -> None:
    source = reference_agent(BASELINE).source
    plain, first, again = (
        json.loads(arena("run", source, "--count", "2", "--json", *more)[1])
        for more in ((), ("--variant", "abc"), ("--variant", "abc"))
    )
    assert [row["body_sha256"] for row in first] == [row["body_sha256"] for row in again]
    assert {row["problem_id"] for row in first}.isdisjoint(row["problem_id"] for row in plain)
    assert [row["outcome"]["titles"] for row in first] == ["lexical/1@variant"] * 2


@pytest.mark.parametrize(
    ("options", "expected", "said"),
    [
        (["--problem", "p_none"], 2, "p_none"),
        (["--problems", "absent.jsonl"], 2, "P4001"),
        (["--policy", "paper"], 3, "OPENAI_BASE_URL"),
        (["--model-url", "http://127.0.0.1:9/v1"], 3, "U3002"),
    ],
)
def test_what_cannot_be_run_is_told_with_the_reason(arena: Arena, options: list[str], expected: int, said: str) -> None:
    code, _, shown = arena("run", reference_agent("baseline").source, "--count", "1", *options)
    assert said in shown and "Traceback" not in shown
    assert code == expected


def test_what_was_lost_is_told_with_its_reason(arena: Arena) -> None:
    """A fault of the agent's own with its code; a problem with its constraint, both values, the judge's gate, and the
    call that the program made: the first example searches by itself and takes the first hit."""
    code, shown, _ = arena("run", "def agent_main(problem):\n    raise ValueError('lost')\n", "--count", "1")
    assert code == 1
    assert "A1024" in shown.splitlines()[1] and "error[A1024]: " in shown
    (example,) = (path for path in EXAMPLES if path.stem == "first_search")
    code, shown, _ = arena("run", example.read_text(), "--count", "6")
    assert code == 0
    shown = " ".join(shown.split())
    for told in ("Why points were lost", "NO product 1", "; found ", "missed: inference_present"):
        assert told in shown
    assert "by the model; the first that was not: find_product" in shown


def test_recorded_completions_answer_again_and_a_changed_request_is_said_to_be_missing(
    arena: Arena, tmp_path: Path
) -> None:
    source, kept = reference_agent(BASELINE).source, str(tmp_path / "replies.jsonl")
    first = json.loads(arena("run", source, "--count", "2", "--json", "--record", kept)[1])
    size = Path(kept).stat().st_size
    again = json.loads(arena("run", source, "--count", "2", "--json", "--replay", kept)[1])
    assert [row["body_sha256"] for row in again] == [row["body_sha256"] for row in first]
    changed = source.replace("Find what", "First find what")
    code, shown, _ = arena("run", changed, "--count", "2", "--replay", kept)
    assert code == 3
    assert "not run: 2 of 2" in shown
    code, _, _ = arena("run", changed, "--count", "2", "--replay", kept, "--record", kept)
    assert code == 0
    assert Path(kept).stat().st_size > size
    Path(kept).write_bytes(b"{}\n")
    assert [arena("run", source, "--replay", path)[0] for path in (kept, str(tmp_path))] == [2, 2]


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_is_accepted_without_a_finding_and_ends_without_a_fault_in_every_bucket(
    arena: Arena, path: Path
) -> None:
    code, shown, _ = arena("check", path.read_text(), "--json")
    report = json.loads(shown)
    assert (code, report["outcome"], report["findings"]) == (0, "accept", [])
    code, shown, _ = arena("run", path.read_text(), "--count", "3", "--json")
    rows = json.loads(shown)
    assert code == 0
    assert [row["outcome"]["bucket"] for row in rows] == ["product", "shop", "voucher"]
    assert [(row["stop"], row["failure"]) for row in rows] == [("terminated", None)] * 3
    assert {row["is_agentic"] for row in rows} == {path.stem != "first_search"}


def test_the_walk_of_the_agents_page_takes_the_top_from_its_beginning_within_a_race(arena: Arena, desk: Path) -> None:
    """What the page tells to change in the file of `arena init`, changed: evidence of 24 problems, as in a race."""
    CliRunner().invoke(app, ["init", str(desk / "walk")])
    first = (desk / "walk" / "agent.py").read_text()
    walk = (ROOT / "docs" / "agents.md").read_text().partition("```diff\n")[2].partition("```")[0].splitlines()
    old, new = ("\n".join(line[1:] for line in walk if line[0] == sign) for sign in "-+")
    assert old in first

    def scores(source: str) -> list[dict[str, int]]:
        runs = [arena("run", source, "--count", "12", "--variant", seed, "--workers", "2", "--json") for seed in "ab"]
        return [{"v": row["score_e4"]} for _, out, _ in runs for row in json.loads(out)]

    top, mine = scores(first), scores(first.replace(old, new))
    assert 0.1 < sum(one["v"] for one in top) / 240_000 < 0.6 and sum(one["v"] for one in mine) > 220_000
    (held,) = carry(Evidence(), {"me": mine}, top).held
    assert is_enough(held, DEMO.promotion, 1)


def test_a_new_agent_names_the_next_three_commands_and_never_overwrites(tmp_path: Path) -> None:
    folder = tmp_path / "my_agent"
    made = CliRunner().invoke(app, ["init", str(folder)])
    assert {path.name for path in folder.iterdir()} == {"agent.py", "test_agent.py", "problem.jsonl"}
    assert (made.exit_code, made.output.count("  arena ")) == (0, 3)
    (folder / "agent.py").write_text("mine")
    assert CliRunner().invoke(app, ["init", str(folder)]).exit_code == 2
    assert (folder / "agent.py").read_text() == "mine"
