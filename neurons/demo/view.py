"""How the demo looks: a line now and then, then tables; one JSON object when asked for."""

from __future__ import annotations

import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path

import msgspec
from rich.console import Console
from rich.table import Table

from arena.gate.report import GateReport
from arena.gate.rules import RULES
from arena.records.model import EvaluationRecord, SettlementRecord
from foundation.errors import ArenaError
from neurons.demo.demo import LATEST, VALIDATOR, DemoResult, DemoRun, DemoView, watch
from neurons.race.log import RaceLog
from problems.model import BUCKETS
from problems.outcome import OutcomeScore


def progress_line(view: DemoView) -> str:
    """Where the agents stand right now, in one line."""
    states: dict[str, int] = defaultdict(int)
    for submission in view.submissions:
        states[submission.state] += 1
    shown = ", ".join(f"{count} {state}" for state, count in sorted(states.items()))
    return (
        f"{shown or 'waiting for the validator'} · qualifying {len(view.qualifying.evaluations)} · "
        f"race {sum(not row.record.subject.is_control for row in view.race.evaluations)} · {view.records} records"
    )


def _records_of(log: RaceLog, agent_version_id: str) -> list[EvaluationRecord]:
    return [row.record for row in log.evaluations if row.record.subject.agent_version_id == agent_version_id]


def leaderboard(view: DemoView) -> Table:
    """The settled standings with 95 % intervals, agentic share and success per bucket."""
    table = Table(title="leaderboard (score with its 95 % interval; solved per bucket)", title_justify="left")
    table.add_column("#", justify="right", no_wrap=True)
    table.add_column("agent", no_wrap=True)
    for column in ("score", "95 %", "agentic", *BUCKETS, "judge"):
        table.add_column(column, justify="right", no_wrap=True)
    settlement = view.race.settlement
    names = {submission.subject.agent_version_id: submission.name for submission in view.submissions}
    for row in settlement.standings if settlement else ():
        outcomes = [record.outcome for record in _records_of(view.race, row.agent_version_id)]
        scored = [outcome for outcome in outcomes if isinstance(outcome, OutcomeScore)]
        of_bucket = [[outcome.is_success for outcome in scored if outcome.bucket == bucket] for bucket in BUCKETS]
        table.add_row(
            str(row.rank),
            names.get(row.agent_version_id, row.agent_version_id[:12]),
            f"{row.race_score_e4 / 10_000:.3f}",
            f"{row.low_e4 / 10_000:.2f}-{row.high_e4 / 10_000:.2f}",
            f"{row.agentic_share_e4 / 100:.0f} %",
            *(f"{sum(solved)}/{len(solved)}" for solved in of_bucket),
            f"{row.mean_quality_e4 / 10_000:.2f}",
        )
    return table


def rejections(view: DemoView) -> list[str]:
    """Every rejected submission with the rule and line that rejected it."""
    lines = []
    for submission in view.submissions:
        if submission.state == "rejected" and submission.report:
            report = msgspec.json.decode(submission.report, type=GateReport)
            for found in report.rejections:
                why = found.detail or RULES[found.rule].meaning
                lines.append(f"{submission.name} rejected ({found.rule}, line {found.line}): {why}")
    return lines


def weights_table(result: DemoResult) -> Table:
    """The weights as the chain holds them."""
    table = Table(title="weights read back from the chain", title_justify="left")
    for column in ("uid", "u16", "share"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("who", no_wrap=True)
    table.add_column("hotkey", no_wrap=True)
    names = {s.subject.miner_hotkey: s.name for s in result.view.submissions}
    total = sum(weight for _, weight in result.chain_weights) or 1
    for uid, weight in result.chain_weights:
        hotkey = result.hotkey_by_uid.get(uid, "?")
        who = names.get(hotkey, "burn (subnet owner)" if uid == 0 else "")
        table.add_row(str(uid), str(weight), f"{weight / total:.1%}", who, f"{hotkey[:10]}…{hotkey[-6:]}")
    return table


def jail_line(view: DemoView) -> str:
    """The jail the agents ran in, as the records name it; said loudly when it was none."""
    levels = [row.record.conditions.sandbox for row in view.race.evaluations]
    if not levels:
        return "jail: nothing ran"
    level = levels[0]
    if not level.may_race:
        return (
            f"jail: NONE ({level.name}). Only the shipped agents ran here, and no validator may race like this. "
            "`arena doctor` prints the fix."
        )
    return f"jail: {level.name} ({', '.join(level.layers)})" + (
        f", without {'; '.join(level.degraded)}" * bool(level.degraded)
    )


def summary(run: DemoRun, result: DemoResult) -> list[str]:
    """What was verified, what it took, where everything lies and what to try next."""
    report = result.report
    kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(report.kinds.items()))
    verdict = "ok" if report.is_ok else f"{report.defect_count} defects, first: {report.defects[0]}"
    settlement: SettlementRecord | None = result.view.race.settlement
    # How `arena` is called from here: beside this Python, relative to the current folder where that is shorter.
    script = Path(sys.executable).with_name("arena")
    arena = script.relative_to(Path.cwd()) if script.is_relative_to(Path.cwd()) else script
    shown = run.folder.with_name(LATEST)
    folder = shown.relative_to(Path.cwd()) if shown.is_relative_to(Path.cwd()) else shown
    return [
        f"records verify: {verdict} · {report.records} signed records ({kinds}), {report.bodies} bodies",
        f"race: {settlement.race_id} {settlement.state}, seed {settlement.seed[:16]}" if settlement else "race: none",
        jail_line(result.view),
        f"took {result.elapsed_s:.0f} s",
        "",
        f"The validator's folder is {run.folder}",
        "  (postgres: the records; chain: the local chain; validator.log: its log)",
        "",
        f"next: {arena} race list --state-dir {folder}",
        f"      {arena} view 1 --state-dir {folder}",
        f"      {arena} records export --out day1 --state-dir {folder} --wallet.hotkey {VALIDATOR}",
        "Five lines for miners, validators, operators and researchers are in README.md.",
    ]


LINE_S = 3.0  # between two progress lines


class DemoScreen:
    """Where the demo is shown. `is_quiet` keeps stdout free for the JSON result."""

    def __init__(self, *, is_quiet: bool) -> None:
        self._console = Console(stderr=is_quiet, highlight=False)

    def tell(self, sentence: str) -> None:
        """One line about what is happening."""
        self._console.print(f"[bold]·[/bold] {sentence}", soft_wrap=True)

    async def follow(self, run: DemoRun, process: subprocess.Popen[bytes], problems: tuple[int, int]) -> DemoView:
        """Show the run until the race is over, and return the last view. Raises what `watch` raises."""
        last: DemoView | None = None
        shown, shown_s = "", 0.0
        async for view in watch(run, process, problems):
            line, now_s = progress_line(view), time.monotonic()
            if line != shown and (now_s - shown_s >= LINE_S or view.is_over):
                self.tell(line)
                shown, shown_s = line, now_s
            last = view
        if last is None:
            raise ArenaError("V2061", "nothing was seen")
        return last

    def show(self, run: DemoRun, result: DemoResult, *, as_json: bool) -> None:
        """The end: leaderboard, rejections, verification, weights, places, next command."""
        if as_json:
            print_json(run, result)
            return
        self._console.print(leaderboard(result.view))
        for line in rejections(result.view):
            self._console.print(line, style="red", markup=False)
        self._console.print(weights_table(result))
        for line in summary(run, result):
            self._console.print(line, markup=False, soft_wrap=True)


def print_json(run: DemoRun, result: DemoResult) -> None:
    """The result as one JSON object on stdout."""
    answer = {
        "folder": str(run.folder),
        "settlement": result.view.race.settlement,
        "rejections": rejections(result.view),
        "verify": result.report,
        "weights": result.chain_weights,
        "elapsed_s": round(result.elapsed_s, 1),
    }
    Console(highlight=False, soft_wrap=True).print(msgspec.json.encode(answer).decode(), markup=False)
