"""A calibration as a page: what was measured, in tables and pictures. Nothing in it is fetched from elsewhere."""

from __future__ import annotations

from html import escape

from judge.calibration.measurement import Calibration, Rated
from judge.rubric import QUALITY_LEVELS_E4

_STYLE = """:root{--line:#d5d9de;--kept:#2f8f4e;--was:#9aa4ad;--lost:#c8501e;--alarm:#b3261e;--rail:#eef1f4}
body{font:15px/1.5 system-ui,sans-serif;max-width:760px;margin:2em auto;padding:0 1em;color:#1c2126;background:#fff}
table{border-collapse:collapse;margin:1em 0}
td,th{padding:.2em .7em;border-bottom:1px solid var(--line);text-align:right}
td:first-child,th:first-child{text-align:left}svg{max-width:100%;height:auto}
@media(prefers-color-scheme:dark){body{background:#15181b;color:#e4e7ea}:root{--line:#3a4047;--rail:#22272c}}"""


def calibration_page(found: Calibration) -> str:
    """The HTML of a result."""
    from training.charts import Dot, dot_chart, heatmap

    levels = [f"{level / 10_000:.1f}" for level in QUALITY_LEVELS_E4]
    groups = [one for one in found.populations if one.name in ("all", "tune", "held")]
    families = [one for one in found.populations if one not in groups]
    dots = [
        Dot(label=one.name, value=one.accuracy_e4 / 10_000, low=one.accuracy_e4 / 10_000, high=one.accuracy_e4 / 10_000)
        for one in families
        if one.accuracy_e4 is not None
    ]
    parts = [
        f"<h1>How often the judge is wrong</h1><p>Panel {escape(', '.join(found.rubric.models))}, rubric "
        f"{escape(found.rubric.rubric_id)}, {groups[0].traces} traces whose quality is known by construction. "
        "A family that is held out was not looked at while this judge was improved; kappa is quadratic, "
        "with 95 % intervals drawn by leak cluster.</p>",
        _table(groups),
    ]
    for one in groups:
        shares = [[n / sum(row) if sum(row) else None for n in row] for row in one.confusion]
        parts += [
            f"<h2>{escape(one.name)}: made for (rows), given (columns)</h2>",
            heatmap(levels, levels, shares, name=f"confusion, {one.name}"),
        ]
    parts += ["<h2>Accuracy by family</h2>", dot_chart(dots, x_name="share judged as made"), _table(families)]
    effects = "".join(
        f"<tr><td>{escape(one.trait)}<td>{one.pairs}<td>{one.moved}<td>{one.mean_change_e4 / 10_000:+.3f}"
        for one in found.effects
    )
    parts.append(
        "<h2>What should not move a quality</h2><p>Pairs of runs that differ in one trait alone.</p>"
        f"<table><tr><th>trait<th>pairs<th>moved<th>mean change{effects}</table>"
    )
    if len(found.models) > 1:
        parts += ["<h2>Each model alone</h2>", _table(found.models), f"<p>alpha: {_number(found.model_alpha_e4)}</p>"]
    spent = found.spent
    parts.append(
        f"<h2>Cost</h2><p>{spent.requests} replies, {spent.prompt_tokens:,} prompt and {spent.completion_tokens:,} "
        f"completion tokens, {spent.micro_usd / 1e6:.4f} USD.</p>"
    )
    refused = "".join(f"<tr><td>{escape(reason)}<td>{count}" for reason, count in found.refused.items())
    if refused:
        parts.append(f"<h2>Models without a usable reply</h2><table><tr><th>reason<th>times{refused}</table>")
    head = (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>Judge calibration</title><style>{_STYLE}</style>'
    )
    return f"{head}<body>{''.join(parts)}</body></html>\n"


def _table(rows: tuple[Rated, ...] | list[Rated]) -> str:
    lines = "".join(
        f"<tr><td>{escape(one.name)}<td>{one.traces}<td>{one.owed}<td>{_number(one.accuracy_e4)}"
        f"<td>{_number(one.kappa_e4)}<td>{_number(one.kappa_low_e4)} to {_number(one.kappa_high_e4)}"
        f"<td>{_number(one.mean_error_e4)}"
        for one in rows
    )
    return f"<table><tr><th><th>traces<th>owed<th>accuracy<th>kappa<th>95 %<th>mean error{lines}</table>"


def _number(value_e4: int | None) -> str:
    return "–" if value_e4 is None else f"{value_e4 / 10_000:.3f}"
