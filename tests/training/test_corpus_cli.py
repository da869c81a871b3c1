"""`arena corpus`: the whole way from a signed export to a corpus, and a clear answer to every bad input."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from foundation.canonical import content_hash
from neurons.cli.app import main
from tests.training.firehose import Firehose
from tests.training.firehose_export import write_day
from training.corpus.building import read_lineage, read_rows
from training.corpus.report import Funnel

Run = Callable[..., tuple[int, str, str]]
LOOSE = ("--rule", "coefficient_e4_min=5000")


@pytest.fixture
def run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run `arena corpus` with words; exit code, stdout, stderr."""

    def run_words(*words: object) -> tuple[int, str, str]:
        takes_state = words[0] in ("build", "trac")
        state = ["--state-dir", str(tmp_path / "state")] if takes_state else []
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main(["corpus", *map(str, words), *state])
        shown = capsys.readouterr()
        return int(ended.value.code or 0), shown.out, shown.err

    return run_words


@pytest.fixture(scope="module")
def corpus(day: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A corpus built by the command."""
    folder = tmp_path_factory.mktemp("built")
    with pytest.raises(SystemExit) as ended:
        main(["corpus", "build", str(day), "--out", str(folder / "corpus"), *LOOSE, "--state-dir", str(folder / "s")])
    assert not ended.value.code
    return folder / "corpus"


def test_an_export_becomes_a_corpus_with_its_lineage_and_page(day: Path, corpus: Path) -> None:
    rows, lineage = list(read_rows(corpus)), read_lineage(corpus)
    assert rows and all(row.trace.source.is_verified for row in rows)
    assert all((row.trace.facts.coefficient_e4 or 0) >= 5_000 for row in rows)
    assert not lineage.is_trusted_unsigned and len(lineage.sources) == 1
    assert lineage.rules.coefficient_e4_min == 5_000
    assert content_hash(lineage) in (corpus / "report.html").read_text("utf-8")


def test_an_export_that_nobody_signed_needs_the_word(run: Run, firehose: Firehose, tmp_path: Path) -> None:
    write_day(firehose, tmp_path / "export", 30)
    (tmp_path / "export" / "manifest.sig").unlink()
    code, _, err = run("build", tmp_path / "export", "--out", tmp_path / "c", *LOOSE)
    assert code == 4 and "V2095" in err and "--trust-unsigned" in err
    assert not (tmp_path / "c").exists()
    code, _, _ = run("build", tmp_path / "export", "--out", tmp_path / "c", *LOOSE, "--trust-unsigned")
    assert code == 0
    assert read_lineage(tmp_path / "c").is_trusted_unsigned
    assert "somebody said to trust them" in run("show", tmp_path / "c")[1].replace("\n", " ")


@pytest.mark.parametrize(
    ("words", "exit_code", "said"),
    [
        ((), 2, "name at least one export"),
        (("{tmp}/none",), 4, "V2095"),
        (("{day}", "--rule", "off=leak"), 2, "cannot be switched off"),
        (("{day}", "--ablation", "nonsense"), 2, "no_structural_filter"),
        (("{day}", "--rule", "coefficient_e4_mn=1"), 2, "coefficient_e4_min"),
        (("{day}", "--tokenizer", "{tmp}/none.json"), (2, 3), "none.json"),
        (("{day}", "--foreign", "{tmp}/none.jsonl"), 2, "V2027"),
    ],
)
def test_every_bad_input_is_named_and_nothing_is_written(
    run: Run, day: Path, tmp_path: Path, words: tuple[str, ...], exit_code: int | tuple[int, ...], said: str
) -> None:
    given = [word.format(day=day, tmp=tmp_path) for word in words]
    code, _, err = run("build", *given, "--out", tmp_path / "c", *LOOSE)
    assert code in (exit_code if isinstance(exit_code, tuple) else (exit_code,))
    assert said.replace(" ", "") in re.sub(r"[\s│]", "", err)  # a box breaks lines wherever they end
    assert "Traceback" not in err
    assert not (tmp_path / "c").exists()


def test_foreign_rows_are_read_beside_an_export_and_kept_out_while_nothing_is_known(
    run: Run, day: Path, tmp_path: Path
) -> None:
    row = {"messages": [{"role": "user", "content": "a lamp"}, {"role": "assistant", "content": "none"}]}
    (tmp_path / "rows.jsonl").write_text(f"{json.dumps(row)}\n" + "not json\n" * 11)
    code, out, _ = run("build", day, "--foreign", tmp_path / "rows.jsonl", "--out", tmp_path / "c", *LOOSE, "--json")
    funnel = json.loads(out)["built"][0]["funnel"]
    assert code == 0
    assert "leak" in {one["code"] for one in funnel["codes"]}
    assert funnel["unread"] == [{"code": "V2097", "count": 11, "example": "rows.jsonl:2"}]
    written = [(tmp_path / "c" / name).read_text() for name in ("report.html", "README.md")]
    for told in (run("show", tmp_path / "c")[1], *written):
        assert "V2097" in told and "row cannot be converted" in told and "rows.jsonl:2" in told
    assert len(read_lineage(tmp_path / "c").sources) == 2


def test_show_gives_the_report_as_lines_json_and_page(run: Run, corpus: Path, tmp_path: Path) -> None:
    code, out, _ = run("show", corpus)
    assert code == 0
    assert out.index("Length in tokens") < out.index("Funnel") < out.index("By agent version")
    assert content_hash(read_lineage(corpus)) in out
    _, out, _ = run("show", corpus, "--json")
    value = json.loads(out)
    assert value["identity"] == content_hash(read_lineage(corpus))
    assert msgspec.convert(value["funnel"], Funnel).kept == len(list(read_rows(corpus)))


def test_a_corpus_of_dev_holds_rows_of_that_pool_alone(run: Run, firehose: Firehose, tmp_path: Path) -> None:
    problem_ids = sorted({made.problem_id for made in firehose.make(60)})
    dev = dict.fromkeys(problem_ids[: len(problem_ids) // 2], "dev")
    write_day(firehose, tmp_path / "export", 60, pools=("train", "dev"), pool_of=dev)
    for pool in ("train", "dev"):
        assert run("build", tmp_path / "export", "--rule", f"pool={pool}", "--out", tmp_path / pool, *LOOSE)[0] == 0
        assert read_lineage(tmp_path / pool).rules.pool == pool
        rows = list(read_rows(tmp_path / pool))
        assert rows and {dev.get(row.trace.facts.problem_id or "", "train") for row in rows} == {pool}
    code, _, err = run("build", tmp_path / "export", "--rule", "pool=eval", "--out", tmp_path / "eval")
    assert code == 2 and "V2120" in err
