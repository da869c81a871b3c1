"""The report: published rows as printed, ours under their conditions, tests where they may be made, one safe page."""

from __future__ import annotations

import html.parser
import json
import re
import xml.etree.ElementTree as ET
from pathlib import Path

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from neurons.cli.report import app
from tests.training.eval_reports import as_version_1, make
from training.charts import ChartLine, Dot, dot_chart, line_chart, strip_chart
from training.evaluation.report import EvalReport
from training.evaluation.statistics import mean_estimate
from training.model import RunLineage, Versions
from training.report.document import holm, make_document, share_difference
from training.report.page import METHODS, p_text, render_page
from training.report.published import TABLE_1
from training.report.series import RunCurves, Series, read_curves
from training.stages.run import lineage_sha256

PAPER = Path(__file__).parents[2].parent / "shared" / "reference" / "paper.txt"
SHARE = st.floats(0, 1, allow_nan=False)


def write_run(folder: Path, *, parent: str = "") -> str:
    """A finished run with a log that a kill cut; its lineage's hash."""
    folder.mkdir()
    (folder / "recipe.toml").write_text("", "utf-8")
    rows = [
        {"step": step, "loss": 1 / step, "reward": step / 10, "kl": None if step == 2 else 0.5} for step in (1, 2, 3)
    ]
    (folder / "log.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows) + '{"step": 4, "lo', "utf-8")
    lineage = RunLineage(
        stage="grpo", recipe_sha256="r", recipe="", parent_sha256=parent, corpus_sha256s=(), codec_sha256="c",
        partition_sha256="p", seed=0, versions=Versions(code_commit="", packages={}, device="cpu"),
        weights_sha256=folder.name, steps=3, stopped_by="KL",
    )  # fmt: skip
    (folder / "lineage.json").write_bytes(msgspec.json.encode(lineage))
    return lineage_sha256(lineage)


@pytest.mark.skipif(not PAPER.exists(), reason="the paper's text is not beside this checkout")
def test_every_published_number_stands_in_the_papers_own_row() -> None:
    lines = [re.sub(r"</?b>|\$", "", line) for line in PAPER.read_text("utf-8").splitlines() if line.startswith("|")]
    for row in TABLE_1:
        label = row.label.split("(")[0].replace("β", "").strip()
        of_row = [line for line in lines if label in line.replace("\\", "")]
        shares = [row.asr_e3, row.second_e3, row.pass_at_1_e3, row.pass_at_8_e3]
        for share in [one for one in shares if one is not None]:
            assert any(f"{share / 10:.1f}%" in line for line in of_row), (row.label, share)


def test_tests_are_made_between_equal_conditions_alone() -> None:
    reports = [make("base", 2), make("sft", 8), make("base", 2, set_name="second"), make("sft", 9, set_name="second")]
    document = make_document(reports, [], title="t")
    assert [(one.first, one.second, one.conditions) for one in document.tests] == [
        ("base", "sft", "A"),
        ("base", "sft", "B"),
    ]
    assert [row.conditions for row in document.rows] == ["A", "A", "B", "B"]


def test_a_stage_is_tested_against_the_parent_that_its_lineage_names(tmp_path: Path) -> None:
    teacher = write_run(tmp_path / "teacher")
    kto, grpo = (write_run(tmp_path / name, parent=teacher) for name in ("kto", "grpo"))
    reports = [
        make("base", 1),
        make("teacher", 5, lineage=teacher),
        make("kto", 6, lineage=kto),
        make("grpo", 7, lineage=grpo),
    ]
    curves = [one for name in ("teacher", "kto", "grpo") for one in read_curves(tmp_path / name)]
    pairs = {(one.first, one.second) for one in make_document(reports, curves, title="t").tests}
    assert pairs == {("base", "teacher"), ("base", "kto"), ("base", "grpo"), ("teacher", "kto"), ("teacher", "grpo")}


def test_a_control_has_no_parent_where_runs_tell_of_theirs(tmp_path: Path) -> None:
    sft = write_run(tmp_path / "sft")
    reports = [make("base", 1), make("random", 2), make("expert", 9), make("sft", 4, lineage=sft)]
    alone = {(one.first, one.second) for one in make_document(reports, [], title="t").tests}
    assert ("random", "expert") in alone
    told = make_document(reports, read_curves(tmp_path / "sft"), title="t").tests
    assert {(one.first, one.second) for one in told} == {("base", "random"), ("base", "expert"), ("base", "sft")}


ARMS = ("sft@full", "sft@plain", "sft@odd")


def arms(set_name: str = "eval") -> list[EvalReport]:
    return [make(label, solved, set_name=set_name) for label, solved in zip(ARMS, (9, 5, 2), strict=True)]


def test_each_ablation_is_tested_against_the_arm_with_all_filters_and_nothing_else() -> None:
    reports = [make("base", 1), make("sft", 8), *arms(), make("base", 1, set_name="second"), *arms("second")]
    tests = make_document(reports, [], title="t").tests
    found = {(one.family, one.first, one.second, one.conditions) for one in tests}
    assert found == {
        ("stages", "base", "sft", "A"),
        *(("ablations", "sft@full", label, letter) for label in ARMS[1:] for letter in "AB"),
    }
    one = next(one for one in tests if one.second == "sft@odd")
    assert one.difference.value == pytest.approx(-7 / 12) and one.paired.first_only == 7


def test_a_family_is_corrected_within_itself_whatever_else_is_measured() -> None:
    stages = [make("base", 1), make("sft", 8), make("grpo", 9)]
    alone = make_document(stages, [], title="t").tests
    beside = make_document([*stages, *arms()], [], title="t").tests
    assert [one for one in beside if one.family == "stages"] == list(alone)
    corrected = [one for one in beside if one.family == "ablations"]
    assert [one.holm for one in corrected] == holm([one.paired.p_value for one in corrected])


def test_an_ablation_whose_control_is_not_measured_yet_is_in_no_family() -> None:
    reports = [make("base", 1), make("sft@odd", 8)]
    known = {"sft@full": "sft@full", "sft@odd": "sft@full"}
    assert make_document(reports, [], title="t", controls=known).tests == ()
    assert [one.family for one in make_document(reports, [], title="t").tests] == ["stages"]  # "@" alone says nothing


def test_the_page_names_both_families_with_their_sizes_and_the_arms() -> None:
    text = render_page(make_document([make("base", 1), make("sft", 8), *arms()], [], title="t", arms=["odd: 7 rows"]))
    assert "Tests between stages" in text and "Ablations" in text and "<li>odd: 7 rows</li>" in text
    sizes = re.findall(r"corrected for this family&#39;s\s+(\d+) test|corrected for this family's\s+(\d+) test", text)
    assert [one or other for one, other in sizes] == ["1", "2"]


def test_a_row_whose_training_a_guard_ended_says_so(tmp_path: Path) -> None:
    lineage = write_run(tmp_path / "kto")
    document = make_document([make("kto", 1, lineage=lineage)], read_curves(tmp_path / "kto"), title="t")
    (row,) = document.rows
    assert (row.trained_steps, row.ending) == (3, "stopped after 3 steps: KL")
    text = render_page(document)
    assert text.count("(stopped after 3 steps: KL)") == 2 and "kto (stopped)" in text  # both tables; the charts


def test_what_a_report_did_not_record_is_not_shown_as_0() -> None:
    new, old = make("new", 4), as_version_1(make("old", 4))
    text = render_page(make_document([new, old], [], title="t"))
    assert text.count("not recorded") == 1
    rows = make_document([new, old], [], title="t").rows
    assert rows[0].partial is not None and rows[1].partial is None


def test_means_over_unscored_episodes_are_marked() -> None:
    reports = [make("new", 4, unscored=1), as_version_1(make("old", 4, unscored=1)), as_version_1(make("whole", 4))]
    document = make_document(reports, [], title="t")
    assert [row.is_over_all for row in document.rows] == [False, True, False]
    text = render_page(document)
    assert "100.0%*" in text and "as an earlier version took it" in text
    assert "as an earlier version took it" not in render_page(make_document(reports[:1], [], title="t"))


def test_every_interval_says_how_it_was_taken() -> None:
    greedy, sampled = [make("base", 2, samples=1), make("sft", 6, samples=1)], mixed_samples()
    text = render_page(make_document([*greedy, sampled], [], title="t"))
    assert re.search(r"<small>\[[\d.%, ]+\] w</small>", text)  # a share of problems that count 0 or 1
    assert re.search(r"<small>\[[\d.%, ]+\] b</small>", text)  # several samples averaged
    assert re.search(r"[+-][\d.]+ \[[+-][\d.]+, [+-][\d.]+\] n<", text)  # a difference of two such shares
    for letter, said in METHODS.values():
        assert f"<strong>{letter}</strong> {said.replace(chr(39), '&#39;')}" in text


def mixed_samples() -> EvalReport:
    """A report in which problems are solved by some of their samples."""
    found = make("mixed", 6, samples=2)
    problems = [msgspec.structs.replace(one, successes=one.scored // 2) for one in found.problems]
    shares = [float(place % 2) / 2 for place in range(12)]
    return msgspec.structs.replace(found, problems=tuple(problems), asr=mean_estimate(shares, 0))


def test_one_label_twice_under_one_set_of_conditions_is_refused() -> None:
    with pytest.raises(ValueError, match="stands twice"):
        make_document([make("sft", 1), make("sft", 2)], [], title="t")


def test_a_difference_has_its_sign_and_its_interval() -> None:
    worse = share_difference(make("sft", 8), make("kto", 5))
    assert (worse.value, worse.n) == (-0.25, 12)
    assert worse.low < worse.value < worse.high and worse.method == "newcombe"
    assert share_difference(make("kto", 5), make("sft", 8)).value == 0.25


@given(st.lists(SHARE, max_size=12))
def test_holm_never_makes_a_test_look_better_and_keeps_the_order(p_values: list[float]) -> None:
    adjusted = holm(p_values)
    assert all(one <= other <= 1 for one, other in zip(p_values, adjusted, strict=True))
    ranked = [adjusted[place] for place in sorted(range(len(p_values)), key=lambda index: p_values[index])]
    assert ranked == sorted(ranked)


def test_holm_is_the_textbooks() -> None:
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])


@settings(max_examples=20)  # each draws two charts
@given(st.text(min_size=1, max_size=30), st.lists(st.tuples(SHARE, st.one_of(st.none(), SHARE)), max_size=8))
@example(' id="', [(0.0, 1.0)])
@example("</text> <!-- #000001 $x_1$", [(0.0, 1.0)])
def test_charts_are_well_formed_whatever_they_are_called(label: str, points: list[tuple[float, float | None]]) -> None:
    printable = "".join(letter for letter in label if letter.isprintable())
    for svg in (
        line_chart([ChartLine(label=printable, points=tuple(points))], x_name="x", y_name="y"),
        dot_chart([Dot(label=printable, value=0.5, low=0.2, high=0.7)], x_name="x"),
    ):
        assert svg == "" or printable[:20] in "".join(ET.fromstring(svg).itertext())


def test_a_missing_value_breaks_the_curve() -> None:
    svg = line_chart(
        [ChartLine(label="a", points=((1, 1.0), (2, 2.0), (3, None), (4, 3.0), (5, 4.0)))], x_name="x", y_name="y"
    )
    (curve,) = [path for path in ET.fromstring(svg).iter("path") if "#1f6fb4" in (path.get("style") or "")][:-1]
    assert (curve.get("d") or "").count("M") == 2


def test_a_log_is_read_up_to_where_a_kill_cut_it(tmp_path: Path) -> None:
    write_run(tmp_path / "grpo")
    (run,) = read_curves(tmp_path / "grpo")
    assert (run.label, run.steps, run.stopped_by, run.is_finished) == ("grpo", 3, "KL", True)
    assert {one.metric: one.values for one in run.series}["kl"] == (0.5, None, 0.5)


def test_an_unfinished_run_shows_the_last_step_it_logged(tmp_path: Path) -> None:
    write_run(tmp_path / "grpo")
    (tmp_path / "grpo" / "lineage.json").unlink()
    (run,) = read_curves(tmp_path / "grpo")
    assert (run.steps, run.is_finished) == (3, False)
    text = render_page(make_document([], [run], title="t"))
    assert re.search(r'<td>grpo</td><td class="n">3</td><td>not finished: steps logged so far</td>', text)


def test_a_run_that_logged_nothing_yet_has_its_place(tmp_path: Path) -> None:
    write_run(tmp_path / "kto")
    for name in ("lineage.json", "log.jsonl"):
        (tmp_path / "kto" / name).unlink()
    (run,) = read_curves(tmp_path / "kto")
    assert (run.label, run.series, run.steps, run.is_finished) == ("kto", (), 0, False)
    assert "not finished" in render_page(make_document([], [run], title="t"))


class _Page(html.parser.HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.links += [value or "" for name, value in attrs if name in ("src", "href")]


def test_the_page_needs_nothing_else_and_escapes_what_it_is_given() -> None:
    curves = [RunCurves(label="<script>x</script>", series=(Series(metric="kl", steps=(1, 2), values=(0.1, 0.2)),))]
    reports = [make("base", 1, samples=8), make("<b>bad</b>", 9, samples=8)]
    text = render_page(make_document(reports, curves, title="<i>t", notes=("<u>n",)))
    page = _Page()
    page.feed(text)
    assert page.links == [] and "url(" not in text and "@import" not in text
    assert not {"script", "b", "i", "u", "link", "img"} & set(page.tags)
    assert page.tags.count("svg") >= 5  # ASR, pass@k, buckets, axes, KL


def test_every_row_of_ours_shows_its_conditions() -> None:
    text = render_page(make_document([make("base", 1), make("sft", 6)], [], title="t"))
    for said in (
        "temperature 0.9",
        "top_p 0.95",
        "paper4",
        "prompthash",
        "unscored 0 of 24",
        "held against nothing",
        "n 12",
    ):
        assert said in text, said
    assert "published, Table 1" in text and "42.7%" in text


def test_a_small_p_is_not_printed_as_zero() -> None:
    assert [p_text(one) for one in (0.0, 0.0004, 0.05, 1.0)] == ["< .001", "< .001", ".050", "1.000"]


def test_the_command_writes_page_table_and_json(tmp_path: Path) -> None:
    for name, solved in (("base", 1), ("sft", 9)):
        (tmp_path / f"{name}.json").write_bytes(msgspec.json.encode(make(name, solved)))
    write_run(tmp_path / "run")
    files = [str(tmp_path / "base.json"), str(tmp_path / "sft.json"), "--run", str(tmp_path / "run")]
    shown = CliRunner().invoke(app, [*files, "--out", str(tmp_path / "page" / "report.html")])
    assert shown.exit_code == 0, shown.output
    assert "sft against base" in shown.output and "Qwen3-4B base" in shown.output
    assert (tmp_path / "page" / "report.html").read_text("utf-8").startswith("<!doctype html>")
    plain = json.loads(CliRunner().invoke(app, [*files, "--json"]).stdout)
    assert [row["label"] for row in plain["rows"]] == ["base", "sft"] and plain["tests"][0]["paired"]["n"] == 12


def test_what_is_no_report_is_a_usage_error(tmp_path: Path) -> None:
    (tmp_path / "odd.json").write_text("{}", "utf-8")
    assert CliRunner().invoke(app, [str(tmp_path / "odd.json")]).exit_code == 2
    assert CliRunner().invoke(app, ["--title", "t"]).exit_code == 2


LONG = ("runs/2026-11-23-study/rejection_v2-seed-11", "runs/2026-11-23-study/rejection_v2-seed-12")


def test_a_chart_cuts_no_label_short() -> None:
    dots = [Dot(label=label, value=0.5, low=0.4, high=0.6) for label in (*LONG, "grpo")]
    texts = re.findall(r">([^<>]+)</text>", dot_chart(dots, x_name="ASR"))
    joined = "".join(one.strip() for one in texts)
    assert all(label in joined for label in LONG) and "…" not in joined


def test_no_table_of_the_page_has_more_columns_than_a_screen_shows() -> None:
    text = render_page(make_document([make(label, 4) for label in (*LONG, "grpo")], [], title="t"))
    heads = re.findall(r"<thead>(.*?)</thead>", text, re.DOTALL)
    assert len(heads) >= 5
    assert max(head.count("<th") for head in heads) <= 12  # 1280 px, looked at


def test_the_letters_of_intervals_stand_in_a_list_and_dots_have_a_legend_of_dots() -> None:
    text = render_page(make_document([make(label, 4) for label in LONG], [], title="t"))
    legend = re.search(r'<ul class="dim legend">(.*?)</ul>', text, re.DOTALL)
    assert legend and legend[1].count("<li>") == len(METHODS)
    lines = [ChartLine(label=label, points=((0.0, 0.5),)) for label in LONG]
    drawn = strip_chart(["price"], lines, x_name="hits")
    assert "stroke-dasharray" not in drawn and drawn.count("stroke-linecap: round") == 4  # two dots and their legend


def test_a_long_name_is_broken_between_its_parts_and_keeps_them_all() -> None:
    name = "sft_wide@no_structural_filter_by_tokens-11"
    svg = dot_chart([Dot(label=name, value=0.5, low=0.4, high=0.6)], x_name="ASR")
    lines = re.findall(r">([^<>]*)</t(?:ext|span)>", svg)
    assert "".join(line for line in lines if line.strip() and line.strip() in name).replace(" ", "") == name
    assert {"structural_filter_by_", "tokens-11"} <= {line.strip() for line in lines}
