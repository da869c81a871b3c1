"""`arena demo`: the whole arena once, shown while it runs, then what came of it."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from neurons.cli.exit_codes import EXIT_INTEGRITY
from neurons.cli.options import JsonOption
from neurons.cli.presenter import show

if TYPE_CHECKING:
    from arena.records.verification import VerifyReport
    from neurons.demo.demo import DemoRun, DemoView
    from neurons.settings.settings import Settings

app = typer.Typer()
LINE_S = 3.0  # between two progress lines


@app.command()
def demo(
    state_dir: Annotated[Path | None, typer.Option(help="Keep runs here instead of the default state folder.")] = None,
    sandbox: Annotated[str, typer.Option(help="auto, bubblewrap, landlock or reference-agents-only.")] = "",
    workers: Annotated[int, typer.Option(help="Episodes at once; 0: one per core.")] = 0,
    models: Annotated[str, typer.Option(help="Model ids for a model endpoint of yours, comma-separated.")] = "",
    as_json: JsonOption = False,
) -> None:
    """Run the whole arena once on this machine.

    Seven agents are gated, qualified and raced in jails over a synthetic catalogue of 20,000 products, judged, signed
    into a real Postgres, verified and paid in weights on a local chain. The models are scripted; set OPENAI_BASE_URL
    (and --models) to use an OpenAI-compatible endpoint instead. Exit code 4 when a record fails verification.
    """
    from neurons.settings.settings import resolve

    flags = {"policy": "demo", "state_dir": state_dir, "sandbox": sandbox, "models": models, "workers": workers or None}
    if not asyncio.run(_demo(resolve(flags).settings, as_json=as_json)):
        raise typer.Exit(EXIT_INTEGRITY)


async def _demo(settings: Settings, *, as_json: bool) -> bool:
    from neurons.demo.demo import conclude, hand_in, prepare_run, running_validator

    def tell(line: str) -> None:
        typer.echo(f"· {line}", err=as_json)

    started_s = time.monotonic()
    run = await prepare_run(settings, tell)
    with running_validator(run) as process:
        tell("validator: python neurons/validator.py (its log is validator.log in the run's folder)")
        await hand_in(run, process)
        tell("submissions: handed in at the validator's door over HTTP")
        view = await _follow(run, process, tell)
    report, weights = await conclude(run)
    elapsed_s = round(time.monotonic() - started_s, 1)
    answer = {
        "folder": str(run.folder),
        "settlement": view.race.settlement,
        "rejections": list(_rejections(view)),
        "verify": report,
        "weights": weights,
        "elapsed_s": elapsed_s,
    }
    show(answer, _result_lines(run, view, report, weights, elapsed_s), as_json=as_json)
    return report.is_ok


async def _follow(run: DemoRun, process: subprocess.Popen[bytes], tell: Callable[[str], None]) -> DemoView:
    """Show the run until the race is over; the last view. Raises what `watch` raises."""
    from neurons.demo.demo import watch

    shown, shown_s = "", 0.0
    async for view in watch(run, process):
        states = Counter(submission.state for submission in view.submissions)
        raced = sum(not row.record.subject.is_control for row in view.race.evaluations)
        line = (
            f"{', '.join(f'{count} {state}' for state, count in sorted(states.items())) or 'waiting for the validator'}"
            f" · qualifying {len(view.qualifying.evaluations)} · race {raced} · {view.records} records"
        )
        if line != shown and (time.monotonic() - shown_s >= LINE_S or view.is_over):
            tell(line)
            shown, shown_s = line, time.monotonic()
    return view


def _rejections(view: DemoView) -> Iterator[str]:
    """Every rejected submission with the rule and line that rejected it."""
    from arena.gate.report import GateReport
    from arena.gate.rules import RULES

    for submission in view.submissions:
        if submission.state == "rejected" and submission.report:
            for found in msgspec.json.decode(submission.report, type=GateReport).rejections:
                why = found.detail or RULES[found.rule].meaning
                yield f"{submission.name} rejected ({found.rule}, line {found.line}): {why}"


def _jail_line(view: DemoView) -> str:
    """The jail the agents ran in, as the records name it; said loudly when it was none."""
    if not view.race.evaluations:
        return "jail: nothing ran"
    level = view.race.evaluations[0].record.conditions.sandbox
    if not level.may_race:
        return f"jail: NONE ({level.name}). Only the shipped agents ran, and no validator may race so: `arena doctor`."
    return f"jail: {level.name} ({', '.join(level.layers)})" + "".join(f"; without {one}" for one in level.degraded)


def _result_lines(
    run: DemoRun, view: DemoView, report: VerifyReport, weights: dict[str, int], elapsed_s: float
) -> Iterator[str]:
    """Leaderboard, rejections, weights, what was verified, where everything lies and what to try next."""
    from neurons.cli.race import standing_lines
    from neurons.demo.demo import LATEST, VALIDATOR
    from neurons.race.sentences import names_of, short

    names, settlement = names_of(view.submissions), view.race.settlement
    yield "\nleaderboard"
    yield from standing_lines(settlement, names) if settlement else ["no race was settled"]
    yield from _rejections(view)
    by_hotkey = {each.subject.miner_hotkey: names[each.subject.agent_version_id] for each in view.submissions}
    total = sum(weights.values()) or 1
    paid = (f"{by_hotkey.get(key, f'burned {short(key)}')} {weight / total:.1%}" for key, weight in weights.items())
    yield f"weights read back from the chain: {', '.join(paid)}"
    kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(report.kinds.items()))
    verdict = "ok" if report.is_ok else f"{report.defect_count} defects, first: {report.defects[0]}"
    yield f"records verify: {verdict} · {report.records} signed records ({kinds}), {report.bodies} bodies"
    yield _jail_line(view)
    yield f"took {elapsed_s:.0f} s\n"
    yield f"The validator's folder is {run.folder}"
    yield "  (postgres: the records; chain: the local chain; validator.log: its log)\n"
    # How `arena` is called from here: beside this Python, relative to the current folder where that is shorter.
    script, latest = Path(sys.executable).with_name("arena"), run.folder.with_name(LATEST)
    arena, folder = (one.relative_to(Path.cwd()) if one.is_relative_to(Path.cwd()) else one for one in (script, latest))
    yield f"next: {arena} race list --state-dir {folder}"
    yield f"      {arena} view 1 --state-dir {folder}"
    yield f"      {arena} records export --out day1 --state-dir {folder} --wallet.hotkey {VALIDATOR}"
    yield "Five lines for miners, validators, operators and researchers are in README.md."
