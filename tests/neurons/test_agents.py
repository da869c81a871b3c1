"""`arena check` and `arena run`: the miner's desk tells the truth about an agent file: words, JSON, exit codes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.agents.registry import reference_agent
from harness.catalogue.index.builder import build_index
from harness.catalogue.index.documents import write_documents
from harness.catalogue.synthetic.generator import generate
from neurons.cli.app import main

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
    import os

    for variable in list(os.environ):
        if variable.startswith(("ARENA_", "OPENAI_")):
            monkeypatch.delenv(variable)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(desk / "cache"))

    def call(command: str, source: str | bytes, *options: str) -> tuple[int, str, str]:
        agent = tmp_path / "agent.py"
        agent.write_bytes(source if isinstance(source, bytes) else source.encode())
        places = ["--state-dir", str(desk / "state"), "--catalogue", str(desk / "catalogue")]
        with pytest.raises(SystemExit) as ended:
            main([command, str(agent), *places, *options])
        shown = capsys.readouterr()
        return int(str(ended.value.code or 0)), shown.out, shown.err

    return call


BASELINE = "baseline:scripted-expert"


def test_the_shipped_baseline_is_accepted(arena: Arena, tmp_path: Path) -> None:
    code, shown, _ = arena("check", reference_agent(BASELINE).source)
    assert code == 0
    assert shown.startswith("accept ")
    assert f"next: arena run {tmp_path / 'agent.py'}" in shown
    assert hashlib.sha256(reference_agent(BASELINE).source.encode()).hexdigest() in shown


def test_a_state_folder_may_be_named_from_where_the_command_is_called(
    arena: Arena, desk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = reference_agent(BASELINE).source
    monkeypatch.chdir(desk.parent)
    levels = []
    for place in (str(desk / "state"), f"{desk.name}/relative"):
        code, shown, told = arena("run", source, "--state-dir", place, "--count", "1", "--json")
        assert code == 0, told
        levels.append([row["sandbox"]["name"] for row in json.loads(shown)])
    assert levels[0] == levels[1]  # the same jail, and not none because its guest could not be found
    assert list((desk / "relative" / "guest").iterdir())


@pytest.mark.parametrize(
    ("source", "error", "said"),
    [
        (b"\xff\xfe", "A1001", "encoding"),
        (b"def agent_main(problem:", "A1002", "agent.py:1"),
        (b"def main(problem):\n    return 1\n", "A1003", "agent_main"),
        (b"import socket\n\ndef agent_main(problem):\n    return socket\n", "A1005", "agent.py:1"),
    ],
)
def test_a_rejection_names_rule_and_line_and_the_fix(arena: Arena, source: bytes, error: str, said: str) -> None:
    code, shown, _ = arena("check", source)
    assert code == 1
    assert shown.startswith("reject ")
    assert said in shown
    assert "fix: " in shown
    code, shown, _ = arena("check", source, "--json")
    assert code == 1
    assert json.loads(shown)["code"] == error


def test_an_answer_table_of_this_catalogue_is_rejected(arena: Arena, desk: Path) -> None:
    from harness.agents.registry import cheater_source
    from harness.catalogue.engines.native import open_catalogue

    ids = [product.product_id for product in open_catalogue(desk / "catalogue").products()][:40]
    code, shown, _ = arena("check", cheater_source(ids))
    assert code == 1
    assert "reject  " in shown


def test_a_run_shows_a_row_for_each_problem_and_sums_up(arena: Arena) -> None:
    code, shown, _ = arena("run", reference_agent(BASELINE).source, "--count", "3")
    lines = shown.splitlines()
    assert code == 0, shown
    assert lines[0].split()[:3] == ["problem", "bucket", "success"]
    assert [line.split()[1] for line in lines[1:4]] == ["product", "shop", "voucher"]
    assert "of 3; mean score" in lines[5]


def test_the_same_agent_and_problem_give_the_same_body_and_the_kept_trace_has_its_hash(
    arena: Arena, tmp_path: Path
) -> None:
    source = reference_agent(BASELINE).source
    code, shown, _ = arena("run", source, "--count", "2", "--json", "--bodies", str(tmp_path / "traces"))
    first = json.loads(shown)
    assert code == 0
    for row in first:
        kept = (tmp_path / "traces" / f"{row['problem_id']}.json").read_bytes()
        assert hashlib.sha256(kept).hexdigest() == row["body_sha256"]
    again = json.loads(arena("run", source, "--count", "2", "--json")[1])
    assert [row["body_sha256"] for row in again] == [row["body_sha256"] for row in first]


def test_one_problem_may_be_run_alone_and_keeps_its_body(arena: Arena) -> None:
    source = reference_agent("nop").source
    rows = json.loads(arena("run", source, "--count", "3", "--json")[1])
    alone = json.loads(arena("run", source, "--problem", rows[2]["problem_id"], "--json")[1])
    assert [row["body_sha256"] for row in alone] == [rows[2]["body_sha256"]]


def test_an_endpoint_elsewhere_needs_no_change_of_the_agent(arena: Arena) -> None:
    from harness.inference.scripted.server import start_scripted_server

    source = reference_agent("baseline").source
    here = json.loads(arena("run", source, "--count", "1", "--json")[1])
    with start_scripted_server() as server:
        there = json.loads(arena("run", source, "--count", "1", "--json", "--model-url", server.base_url)[1])
    assert [row["body_sha256"] for row in there] == [row["body_sha256"] for row in here]


def test_problems_may_come_from_a_file(arena: Arena, desk: Path, tmp_path: Path) -> None:
    from harness.catalogue.engines.native import open_catalogue
    from problems.suites.formats import write_problems
    from problems.synthesis.generator import synthesize

    made = synthesize(tuple(open_catalogue(desk / "catalogue").products()), seed=9, counts={"voucher": 2})
    path = tmp_path / "problems.jsonl"
    path.write_text("\n".join(write_problems(made)))
    rows = json.loads(arena("run", reference_agent("nop").source, "--problems", str(path), "--json")[1])
    assert [row["problem_id"] for row in rows] == [problem.problem_id for problem in made]


def test_variants_by_a_seed_are_those_of_a_validator_byte_for_byte(arena: Arena, desk: Path, tmp_path: Path) -> None:
    """The problems of a file are the suite here; without one it is the policy's."""
    from harness.catalogue.engines.native import open_catalogue
    from problems.suites.formats import write_problems
    from problems.suites.variants import VariantMaker
    from problems.synthesis.generator import synthesize

    products = tuple(open_catalogue(desk / "catalogue").products())
    suite = synthesize(products, seed=9, counts={"product": 1, "voucher": 1})
    drawn = [VariantMaker(suite, products).variant(problem.problem_id, "abc").problem for problem in suite]
    for name, problems in (("suite", suite), ("drawn", drawn)):
        (tmp_path / name).write_text("\n".join(write_problems(problems)))
    source = reference_agent(BASELINE).source
    rows = json.loads(arena("run", source, "--problems", str(tmp_path / "suite"), "--variant", "abc", "--json")[1])
    plain = json.loads(arena("run", source, "--problems", str(tmp_path / "drawn"), "--json")[1])
    assert [row["body_sha256"] for row in rows] == [row["body_sha256"] for row in plain]
    assert [row["outcome"]["titles"] for row in rows] == ["lexical/1@variant"] * 2


def test_without_a_file_the_variants_are_of_the_policys_suite(arena: Arena) -> None:
    source = reference_agent("nop").source
    first, again, other = (
        [row["problem_id"] for row in json.loads(arena("run", source, "--variant", seed, "--json", "--count", "3")[1])]
        for seed in ("1", "1", "2")
    )
    assert first == again
    assert not set(first) & set(other)


@pytest.mark.parametrize(
    ("source", "error"),
    [
        ("def agent_main(problem):\n    raise ValueError('lost')\n", "A1024"),
        ("def agent_main(problem):\n    return {1, 2}\n", "A1025"),
        ("def agent_main(problem):\n    print('x' * 3_000_000)\n", "A1026"),
    ],
)
def test_a_fault_of_the_agents_own_is_a_row_with_its_code_and_exit_code_1(
    arena: Arena, source: str, error: str
) -> None:
    code, shown, _ = arena("run", source, "--count", "1")
    assert code == 1
    assert error in shown.splitlines()[1]
    assert f"error[{error}]: " in shown


def test_a_file_that_is_not_utf_8_is_not_run(arena: Arena) -> None:
    code, shown, said = arena("run", b"# \xff\ndef agent_main(problem):\n    return None\n")
    assert (code, shown) == (1, "")
    assert said.startswith("error[A1001]: ")


@pytest.mark.parametrize(
    ("options", "expected", "said"),
    [
        (["--problem", "p_none"], 2, "p_none"),
        (["--count", "1000"], 2, "--problems"),
        (["--problems", "absent.jsonl"], 2, "P4001"),
        (["--policy", "no-such-policy"], 2, "no-such-policy"),
        (["--policy", "paper"], 3, "OPENAI_BASE_URL"),
        (["--model-url", "http://127.0.0.1:9/v1"], 3, "U300"),
    ],
)
def test_what_cannot_be_run_is_told_with_the_reason(arena: Arena, options: list[str], expected: int, said: str) -> None:
    code, _, shown = arena("run", reference_agent("baseline").source, "--count", "1", *options)
    assert said in shown
    assert "Traceback" not in shown
    assert code == expected


def test_a_catalogue_that_is_not_there_is_told_with_the_command_that_makes_one(arena: Arena, tmp_path: Path) -> None:
    code, _, shown = arena("run", reference_agent("nop").source, "--catalogue", str(tmp_path / "absent"))
    assert code == 3
    assert "V2011" in shown
    assert "arena catalogue" in shown


def test_every_line_of_check_and_run_fits_80_columns(arena: Arena) -> None:
    import re

    source = reference_agent(BASELINE).source
    rejected = "import socket\n\ndef agent_main(problem):\n    return getattr(socket, problem['query'])\n"
    for shown in (arena("run", source, "--count", "6")[1], arena("check", rejected)[1]):
        lines = [re.sub(r"\x1b\[[0-9;]*m", "", line) for line in shown.splitlines()]
        assert not [line for line in lines if len(line) > 80 and "/" not in line]  # the folder of a test may be long


def test_a_finding_shows_the_line_and_what_to_write_instead(arena: Arena) -> None:
    code, shown, _ = arena("check", "import socket\n\ndef agent_main(problem):\n    return socket\n")
    assert code == 1
    assert "1 | import socket" in shown
    assert "fix: a module of the allow-list" in shown
    findings = json.loads(arena("check", "import socket\n", "--json")[1])["findings"]
    (found,) = (one for one in findings if one["rule"] == "import")
    assert found["evidence"] == "import socket"
    assert found["instead"]


def test_a_lost_problem_names_the_constraint_with_both_values_the_judge_and_the_call_of_the_programs(
    arena: Arena,
) -> None:
    """The first example searches by itself and takes the first hit."""
    from harness.agents.registry import published_sources

    (source,) = (one for one in published_sources() if one.startswith('"""A first agent'))
    code, shown, _ = arena("run", source, "--count", "6")
    assert code == 0
    assert "Why points were lost" in shown
    assert "NO  product 1" in shown
    assert "; found " in shown
    assert "missed inference_present" in shown
    assert "by the model; the first that was not: find_product" in " ".join(shown.split())
    for row in json.loads(arena("run", source, "--count", "6", "--json")[1]):
        loss = row["loss"]
        assert loss["llm_calls"] == 0 < loss["calls"]
        assert loss["gate"] == "inference_present"
        met = sum(one["is_met"] for one in loss["asked"])
        axes = [slot[axis] for slot in row["outcome"]["slots"] for axis in ("title", "price", "service", "sku")]
        assert met >= sum(axis["hits"] if isinstance(axis, dict) else axis[0] for axis in axes)
        assert loss["failed"] == [one for one in loss["asked"] if not one["is_met"]]


def test_a_shipped_suite_may_be_named_and_a_typo_names_them_all(arena: Arena) -> None:
    source, allowed = reference_agent("nop").source, ("--allow-missing",)  # its answers are of the great catalogue
    by_name = json.loads(arena("run", source, "--problems", "s1", "--count", "2", "--json", *allowed)[1])
    by_suite = json.loads(arena("run", source, "--suite", "s1", "--count", "2", "--json", *allowed)[1])
    assert [row["problem_id"] for row in by_name] == [row["problem_id"] for row in by_suite]
    for option, code in (("--suite", 2), ("--problems", 2)):
        ended, _, told = arena("run", source, option, "s9")
        assert ended == code
        assert "s1, s2, s3" in told


def test_no_problem_is_begun_after_the_time_limit(arena: Arena) -> None:
    code, shown, _ = arena("run", reference_agent("nop").source, "--count", "20", "--time-limit", "0.000001")
    assert code == 0
    assert "20 problems were not begun" in shown


def test_an_endpoint_that_is_down_is_said_before_anything_runs(arena: Arena) -> None:
    code, shown, told = arena(
        "run", reference_agent("nop").source, "--model-url", "http://127.0.0.1:9/v1", "--model", "m"
    )
    assert (code, shown) == (3, "")
    assert "http://127.0.0.1:9/v1 does not answer" in told
    assert "OPENAI_BASE_URL" in told
    assert "retried" not in told


def test_recorded_completions_answer_again_and_a_changed_request_is_said_to_be_missing(
    arena: Arena, tmp_path: Path
) -> None:
    source, kept = reference_agent(BASELINE).source, str(tmp_path / "replies.jsonl")
    first = json.loads(arena("run", source, "--count", "2", "--json", "--record", kept)[1])
    size = Path(kept).stat().st_size
    again = json.loads(arena("run", source, "--count", "2", "--json", "--replay", kept)[1])
    assert [row["body_sha256"] for row in again] == [row["body_sha256"] for row in first]
    changed = source.replace("You are a shopping assistant", "You are a careful shopping assistant")
    code, shown, _ = arena("run", changed, "--count", "2", "--replay", kept)
    assert code == 3
    assert "not run: 2 of 2" in shown
    code, _, _ = arena("run", changed, "--count", "2", "--replay", kept, "--record", kept)
    assert code == 0
    assert Path(kept).stat().st_size > size
    Path(kept).write_bytes(b"{}\n")
    assert arena("run", source, "--replay", kept)[0] == 2
