"""How the demo looks: the live table, and the end. Pure presentation of `DemoView` and `DemoResult`."""

from __future__ import annotations

import sys
from collections import defaultdict
from pathlib import Path

import msgspec
from rich.table import Table

from arena.gate.report import GateReport
from arena.records.model import EvaluationRecord, SettlementRecord
from arena.store.port import StoredSubmission
from neurons.demo.demo import VALIDATOR, DemoResult, DemoRun, DemoView
from neurons.race.log import RaceLog
from problems.model import BUCKETS
from problems.scoring.outcome import OutcomeScore

_STATE_STYLE = {
    "rejected": "red",
    "unqualified": "yellow",
    "qualified": "green",
    "accepted": "cyan",
    "review": "magenta",
}


def progress_table(run: DemoRun, view: DemoView | None) -> Table:
    """One row per submitted agent: where it stands right now."""
    table = Table(title=_title(view), title_justify="left", expand=False)
    for column, justify in (("agent", "left"), ("what it does", "left"), ("state", "left"), ("qualifying", "right")):
        table.add_column(column, justify=justify)  # type: ignore[arg-type]
    table.add_column("race", justify="right")
    table.add_column("solved", justify="right")
    by_name = {submission.name: submission for submission in view.submissions} if view else {}
    for agent in run.agents:
        submission = by_name.get(agent.name)
        table.add_row(agent.name, agent.about, *_progress(submission, view))
    return table


def progress_line(view: DemoView) -> str:
    """The same in one line, for a stream that is no terminal."""
    states: dict[str, int] = defaultdict(int)
    for submission in view.submissions:
        states[submission.state] += 1
    shown = ", ".join(f"{count} {state}" for state, count in sorted(states.items()))
    return (
        f"{shown or 'waiting for the validator'} · qualifying {len(view.qualifying.evaluations)} · "
        f"race {sum(not row.record.subject.is_control for row in view.race.evaluations)} · {view.records} records"
    )


def _title(view: DemoView | None) -> str:
    if view is None:
        return "starting Postgres, the jails and the race clock ..."
    if view.race.settlement is not None:
        return f"settled · {view.records} signed records"
    phase = "racing" if view.race.evaluations else "gate and qualifying"
    return f"{phase} · {view.records} signed records"


def _progress(submission: StoredSubmission | None, view: DemoView | None) -> tuple[str, str, str, str]:
    if submission is None or view is None:
        return "[dim]submitted[/dim]", "", "", ""
    style = _STATE_STYLE.get(submission.state, "white")
    agent = submission.subject.agent_version_id
    qualified, raced = _records_of(view.qualifying, agent), _records_of(view.race, agent)
    return (
        f"[{style}]{submission.state}[/{style}]",
        f"{len(qualified)}/{view.qualifying_problems}" if qualified else "",
        f"{len(raced)}/{view.race_problems}" if raced else "",
        str(sum(_is_success(record) for record in raced)) if raced else "",
    )


def _records_of(log: RaceLog, agent_version_id: str) -> list[EvaluationRecord]:
    return [row.record for row in log.evaluations if row.record.subject.agent_version_id == agent_version_id]


def _is_success(record: EvaluationRecord) -> bool:
    return isinstance(record.outcome, OutcomeScore) and record.outcome.is_success


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
        table.add_row(
            str(row.rank),
            names.get(row.agent_version_id, row.agent_version_id[:12]),
            f"{row.race_score_e4 / 10_000:.3f}",
            f"{row.low_e4 / 10_000:.2f}-{row.high_e4 / 10_000:.2f}",
            f"{row.agentic_share_e4 / 100:.0f} %",
            *_by_bucket(_records_of(view.race, row.agent_version_id)),
            f"{row.mean_quality_e4 / 10_000:.2f}",
        )
    return table


def _by_bucket(records: list[EvaluationRecord]) -> list[str]:
    cells = []
    for bucket in BUCKETS:
        outcomes = [r.outcome for r in records if isinstance(r.outcome, OutcomeScore) and r.outcome.bucket == bucket]
        cells.append(f"{sum(o.is_success for o in outcomes)}/{len(outcomes)}")
    return cells


def rejections(view: DemoView) -> list[str]:
    """Every rejected submission with the rule and line that rejected it."""
    lines = []
    for submission in view.submissions:
        if submission.state == "rejected" and submission.report:
            report = msgspec.json.decode(submission.report, type=GateReport)
            lines += [f"{submission.name}: {found}" for found in report.rejections]
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


def _command() -> str:
    """How `arena` is called from here: beside this Python, relative to the current folder where that is shorter."""
    script = Path(sys.executable).with_name("arena")
    return str(script.relative_to(Path.cwd())) if script.is_relative_to(Path.cwd()) else str(script)


def summary(run: DemoRun, result: DemoResult) -> list[str]:
    """What was verified, what it took, where everything lies and what to try next."""
    report = result.report
    kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(report.kinds.items()))
    verdict = "ok" if report.is_ok else f"{report.defect_count} defects, first: {report.defects[0]}"
    settlement: SettlementRecord | None = result.view.race.settlement
    arena = _command()
    return [
        f"records verify: {verdict} · {report.records} signed records ({kinds}), {report.bodies} bodies",
        f"race: {settlement.race_id} {settlement.state}, seed {settlement.seed[:16]}" if settlement else "race: none",
        jail_line(result.view),
        f"took {result.elapsed_s:.0f} s",
        "",
        f"everything lies in   {run.folder}",
        f"  store              {run.folder / 'postgres'} (append-only, one role per validator)",
        f"  chain              {run.folder / 'chain'}",
        f"  validator's log    {run.folder / 'validator.log'}",
        f"  catalogue          {run.settings.catalogue_dir}",
        "",
        f"next: {arena} records show 1 --state-dir {run.folder}",
        f"      {arena} records export --out day1 --state-dir {run.folder} --wallet.hotkey {VALIDATOR}",
        f"      {arena} corpus build day1 --out corpus",
        f"      {arena} run harness/agents/baseline.py",
    ]
