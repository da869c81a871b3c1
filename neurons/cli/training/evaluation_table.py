"""An evaluation as a table on the terminal, alone or beside another one under the same conditions."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from neurons.cli.presenter import echo_json, make_table

if TYPE_CHECKING:
    from training.evaluation.report import Estimate, EvalReport, SetSpend

SPEND_NAMES = ("tokens a solved", "USD a solved", "seconds a solved")


def read_report(path: Path) -> EvalReport:
    """The report in a file. Raises typer.BadParameter."""
    import msgspec

    from training.evaluation.report import EvalReport

    try:
        return msgspec.json.decode(path.read_bytes(), type=EvalReport)
    except (OSError, msgspec.DecodeError) as error:
        raise typer.BadParameter(f"{path} is no report: {error}") from error


def show_evaluation(report: EvalReport, against: Path | None, *, as_json: bool) -> None:
    """Print a report, beside the one in the file `against` where one is named. Raises typer.BadParameter for reports
    that can't be compared."""
    from rich.console import Console

    from training.evaluation.report import compare

    other = read_report(against) if against else None
    try:
        paired = compare(report, other) if other else None
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--against") from error
    if as_json:
        echo_json({"report": report, "paired": paired})
        return
    shown, measured = [report, other] if other else [report], report.conditions.set
    labels = [one.label for one in shown]
    table = make_table("", *labels, title=f"{measured.name}: {measured.problems} problems", right=labels)
    rows = [_lines(one) for one in shown]
    for name in dict.fromkeys(name for row in rows for name in row):
        table.add_row(name, *(row.get(name, "") for row in rows))
    Console().print(table)
    names = {"weights": report.weights_sha256, "lineage": report.lineage_sha256}
    told = (
        ", ".join(f"{name} {sha256[:16]}" for name, sha256 in names.items() if sha256) or f"asked as {report.weights}"
    )
    typer.echo(f"{report.label}: {told}; {report.contamination}")
    if paired and other:
        typer.echo(
            f"{report.label} alone solves {paired.first_only}, {other.label} alone {paired.second_only} of {paired.n}; "
            f"p = {paired.p_value:.4f} (exact McNemar)"
        )


def _lines(report: EvalReport) -> dict[str, str]:
    return {
        "success (ASR)": _share(report.asr),
        **{f"  {bucket}": _share(estimate) for bucket, estimate in report.by_bucket.items()},
        "exact": _share(report.gt_exact),
        **({"partial": _share(report.partial)} if report.partial else {}),
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
        **dict(zip(SPEND_NAMES, spend_texts(report.spent), strict=True)),
        "unscored": f"{report.unscored} of {report.episodes}",
        "overflows": str(report.overflows),
    }


def _share(estimate: Estimate) -> str:
    return f"{estimate.value:.3f} [{estimate.low:.3f}, {estimate.high:.3f}]"


def spend_texts(spent: SetSpend | None) -> tuple[str, str, str]:
    """Tokens, dollars and seconds for each solved episode; dashes where nothing was recorded, or nothing solved."""
    if spent is None or not spent.solved:
        return "-", "-", "-"
    tokens = (spent.prompt_tokens + spent.completion_tokens) / spent.solved
    dollars = f"{spent.cost_micro_usd / spent.solved / 1_000_000:.6f}" if spent.cost_micro_usd else "-"
    seconds = "-" if spent.episode_ms is None else f"{spent.episode_ms / spent.solved / 1_000:.1f}"
    return f"{tokens:,.0f}", dollars, seconds
