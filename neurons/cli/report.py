"""`arena report`: evaluations beside each other and beside the paper's Table 1; and one evaluation in words."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from neurons.cli.options import JsonOption
from neurons.cli.presenter import field_lines, show

if TYPE_CHECKING:
    from training.evaluation.report import Estimate, EvalReport, SetSpend
    from training.report.document import Document


def _read_report(path: Path) -> EvalReport:
    """The report in a file. Raises typer.BadParameter."""
    from training.evaluation.report import EvalReport

    try:
        return msgspec.json.decode(path.read_bytes(), type=EvalReport)
    except (OSError, msgspec.DecodeError) as error:
        raise typer.BadParameter(f"{path} is no report: {error}") from error


def evaluation_lines(report: EvalReport) -> Iterator[str]:
    """One report in words."""
    measured = report.conditions.set
    yield f"{report.label} on {measured.name}: {measured.problems} problems"
    yield from field_lines(_report_rows(report).items(), 18)
    names = {"weights": report.weights_sha256, "lineage": report.lineage_sha256}
    told = ", ".join(f"{name} {sha256[:16]}" for name, sha256 in names.items() if sha256)
    yield f"{told or f'asked as {report.weights}'}; {report.contamination}"


def _report_rows(report: EvalReport) -> dict[str, str]:
    return {
        "success (ASR)": _share(report.asr),
        **{f"  {bucket}": _share(estimate) for bucket, estimate in report.by_bucket.items()},
        "exact": _share(report.gt_exact),
        "partial": _share(report.partial),
        **{f"axis {axis}": "-" if share is None else f"{share:.3f}" for axis, share in report.axes.items()},
        **{f"pass@{k}": _share(estimate) for k, estimate in report.pass_at.items()},
        **{
            f"seed {seed}": f"{share:.3f}"
            for seed, share in zip(report.conditions.seeds, report.asr_by_seed, strict=True)
        },
        "rule score": f"{report.rule:.3f}",
        "recommends": f"{report.emission:.3f}",
        "invented ids": f"{report.hallucinated:.2f}",
        "steps": f"{report.steps:.1f}",
        **_spend_rows(report.spent),
        "unscored": f"{report.unscored} of {report.episodes}",
        "overflows": str(report.overflows),
    }


def _share(estimate: Estimate) -> str:
    return f"{estimate.value:.3f} [{estimate.low:.3f}, {estimate.high:.3f}]"


def _spend_rows(spent: SetSpend | None) -> dict[str, str]:
    """Tokens, dollars and seconds for each solved episode; none where nothing was recorded, or nothing solved."""
    if spent is None or not spent.solved:
        return {}
    rows = {"tokens a solved": f"{(spent.prompt_tokens + spent.completion_tokens) / spent.solved:,.0f}"}
    if spent.cost_micro_usd:
        rows["USD a solved"] = f"{spent.cost_micro_usd / spent.solved / 1_000_000:.6f}"
    if spent.episode_ms is not None:
        rows["seconds a solved"] = f"{spent.episode_ms / spent.solved / 1_000:.1f}"
    return rows


app = typer.Typer(help="Lay evaluations beside the paper's Table 1.", no_args_is_help=True)


@app.command()
def report(
    reports: Annotated[
        list[Path] | None, typer.Argument(metavar="REPORT.json...", help="Evaluation reports, the base first.")
    ] = None,
    run: Annotated[
        list[Path] | None, typer.Option("--run", help="Folder of a run, for how its training ended; repeatable.")
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", help="HTML file to write.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Lay evaluations beside the paper's Table 1.

    Prints the table with intervals and paired tests; --out writes one HTML file that needs nothing else, with the
    conditions, what each took and how the runs named by --run ended. Each number names its conditions; only equal
    conditions are tested against each other: a row against the first of them and against the one before it.
    """
    from training.report.document import make_document, read_run, render_page

    found = [_read_report(path) for path in reports or ()]
    runs = [read_run(folder) for folder in run or ()]
    if not found and not runs:
        raise typer.BadParameter("nothing to report: give a REPORT.json or a --run")
    try:
        document = make_document(found, runs, title="Post-training report")
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(render_page(document), encoding="utf-8")
    show(document, _report_lines(document), as_json=as_json)
    if out is not None and not as_json:
        typer.echo(f"{out}: {len(document.rows)} rows, {len(document.runs)} runs")


def _report_lines(document: Document) -> Iterator[str]:
    from training.report.document import p_text

    line = "{:<32.32} {:<8} {:>18} {:>6} {:>3} {}".format
    yield line(document.title, "set", "ASR", "pass@8", "n", "unscored")
    published: dict[str, list[str]] = {}
    for one in document.published:
        asr, eight = ("-" if share is None else f"{share / 10:.1f}%" for share in (one.asr_e3, one.pass_at_8_e3))
        letter = one.group[0]
        yield line(one.label, letter, asr, eight, "75" if letter != "P" else "-", "-")
        published.setdefault(one.harness, []).append(letter)
    for row in document.rows:
        report = row.report
        label = f"{report.label} ({row.ending})" if row.ending else report.label
        asr = f"{report.asr.value:.1%} [{100 * report.asr.low:.1f}, {100 * report.asr.high:.1f}]"
        eight = f"{report.pass_at['8'].value:.1%}" if "8" in report.pass_at else "-"
        name = f"{row.letter}: {report.conditions.set.name}"
        yield line(label, name, asr, eight, report.asr.n, f"{report.unscored} of {report.episodes}")
    yield from (f"{', '.join(dict.fromkeys(letters))}: {harness}" for harness, letters in published.items())
    for test in document.tests:
        gap, p_values = test.difference, f"p {p_text(test.paired.p_value)}, after Holm {p_text(test.holm)}"
        difference = f"{100 * gap.value:+.1f} [{100 * gap.low:+.1f}, {100 * gap.high:+.1f}] pp"
        yield f"{test.second} against {test.first} ({test.conditions}): {difference}; {p_values}"
