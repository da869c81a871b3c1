"""`arena demo`: the whole arena once, shown while it runs, then what came of it."""

from __future__ import annotations

import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from arena.gate.rules import RULES
from arena.submissions.submission import read_report
from foundation.errors import counted
from neurons.cli.options import command, settings_of
from neurons.cli.presenter import EXIT_INTEGRITY
from neurons.race.sentences import names_of, short

if TYPE_CHECKING:
    from arena.records.verification import VerifyReport
    from neurons.demo.demo import DemoRun, DemoView

app = typer.Typer()
LINE_S = 3.0  # between two progress lines


@command(app, has_json=False)
async def demo(
    state_dir: Annotated[Path | None, typer.Option(help="Keep runs here instead of the default state folder.")] = None,
    models: Annotated[str, typer.Option(help="Model ids for a model endpoint of yours, comma-separated.")] = "",
) -> None:
    """Run the whole arena once on this machine.

    Seven agents are gated, qualified and raced in jails over a synthetic catalogue of 20,000 products, judged, signed
    into a real Postgres, verified and paid in weights on a local chain. The models are scripted; set OPENAI_BASE_URL
    (and --models) to use an OpenAI-compatible endpoint instead. Other settings come from ARENA_* variables, such as
    ARENA_WORKERS. Exit code 4 when a record fails verification.
    """
    from neurons.demo.demo import conclude, hand_in, prepare_run, running_validator

    started_s = time.monotonic()
    settings = settings_of({"policy": "demo", "state_dir": state_dir, "models": models})
    run = await prepare_run(settings, _tell)
    with running_validator(run) as process:
        _tell("validator: python neurons/validator.py (its log is validator.log in the run's folder)")
        await hand_in(run, process)
        _tell("submissions: handed in at the validator's door over HTTP")
        view = await _follow(run, process)
    report, weights = await conclude(run)
    for line in _result_lines(run, view, report, weights):
        typer.echo(line)
    typer.echo(f"took {time.monotonic() - started_s:.0f} s\n")
    for line in _next_lines(run.folder):
        typer.echo(line)
    if not report.is_ok:
        raise typer.Exit(EXIT_INTEGRITY)


def _tell(line: str) -> None:
    typer.echo(f"· {line}")


async def _follow(run: DemoRun, process: subprocess.Popen[bytes]) -> DemoView:
    """Show the run until the race is over; the last view. Raises what `watch` raises."""
    from neurons.demo.demo import watch

    shown, shown_s = "", 0.0
    async for view in watch(run, process):
        states = Counter(submission.state for submission in view.submissions)
        waiting = ", ".join(f"{count} {state}" for state, count in sorted(states.items()))
        raced = sum(not row.record.subject.is_control for row in view.race.evaluations)
        line = (
            f"{waiting or 'waiting for the validator'} · qualifying {len(view.qualifying.evaluations)} · race {raced}"
        )
        if line != shown and (time.monotonic() - shown_s >= LINE_S or view.is_over):
            _tell(line)
            shown, shown_s = line, time.monotonic()
    return view


def _result_lines(run: DemoRun, view: DemoView, report: VerifyReport, weights: dict[str, int]) -> Iterator[str]:
    """Leaderboard, rejections, weights, what was verified, and the jail that the agents ran in."""
    from neurons.cli.race import standing_lines

    names, settlement = names_of(view.submissions), view.race.settlement
    yield "\nleaderboard"
    yield from standing_lines(settlement, names) if settlement else ["no race was settled"]
    for submission in view.submissions:
        if submission.state == "rejected" and (report_of := read_report(submission)):
            for found in report_of.rejections:
                why = found.detail or RULES[found.rule].meaning
                yield f"{submission.name} rejected ({found.rule}, line {found.line}): {why}"
    by_hotkey = {each.subject.miner_hotkey: names[each.subject.agent_version_id] for each in view.submissions}
    total = sum(weights.values()) or 1
    paid = (f"{by_hotkey.get(key, f'burned {short(key)}')} {weight / total:.1%}" for key, weight in weights.items())
    yield f"weights read back from the chain: {', '.join(paid)}"
    kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(report.kinds.items()))
    verdict = "ok" if report.is_ok else f"{counted(report.defect_count, 'defect')}, first: {report.defects[0]}"
    signed, bodies = counted(report.records, "signed record"), counted(report.bodies, "body")
    yield f"records verify: {verdict} · {signed} ({kinds}), {bodies}"
    for row in view.race.evaluations[:1]:
        level = row.record.conditions.sandbox
        held = ", ".join(level.layers) + "".join(f"; without {one}" for one in level.degraded)
        none = "NONE: only the shipped agents ran, and no validator may race so: `arena doctor`"
        yield f"jail: {level.name} ({held})" if level.may_race else f"jail: {none}"


def _next_lines(folder: Path) -> Iterator[str]:
    """Where everything lies, and what to try next, as `arena` is called from the current folder."""
    from neurons.demo.demo import LATEST, VALIDATOR

    yield f"The validator's folder is {folder}"
    yield "  (postgres: the records; chain: the local chain; validator.log: its log)\n"
    script, latest = Path(sys.executable).with_name("arena"), folder.with_name(LATEST)
    arena, state = (one.relative_to(Path.cwd()) if one.is_relative_to(Path.cwd()) else one for one in (script, latest))
    yield f"next: {arena} race list --state-dir {state}"
    yield f"      {arena} view 1 --state-dir {state}"
    yield f"      {arena} records export --out day1 --state-dir {state} --wallet.hotkey {VALIDATOR}"
    yield "Five lines for miners, validators, operators and researchers are in README.md."
