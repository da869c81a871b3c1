"""From sources to a corpus on disk, by function and by command: read once, the same bytes, nothing half-written, report
and sheet, and a clear answer to every bad input."""

from __future__ import annotations

import json
import math
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import datasets
import msgspec
import pytest
import zstandard

from arena.chain.keys import verify
from foundation.canonical import content_hash
from foundation.errors import ArenaError
from foundation.executors import ProcessExecutor
from foundation.long_work import Progress, no_progress
from harness.chat import Message
from neurons.cli.app import main
from tests.prove.test_corpus_scale import folder_sha256
from tests.training.firehose import Firehose, write_day
from tests.training.labelled import Stored, make_labelled, replace, select, stand_guard
from training.corpus import building
from training.corpus.gates import Guard
from training.corpus.model import CorpusRow, Lineage, Rejection, Rules
from training.corpus.report import Funnel, draw_sample, render_page, sections, sheet_csv, sheet_html
from training.corpus.selection import Task, kept_rows, rejections

if TYPE_CHECKING:
    from tests.training.stock import Stock

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
def filtered() -> tuple[list[CorpusRow], list[Rejection], building.FilterResult]:
    traces = [one.trace for one in make_labelled(400, seed=7)]
    found = select([lambda: traces], Task(arms=(Rules(),)), stand_guard)
    rows = list(kept_rows([lambda: traces], found.appraised, found.decisions[0]))
    return rows, list(rejections(found.appraised, found.decisions[0])), found


def write(
    folder: Path, filtered: tuple[list[CorpusRow], list[Rejection], building.FilterResult], *, is_reversed: bool = False
) -> Lineage:
    rows, left, found = filtered
    step = -1 if is_reversed else 1
    return building.write_corpus(
        folder, rows[::step], lineage=LINEAGE_VALUE, funnel=found.funnels[0], rejected=left[::step], guard=stand_guard
    )


def test_the_same_rows_in_any_order_are_the_same_bytes(tmp_path: Path, filtered: tuple) -> None:
    one, other = write(tmp_path / "a", filtered), write(tmp_path / "b", filtered, is_reversed=True)
    assert one == other
    assert folder_sha256(tmp_path / "a") == folder_sha256(tmp_path / "b")
    for name in (building.DATA, "README.md", building.LINEAGE, building.FUNNEL, building.REJECTED, "report.html"):
        assert (tmp_path / "a" / name).is_file()


def test_trl_takes_the_folder_as_it_is_and_learns_the_tokens_that_ours_do(
    tmp_path: Path, stock: Stock, capfd: pytest.CaptureFixture[str]
) -> None:
    from trl import KTOConfig, KTOTrainer, SFTConfig, SFTTrainer

    from tests.training.stock import corpus_of, shortest

    first, second = shortest(stock.traces(), 2)
    given = next(n for n, one in enumerate(first.messages) if one.role == "assistant")
    talk = [replace(one, is_model=n != given) for n, one in enumerate(first.messages)]
    first = replace(first, messages=(*talk, Message(role="assistant", content="Done.")))  # its last without a thought
    corpus_of([first, replace(second, facts=replace(second.facts, is_success=False))], tmp_path / "a")
    loaded = datasets.load_dataset(str(tmp_path / "a"), split="train", cache_dir=str(tmp_path / "cache"))
    assert "gnoring" not in capfd.readouterr().err and sorted(loaded["label"]) == [False, True]
    settings: dict[str, Any] = {"output_dir": str(tmp_path / "out"), "max_steps": 1, "max_length": None}
    settings |= {
        "per_device_train_batch_size": 2,
        "use_cpu": True,
        "report_to": [],
        "save_strategy": "no",
        "train_sampling_strategy": "sequential",
    }
    marks = {"assistant_only_loss": True, "chat_template_path": str(tmp_path / "a" / building.TEMPLATE)}
    trained = {"train_dataset": loaded, "processing_class": stock.codec.tokenizer}
    sft = SFTTrainer(model=stock.load(), args=SFTConfig(**settings, **marks), **trained)
    kto = KTOTrainer(model=stock.load(), args=KTOConfig(**settings), **trained)
    assert all(math.isfinite(one.train().training_loss) for one in (sft, kto))
    for row, seen in zip(building.read_rows(tmp_path / "a"), sft.train_dataset, strict=True):
        ours = stock.codec.row(row.trace.trace_id, row.trace.messages, row.trace.tools, 100_000)
        assert seen["input_ids"] == list(ours.token_ids)
        assert [label != -100 for label in seen["labels"]] == [bool(bit) for bit in ours.mask]


def test_rows_that_are_not_the_lineages_are_noticed(tmp_path: Path, filtered: tuple) -> None:
    write(tmp_path / "a", filtered)
    write(tmp_path / "b", (filtered[0][1:], *filtered[1:]))
    (tmp_path / "b" / building.DATA).replace(tmp_path / "a" / building.DATA)
    with pytest.raises(ArenaError, match="lineage"):
        list(building.read_rows(tmp_path / "a"))


HOSTILE = '<script>alert(1)</script>"\n\x1b[31m'


def test_a_name_of_a_source_stays_on_its_line_and_is_no_markup_and_the_page_needs_nothing(filtered: tuple) -> None:
    funnel = filtered[2].funnels[0]
    first = replace(funnel.agents[0], name=HOSTILE, title=HOSTILE, traces=10**6)
    found = replace(funnel, agents=(first, *funnel.agents[1:]))
    assert not any("\x1b" in cell for one in sections(found) for row in one.rows for cell in row)
    text = render_page(LINEAGE_VALUE, found)
    assert "<script" not in text and "&lt;script&gt;" in text
    assert "default-src 'none'" in text and not re.search(r"://|@import|url\(|\b(?:src|href)=", text)


def test_neither_sheet_tells_who_wrote_a_trace_or_how_it_was_judged(filtered: tuple) -> None:
    secret = {"agent": "agent-secret", "team": "team-secret", "reward_e4": 75_319_753, "race_id": "race-secret"}
    rows = [replace(row, trace=replace(row.trace, facts=replace(row.trace.facts, **secret))) for row in filtered[0]]
    items, keys = draw_sample(rows, 20, seed=1)
    assert sheet_csv(items[:2]) == "item,who_decided,note\nS001,,\nS002,,\n"
    for sheet in (sheet_csv(items), sheet_html(items)):
        assert "secret" not in sheet and "75319753" not in sheet and "emitter" not in sheet
        assert all(key["trace_id"] not in sheet and key["place"] not in sheet for key in keys)


RULES = Rules()
ORIGIN = {"partition_sha256": "cd" * 32, "code_commit": "f6"}
KILLED = """
import os, signal, sys
from pathlib import Path
from tests.training.test_corpus_files import build, dealt
def progress(phase, done, total):
    if phase == "write" and done == 3:
        os.kill(os.getpid(), signal.SIGKILL)
build(Path(sys.argv[1]), dealt(5), workers=2, progress=progress)
"""


def dealt(count: int) -> list[Stored]:
    """The same 90 labelled traces, in `count` shards."""
    traces = [one.trace for one in make_labelled(90, seed=4)]
    return [Stored(traces[start::count]) for start in range(count)]


def build(out: Path, shards: Sequence[Stored], *, workers: int = 0, progress: Progress = no_progress) -> None:
    """What `arena corpus build` does once its sources are open."""
    sources = building.Sources(shards=tuple(shards), hashes=("ab" * 32,), is_trusted_unsigned=False)
    ways = {"executor": ProcessExecutor(workers), "progress": progress}
    filtered = building.filter_sources(sources, Task(arms=(RULES,)), building.arms_of(RULES, ()), stand_guard, **ways)
    building.write_filtered(filtered, out, stand_guard, **ORIGIN, **ways)


def test_a_killed_build_leaves_nothing_and_ends_in_the_same_bytes(tmp_path: Path) -> None:
    build(tmp_path / "whole", dealt(1))
    out = tmp_path / "corpus"
    words = [sys.executable, "-c", KILLED, str(out)]
    assert subprocess.run(words, check=False).returncode == -signal.SIGKILL
    assert not out.exists()
    build(out, dealt(5))
    assert folder_sha256(out) == folder_sha256(tmp_path / "whole")
    assert sorted(one.name for one in tmp_path.iterdir()) == ["corpus", "whole"]


LOOSE = Rules(coefficient_e4_min=5_000)


def under(day: Path, rules: Rules, names: tuple[str, ...]) -> building.FilterResult:
    sources = building.open_sources([day], [], verify)
    return building.filter_sources(sources, Task(arms=(rules,)), building.arms_of(rules, names), Guard())


def test_an_arm_by_tokens_has_as_many_as_the_first_and_never_more(day: Path, tmp_path: Path) -> None:
    def tokens(folder: str) -> int:
        return sum(row.tokens or 0 for row in building.read_rows(Path(folder)))

    found = under(day, LOOSE, names=("no_structural_filter", "no_structural_filter_by_tokens"))
    built = {one.name: one for one in building.write_filtered(found, tmp_path / "study", Guard(), **ORIGIN)}
    wanted, by_tokens = tokens(built[building.FULL].folder), built["no_structural_filter_by_tokens"]
    longest = max(row.tokens or 0 for one in built.values() for row in building.read_rows(Path(one.folder)))
    assert wanted - longest < tokens(by_tokens.folder) <= wanted
    assert by_tokens.lineage.rules.tokens == wanted and by_tokens.lineage.rules.rows is None
    assert built["no_structural_filter"].funnel.kept == built[building.FULL].funnel.kept


def test_an_arm_that_keeps_nothing_stops_all_of_them_before_a_byte(day: Path, tmp_path: Path) -> None:
    found = under(day, Rules(tokens_max=1), names=("no_tokens",))
    assert [one.kept > 0 for one in found.funnels] == [False, True]
    with pytest.raises(ArenaError, match=r"V2147.*under full"):
        building.write_filtered(found, tmp_path / "study", Guard(), **ORIGIN)
    assert list(tmp_path.iterdir()) == []


Run = Callable[..., tuple[int, str, str]]
LOOSE_RULE = ("--rule", "coefficient_e4_min=5000")


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
    words = ("corpus", "build", day, "--out", folder / "corpus", "--state-dir", folder / "s", *LOOSE_RULE)
    with pytest.raises(SystemExit) as ended:
        main([*map(str, words)])
    assert not ended.value.code
    return folder / "corpus"


def test_an_export_becomes_a_corpus_with_its_lineage_and_page(day: Path, corpus: Path) -> None:
    rows, lineage = list(building.read_rows(corpus)), building.read_lineage(corpus)
    assert rows and all(row.trace.source.is_verified for row in rows)
    assert all((row.trace.facts.coefficient_e4 or 0) >= 5_000 for row in rows)
    assert not lineage.is_trusted_unsigned and len(lineage.sources) == 1
    assert lineage.rules.coefficient_e4_min == 5_000
    assert content_hash(lineage) in (corpus / "report.html").read_text("utf-8")


def test_an_export_that_nobody_signed_needs_the_word(run: Run, firehose: Firehose, tmp_path: Path) -> None:
    write_day(firehose, tmp_path / "export", 30)
    (tmp_path / "export" / "manifest.sig").unlink()
    code, _, err = run("build", tmp_path / "export", "--out", tmp_path / "c", *LOOSE_RULE)
    assert code == 4 and "V2095" in err and "--trust-unsigned" in err
    assert not (tmp_path / "c").exists()
    code, _, _ = run("build", tmp_path / "export", "--out", tmp_path / "c", *LOOSE_RULE, "--trust-unsigned")
    assert code == 0
    assert building.read_lineage(tmp_path / "c").is_trusted_unsigned
    assert "somebody said to trust them" in run("show", tmp_path / "c")[1].replace("\n", " ")


@pytest.mark.parametrize(
    ("words", "exit_code", "said"),
    [
        ((), 2, "name at least one export"),
        (("{tmp}/none",), 2, "there is no folder"),
        (("{tmp}",), 4, "V2095"),
        (("{day}", "--rule", "off=pairing,leak"), 2, "cannot be switched off"),
        (("{day}", "--rule", "off=lek"), 2, "off"),
        (("{day}", "--rule", "per_problem_max=0"), 2, ">= 1"),
        (("{day}", "--rule", "tokens_max=high"), 2, "tokens_max"),
        (("{day}", "--rule", "seed"), 2, "seed"),
        (("{day}", "--ablation", "nonsense"), 2, "no_structural_filter"),
        (("{day}", "--rule", "coefficient_e4_mn=1"), 2, "unknown field `coefficient_e4_mn`"),
        (("{day}", "--tokenizer", "{tmp}/none.json"), (2, 3), "none.json"),
        (("{day}", "--foreign", "{tmp}/none.jsonl"), 2, "give --held-out or --partition, too"),
        (("{day}", "--foreign", "{tmp}/none.jsonl", "--held-out", "s1"), 2, "V2027"),
    ],
)
def test_every_bad_input_is_named_and_nothing_is_written(
    run: Run, day: Path, tmp_path: Path, words: tuple[str, ...], exit_code: int | tuple[int, ...], said: str
) -> None:
    given = [word.format(day=day, tmp=tmp_path) for word in words]
    code, _, err = run("build", *given, "--out", tmp_path / "c", *LOOSE_RULE)
    assert code in (exit_code if isinstance(exit_code, tuple) else (exit_code,))
    assert said.replace(" ", "") in re.sub(r"[\s│]", "", err)  # a box breaks lines wherever they end
    assert "Traceback" not in err
    assert not (tmp_path / "c").exists()


def test_foreign_rows_are_read_beside_an_export(run: Run, day: Path, tmp_path: Path) -> None:
    row = {"messages": [{"role": "user", "content": "a lamp"}, {"role": "assistant", "content": "none"}]}
    (tmp_path / "rows.jsonl").write_text(f"{json.dumps(row)}\n" + "not json\n" * 11)
    told = ("--foreign", tmp_path / "rows.jsonl", "--held-out", "s1", "--out", tmp_path / "c", "--json")
    code, out, _ = run("build", day, *told, *LOOSE_RULE)
    funnel = json.loads(out)["built"][0]["funnel"]
    assert code == 0
    why = "not JSON: JSON is malformed: invalid character (byte 4)"
    assert funnel["unread"] == [{"code": "V2097", "count": 11, "example": "rows.jsonl:2", "detail": why}]
    left = zstandard.decompress((tmp_path / "c" / building.REJECTED).read_bytes(), 1 << 20)
    assert left.count(f'"detail":"{why}"'.encode()) == 11
    written = [(tmp_path / "c" / name).read_text() for name in ("report.html", "README.md")]
    for told in (run("show", tmp_path / "c")[1], *written):
        assert "V2097" in told and "is malformed: invalid" in " ".join(told.split()) and "rows.jsonl:2" in told
    assert len(building.read_lineage(tmp_path / "c").sources) == 2


def test_show_gives_the_report_as_lines_json_and_page(run: Run, corpus: Path, tmp_path: Path) -> None:
    code, out, _ = run("show", corpus)
    assert code == 0
    assert out.index("Length in tokens") < out.index("Funnel") < out.index("By agent version")
    assert content_hash(building.read_lineage(corpus)) in out
    _, out, _ = run("show", corpus, "--json")
    value = json.loads(out)
    assert value["identity"] == content_hash(building.read_lineage(corpus))
    assert msgspec.convert(value["funnel"], Funnel).kept == len(list(building.read_rows(corpus)))


def test_a_corpus_of_dev_holds_rows_of_that_pool_alone(run: Run, firehose: Firehose, tmp_path: Path) -> None:
    problem_ids = sorted({made.problem_id for made in firehose.make(60)})
    dev = dict.fromkeys(problem_ids[: len(problem_ids) // 2], "dev")
    write_day(firehose, tmp_path / "export", 60, pools=("train", "dev"), pool_of=dev)
    for pool in ("train", "dev"):
        assert (
            run("build", tmp_path / "export", "--rule", f"pool={pool}", "--out", tmp_path / pool, *LOOSE_RULE)[0] == 0
        )
        assert building.read_lineage(tmp_path / pool).rules.pool == pool
        rows = list(building.read_rows(tmp_path / pool))
        assert rows and {dev.get(row.trace.facts.problem_id or "", "train") for row in rows} == {pool}
    code, _, err = run("build", tmp_path / "export", "--rule", "pool=eval", "--out", tmp_path / "eval")
    assert code == 2 and "V2120" in err
