"""`arena judge sheet` and `arena judge agreement`: traces for people to rate, and how far they agree."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from neurons.cli.options import DsnOption, JsonOption, StateDirOption, ValidatorOption
from neurons.cli.presenter import echo_json
from neurons.cli.store_reading import run_on_store
from neurons.cli.validator.judge_calibration import RubricPolicyOption, rubric_of
from neurons.cli.validator.judge_replay import body_and_verdicts, evaluations_of


def sheet(
    out: Annotated[Path, typer.Option("--out", help="New folder for sheet, forms and key.", file_okay=False)],
    raters: Annotated[str, typer.Option("--raters", help="Names of the raters, separated by commas.")],
    traces: Annotated[int, typer.Option("--traces", min=2, help="How many traces to rate.")] = 30,
    seed: Annotated[str, typer.Option("--seed", help="Another seed, another choice and order.")] = "1",
    policy: RubricPolicyOption = "demo",
    race: Annotated[str, typer.Option("--race", help="Only this race's traces.")] = "",
    validator: ValidatorOption = "",
    dsn: DsnOption = "",
    state_dir: StateDirOption = None,
) -> None:
    """Write a blind sheet: recorded traces without verdicts, and a form for each rater.

    arena judge sheet --out build/sheet --raters anna,ben --traces 30

    Give raters sheet.txt and their form (CSV: a quality of 0.1, 0.3, 0.5, 0.7 or 0.9 per trace). Keep key.json:
    `arena judge agreement` reads the forms by it.

    arena judge agreement build/sheet/key.json build/sheet/form-anna.csv build/sheet/form-ben.csv
    """
    import msgspec

    from arena.store.postgres.store import PostgresStore
    from foundation.durable_files import write_whole
    from foundation.errors import ArenaError
    from harness.trace import EvaluationBody
    from judge.calibration.sheet import SheetKey, empty_form, sheet_text, shuffled
    from judge.prompts import prompt_text
    from judge.verdict import UnscoredVerdict, Verdict

    async def read(store: PostgresStore) -> dict[str, tuple[EvaluationBody, list[Verdict | UnscoredVerdict]]]:
        found = await evaluations_of(store, validator, race)
        return {
            record.body_sha256: await body_and_verdicts(store, name, record.body_sha256) for name, _, record in found
        }

    names = [name.strip() for name in raters.split(",") if name.strip()]
    if not names:
        raise typer.BadParameter("--raters names nobody: give names, separated by commas")
    if out.exists() and any(out.iterdir()):
        raise ArenaError("V2027", f"{out} is not empty: a sheet that raters may have filled in is not replaced")
    found = run_on_store(dsn, state_dir, read)
    chosen = shuffled({name: body for name, (body, _) in found.items()}, seed)[:traces]
    verdicts = [found[name][1][-1] if found[name][1] else None for name in chosen]
    key = SheetKey(
        body_sha256s=tuple(chosen),
        panel_e4=tuple(one.quality_e4 if isinstance(one, Verdict) else None for one in verdicts),
    )
    out.mkdir(parents=True, exist_ok=True)
    text = sheet_text([found[name][0] for name in chosen], prompt_text(rubric_of(policy, "").rubric_id))
    write_whole(out / "sheet.txt", text.encode())
    for name in names:
        write_whole(out / f"form-{name}.csv", empty_form(len(chosen)).encode())
    write_whole(out / "key.json", msgspec.json.encode(key), mode=0o600)
    typer.echo(f"{len(chosen)} traces in {out / 'sheet.txt'}, {len(names)} forms; key.json is not for raters")


def agreement(
    key: Annotated[Path, typer.Argument(help="The sheet's key.json.", exists=True, dir_okay=False)],
    forms: Annotated[list[Path], typer.Argument(help="The filled-in forms.", exists=True, dir_okay=False)],
    as_json: JsonOption = False,
) -> None:
    """Show how far raters agree with each other and with the panel.

    arena judge agreement key.json form-anna.csv form-ben.csv

    Krippendorff's alpha (interval) over all raters, and quadratic weighted kappa of pairs; empty lines are left out.
    """
    import msgspec

    from foundation.errors import ArenaError
    from judge.calibration.sheet import SheetKey, compare_raters, read_form

    try:
        known = msgspec.json.decode(key.read_bytes(), type=SheetKey)
    except msgspec.DecodeError as error:
        raise ArenaError("V2081", f"{key} is no key of a sheet: {error}") from error
    traces = len(known.body_sha256s)
    given = {form.stem.removeprefix("form-"): read_form(form.read_text("utf-8-sig"), traces) for form in forms}
    found = compare_raters(given, known)
    if as_json:
        echo_json(found)
        return
    typer.echo(f"{found.traces} traces, {len(given)} raters")
    typer.echo(f"alpha between raters    {_number(found.alpha_e4)}")
    typer.echo(f"alpha with the panel    {_number(found.alpha_with_panel_e4)}")
    for names, value in found.between.items():
        typer.echo(f"kappa {names:<18}{_number(value)}")
    for name, value in found.with_panel.items():
        typer.echo(f"kappa {name + ' and panel':<18}{_number(value)}")


def _number(value_e4: int | None) -> str:
    return "not defined" if value_e4 is None else f"{value_e4 / 10_000:.3f}"
