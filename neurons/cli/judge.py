"""`arena judge`: measure how wrong a panel is."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer
from msgspec.structs import replace

from arena.chain.keys import verify
from foundation.durable_files import write_whole
from foundation.errors import ArenaError, counted
from harness.inference.gateway import Ledger
from judge.client import MeteredJudge
from judge.render import Judge
from judge.rubric import Rubric
from neurons.cli.options import WALLET_SPELLINGS, WalletFlags, command, policy_named
from neurons.cli.presenter import show, show_progress, table_text

if TYPE_CHECKING:
    from judge.calibration.measurement import Calibration, JudgedTrace, Spending


AT_ONCE = 4  # traces judged at the same time
app = typer.Typer(
    help="""Measure the judge.

    arena judge calibrate --out build/calibration
    """,
    callback=lambda: None,  # else its one command would take the group's place
    no_args_is_help=True,
)


@command(app)
def calibrate(
    out: Annotated[Path | None, typer.Option(help="Folder for result and rows.", file_okay=False)] = None,
    check: Annotated[Path | None, typer.Option(help="Check this signed calibration.json instead.", exists=True)] = None,
    policy: Annotated[str, typer.Option("--policy", help="Shipped policy or JSON file whose rubric judges.")] = "demo",
    models: Annotated[str, typer.Option(help="Comma-separated models instead of the policy's panel.")] = "",
    base_url: Annotated[
        str,
        typer.Option(
            help="OpenAI-compatible endpoint of the panel, or one for each model, comma-separated in their order; "
            "empty: the scripted judge. The key is read from OPENAI_API_KEY."
        ),
    ] = "",
    traces: Annotated[int, typer.Option(min=1, help="Judge only so many, spread over all.")] = 100_000,
    hotkey: Annotated[
        str,
        typer.Option(
            *WALLET_SPELLINGS["wallet_hotkey"], help="Sign the result with this hotkey; //NAME on the local network."
        ),
    ] = "",
) -> None:
    """Judge traces whose quality is known, and say how wrong the panel is.

    arena judge calibrate --out build/calibration
    arena judge calibrate --out build/qwen --base-url http://127.0.0.1:8000/v1 --models qwen --wallet.hotkey judge
    arena judge calibrate --check build/calibration/calibration.json --policy paper

    The traces are made on the spot, from recipes: runs over a generated shop, changed in one way each. Writes
    rows.jsonl (one verdict a line) and calibration.json, which a policy can pin by its hash. A verdict that could not
    be given is counted as owed, never as a zero. With --check nothing is judged: a signed calibration is held against
    its signature, the policy's panel and the hash that it pins.
    """
    from judge.calibration import measurement
    from judge.calibration.traces import make_trace, open_shop, recipes

    if check is not None:
        try:
            signed = msgspec.json.decode(check.read_bytes(), type=measurement.SignedCalibration)
        except msgspec.DecodeError as error:
            wrong = f"{check} is not a signed calibration; --wallet.hotkey writes one: {error}"
            raise typer.BadParameter(wrong) from error
        whole = (found := measurement.check_calibration(signed, rubric_of(policy, ""), verify)).population("all")
        said = f"kappa {_share(whole.kappa_e4)} on {counted(whole.traces, 'trace')}"
        show(found, [f"holds: {signed.sha256} by {signed.hotkey}, {said}"])
        return
    if out is None:
        raise typer.BadParameter("name the folder of the result", param_hint="--out")
    signer = WalletFlags(wallet_hotkey=hotkey).open() if hotkey else None
    rubric, ledger = rubric_of(policy, models), Ledger()
    judges = _judges(rubric, base_url, ledger)
    progress = show_progress()
    with open_shop() as shop:
        every = recipes()
        asked = min(traces, len(every))
        made = []
        for place in range(asked):
            made.append(make_trace(every[place * len(every) // asked], shop))
            progress("make", len(made), asked)
    judged = measurement.judge_traces(made, rubric, judges, at_once=AT_ONCE, progress=progress)
    found = measurement.measure(judged, rubric, _spent(judged, ledger))
    out.mkdir(parents=True, exist_ok=True)
    lines = (
        {"recipe": one.trace.recipe, "split": one.trace.split, "true_e4": one.trace.quality_e4, "verdict": one.verdict}
        for one in judged
    )
    write_whole(out / "rows.jsonl", b"".join(msgspec.json.encode(row) + b"\n" for row in lines))
    kept = measurement.sign_calibration(found, signer.hotkey, signer.sign) if signer else None
    write_whole(out / "calibration.json", msgspec.json.encode(kept or found))
    if kept:
        typer.echo(f"calibration {kept.sha256} signed by {kept.hotkey}", err=True)
    show(found, _calibration_lines(found))


def _spent(judged: Sequence[JudgedTrace], ledger: Ledger) -> Spending:
    from judge.calibration.measurement import Spending

    names, rows = ("requests", "prompt_tokens", "completion_tokens"), ledger.usage()
    sums = {name: sum(getattr(one, name) for one in rows) for name in names}
    return Spending(verdicts=sum(one.quality_e4 is not None for one in judged), **sums)


def _judges(rubric: Rubric, base_url: str, ledger: Ledger) -> tuple[Judge, ...]:
    """The rubric's judges: at the endpoints, or scripted ones without.

    Raises ArenaError U3001 for a model that is not scripted and has no endpoint, V2030 for other endpoints.
    """
    from neurons.settings.settings import Endpoint
    from neurons.worker.ports import open_judges

    places = [place.strip() for place in base_url.split(",")] if base_url else []
    if len(places) not in (0, 1, len(rubric.models)):
        detail = f"--base-url names {len(places)} endpoints for {len(rubric.models)} models"
        raise ArenaError("V2030", f"{detail}: give one, or one for each")
    key, pairs = os.environ.get("OPENAI_API_KEY", ""), zip(rubric.models, itertools.cycle(places), strict=False)
    endpoints = [Endpoint(name="judge", base_url=place, api_key=key, models=(model,)) for model, place in pairs]
    return tuple(MeteredJudge(judge, ledger) for judge in open_judges(rubric, endpoints))


def rubric_of(policy: str, models: str) -> Rubric:
    """The rubric of a policy, shipped or a JSON file; `models`, separated by commas, replace its panel.

    Raises ArenaError V2030.
    """
    rubric = policy_named(policy).rubric
    panel = tuple(name.strip() for name in models.split(",") if name.strip())
    return replace(rubric, models=panel or rubric.models)


def _calibration_lines(found: Calibration) -> Iterator[str]:
    columns = ("traces", "owed", "accuracy", "kappa", "95 %")
    rows = []
    for one in found.populations[:3]:
        interval = f"{_share(one.kappa_low_e4)} to {_share(one.kappa_high_e4)}"
        shares = (_share(one.accuracy_e4), _share(one.kappa_e4), interval)
        rows.append((one.name, str(one.traces), str(one.owed), *shares))
    yield table_text(("traces that are", *columns), rows, right=columns)
    for effect in found.effects:
        moved = f"{effect.moved} of {effect.pairs} qualities moved"
        yield f"{effect.trait} changed alone: {moved}, by {effect.mean_change_e4 / 10_000:+.3f} on average"


def _share(value_e4: int | None) -> str:
    return "-" if value_e4 is None else f"{value_e4 / 10_000:.3f}"
