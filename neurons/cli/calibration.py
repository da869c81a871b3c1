"""`arena judge calibrate`: how wrong a panel of judges is, as a signed result; the panel that flags name."""

from __future__ import annotations

import itertools
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer
from msgspec.structs import replace

from foundation.durable_files import write_whole
from foundation.errors import ArenaError
from neurons.cli.options import JsonOption, complete_policy
from neurons.cli.presenter import echo_json, make_table, show_progress
from neurons.settings import flags as wallet_flags

if TYPE_CHECKING:
    from judge.budget import JudgeMeter
    from judge.calibration.measurement import Calibration
    from judge.port import Judge
    from judge.rubric import Rubric

AT_ONCE = 4  # traces judged at the same time
RubricPolicyOption = Annotated[
    str,
    typer.Option("--policy", help="Shipped policy or JSON file whose rubric judges.", autocompletion=complete_policy),
]


@dataclass(frozen=True)
class PanelFlags:
    """Which models judge, where, and what they cost."""

    models: Annotated[str, typer.Option("--models", help="Comma-separated models instead of the policy's panel.")] = ""
    base_url: Annotated[
        str,
        typer.Option(
            "--base-url",
            help="OpenAI-compatible endpoint of the panel, or one for each model, comma-separated in their order; "
            "empty: the scripted judge. The key is read from OPENAI_API_KEY.",
        ),
    ] = ""
    price: Annotated[
        tuple[int, int], typer.Option("--price", help="Micro-USD per million prompt tokens, and completion tokens.")
    ] = (0, 0)

    def judges(self, rubric: Rubric, meter: JudgeMeter) -> tuple[Judge, ...]:
        """The rubric's judges: at the endpoints, or scripted ones without.

        Raises ArenaError U3020 for a model that is not scripted and has no endpoint, V2030 for other endpoints.
        """
        from judge.budget import MeteredJudge
        from judge.client import OpenAIJudge
        from judge.scripted import ScriptedJudge
        from neurons.worker.ports import open_judges

        if not self.base_url:
            return tuple(
                MeteredJudge(judge, meter) for judge in open_judges(rubric, None) if isinstance(judge, ScriptedJudge)
            )
        places = [place.strip() for place in self.base_url.split(",")]
        if len(places) not in (1, len(rubric.models)):
            told = f"--base-url names {len(places)} endpoints for {len(rubric.models)} models"
            raise ArenaError("V2030", f"{told}: give one, or one for each")
        if wrong := [place for place in places if not place.startswith(("http://", "https://"))]:
            raise ArenaError("V2030", f"--base-url {wrong[0]!r} is no http or https address: give it whole")
        key = os.environ.get("OPENAI_API_KEY", "")
        pairs = zip(rubric.models, itertools.cycle(places), strict=False)
        return tuple(
            MeteredJudge(OpenAIJudge(model=model, base_url=place, api_key=key), meter) for model, place in pairs
        )


def calibrate(
    panel: PanelFlags,
    out: Annotated[Path | None, typer.Option("--out", help="Folder for result and rows.", file_okay=False)] = None,
    check: Annotated[
        Path | None, typer.Option("--check", help="Check this signed calibration.json instead.", exists=True)
    ] = None,
    policy: RubricPolicyOption = "demo",
    traces: Annotated[int, typer.Option("--traces", min=1, help="Judge only so many, spread over all.")] = 100_000,
    hotkey: Annotated[
        str, typer.Option(*wallet_flags.HOTKEY, help="Sign the result with this hotkey; //NAME on the local network.")
    ] = "",
    as_json: JsonOption = False,
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
    from judge.calibration.measurement import judge_traces, measure, sign_calibration
    from judge.calibration.traces import make_trace, open_shop, recipes
    from neurons.settings.inputs import signer_of
    from neurons.settings.settings import resolve

    if check is not None:
        _check(check, rubric_of(policy, ""), as_json=as_json)
        return
    if out is None:
        raise typer.BadParameter("name the folder of the result", param_hint="--out")
    signer = signer_of(resolve({"wallet_hotkey": hotkey}).settings) if hotkey else None
    rubric, meter = rubric_of(policy, panel.models), judge_meter(panel.price)
    judges = panel.judges(rubric, meter)
    with show_progress(is_quiet=as_json) as progress:
        with open_shop() as shop:
            every = recipes()
            asked = min(traces, len(every))
            made = []
            for place in range(asked):
                made.append(make_trace(every[place * len(every) // asked], shop))
                progress("make", len(made), asked)
        judged = judge_traces(made, rubric, judges, at_once=AT_ONCE, progress=progress)
    found = measure(judged, rubric, meter.take(sum(one.quality_e4 is not None for one in judged)))
    out.mkdir(parents=True, exist_ok=True)
    rows = (
        {"recipe": one.trace.recipe, "split": one.trace.split, "true_e4": one.trace.quality_e4, "verdict": one.verdict}
        for one in judged
    )
    write_whole(out / "rows.jsonl", b"".join(msgspec.json.encode(row) + b"\n" for row in rows))
    if signer is not None:
        signed = sign_calibration(found, signer.hotkey, signer.sign)
        write_whole(out / "calibration.json", msgspec.json.encode(signed))
        typer.echo(f"calibration {signed.sha256} signed by {signer.hotkey}", err=True)
    else:
        write_whole(out / "calibration.json", msgspec.json.encode(found))
    if as_json:
        echo_json(found)
    else:
        _print(found)


def _check(file: Path, rubric: Rubric, *, as_json: bool) -> None:
    from arena.chain.keys import verify
    from judge.calibration.measurement import SignedCalibration, check_calibration

    try:
        signed = msgspec.json.decode(file.read_bytes(), type=SignedCalibration)
    except msgspec.DecodeError as error:
        raise typer.BadParameter(f"{file} is no signed calibration; --wallet.hotkey writes one: {error}") from error
    found = check_calibration(signed, rubric, verify)
    if as_json:
        echo_json(found)
        return
    whole = found.population("all")
    typer.echo(f"holds: {signed.sha256} by {signed.hotkey}, kappa {_share(whole.kappa_e4)} on {whole.traces} traces")


def rubric_of(policy: str, models: str) -> Rubric:
    """The rubric of a policy, shipped or a JSON file; `models`, separated by commas, replace its panel.

    Raises ArenaError V2030.
    """
    from neurons.settings.inputs import policy_of
    from neurons.settings.settings import resolve

    rubric = policy_of(resolve({"policy": policy}).settings).rubric
    panel = tuple(name.strip() for name in models.split(",") if name.strip())
    return replace(rubric, models=panel or rubric.models)


def judge_meter(price: tuple[int, int]) -> JudgeMeter:
    """A meter that counts at a price: micro-USD per million tokens of prompt and completion."""
    from harness.inference.gateway import UpstreamPrice
    from judge.budget import JudgeMeter

    return JudgeMeter(UpstreamPrice(prompt_micro_usd=price[0], completion_micro_usd=price[1]))


def _print(found: Calibration) -> None:
    from rich.console import Console

    columns = ("traces", "owed", "accuracy", "kappa", "95 %")
    table = make_table("traces that are", *columns, right=columns, box=None, pad_edge=False)
    for one in found.populations[:3]:
        interval = f"{_share(one.kappa_low_e4)} to {_share(one.kappa_high_e4)}"
        table.add_row(one.name, str(one.traces), str(one.owed), _share(one.accuracy_e4), _share(one.kappa_e4), interval)
    Console().print(table)
    for effect in found.effects:
        typer.echo(
            f"{effect.trait} changed alone: {effect.moved} of {effect.pairs} qualities moved, "
            f"by {effect.mean_change_e4 / 10_000:+.3f} on average"
        )


def _share(value_e4: int | None) -> str:
    return "-" if value_e4 is None else f"{value_e4 / 10_000:.3f}"
