"""`arena init`, `check` and `run`: a miner's desk. Begin an agent, gate it, run it on problems as a validator would."""

from __future__ import annotations

import re
import textwrap
import threading
import time
from collections.abc import Iterator, Sequence
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from arena.gate.rules import RULES, GateReport, what_to_change
from foundation.canonical import text_hash
from foundation.codes import NOT_RECORDED, lookup
from foundation.durable_files import coded
from foundation.errors import ArenaError, printable, render
from judge.verdict import Verdict
from neurons.cli.options import BenchFlags, command, shipped_path
from neurons.cli.presenter import EXIT_FAILED, badge, exit_code, is_json, refusal, say, share_text, show
from neurons.practice.opening import Choice
from problems.formats import write_problems
from problems.model import AXES, OutcomeScore

if TYPE_CHECKING:
    from neurons.practice.run import RunRow
    from neurons.settings.settings import Settings

app = typer.Typer()

WIDTH = 80
_EVIDENCE_CHARS = 100
_TAIL_CHARS = 2_000  # of a failed agent's own output
_COLOURS = {"accept": "green", "review": "yellow", "reject": "red"}
_WIDTHS = {"problem": 18, "bucket": 7, "success": 8, "met": 5, "coeff": 6, "agentic": 7, "ended": 17}  # with gaps 80
_LIFE_S = 10.0
_WATCH_S = 0.3  # how often the file is looked at
_SUITE = "s1"  # whose first problem `arena init` writes
_SCRIPTED_SAYS = (
    "A toy model answered: it does a few things that the prompt asks for, such as to",
    "compare (docs/agents.md). A real one: --model-url; --record to iterate for free.",
)

AgentFile = Annotated[Path, typer.Argument(metavar="AGENT.py", help="The agent file.", parser=shipped_path)]


@command(app)
def init(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="New folder for the agent.")],
) -> None:
    """Begin an agent: a file that works, its test, one problem.

    arena init my_agent

    The agent lets the model write every call; its comments say where to change it. Anybody may build on it: the gate
    takes its code away before it compares agents. Nothing that exists is overwritten.
    """
    from harness.agents.registry import first_agent
    from problems.suites import load_shipped

    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise typer.BadParameter(f"{folder} exists and is not empty: choose another folder", param_hint="FOLDER")
    folder.mkdir(parents=True, exist_ok=True)
    templates = resources.files("neurons.practice").joinpath("template")
    files = {
        "agent.py": first_agent(),  # every gate knows it as published, so nobody owns it
        "test_agent.py": templates.joinpath("test_agent.txt").read_text("utf-8"),
        "problem.jsonl": next(iter(write_problems(load_shipped(_SUITE).problems))) + "\n",
    }
    for name, content in files.items():
        with (folder / name).open("x", encoding="utf-8") as stream:
            stream.write(content)
    agent = folder / "agent.py"
    following = (
        f"arena check {agent}",
        f"arena run {agent} --problems {folder / 'problem.jsonl'}",
        f"arena run {agent} --watch",
    )
    lines = [f"{folder}: {', '.join(files)}", "", "next:", *(f"  {line}" for line in following)]
    show({"folder": str(folder), "files": list(files), "next": list(following)}, lines)


@command(app)
def check(agent: AgentFile, desk: BenchFlags) -> None:
    """Gate an agent file with the validator's own code.

    arena check my_agent/agent.py

    Nothing in the file is executed. Each finding names its line and rule, shows the line, and says what to write
    instead. A `reject` is certain; a `review` asks a person to look. What the gate accepts here it accepts at a
    validator with the same policy and catalogue. Exit code 1 on a reject.
    """
    source = read_agent(agent)
    report = report_of(source, desk.settings(is_miner=True))
    rows = [
        {
            **msgspec.to_builtins(found),
            "evidence": source_line(source, found.line),
            "instead": what_to_change(found.rule, found.detail),
        }
        for found in report.findings
    ]
    shown = {"findings": rows, "code": report.failure.code if report.failure else ""}
    is_bad = report.outcome == "reject"
    show(msgspec.to_builtins(report) | shown, report_lines(agent, source, report), EXIT_FAILED if is_bad else 0)


@command(app)
def run(
    agent: AgentFile,
    choice: Choice,
    desk: BenchFlags,
    workers: Annotated[int, typer.Option(min=1, max=64, help="Problems at a time.")] = 1,
    watch: Annotated[bool, typer.Option("--watch", help="Stay, and run again when the file changes.")] = False,
) -> None:
    """Run an agent file on problems, as a validator would.

    arena run my_agent/agent.py
    arena run my_agent/agent.py --problems s1 --workers 4
    arena run my_agent/agent.py --model-url URL --model NAME --record replies.jsonl
    arena run my_agent/agent.py --replay replies.jsonl --watch
    arena run my_agent/agent.py --failed

    The gate comes first: a file that it rejects would never run at a validator, so it does not run here either. Then
    the same jail, tools, gateway, scoring and judge: the body hash in --json is the one that a
    validator records for the same agent, problem, policy and model replies.

    Without a model endpoint a toy model answers, which does a few things that your prompt asks for (docs/agents.md).
    A recording answers exactly the requests that it holds; a changed prompt is
    another request, and is said to be missing. --record and --replay with one file ask the endpoint for the rest.
    A model folder of your own can be the endpoint: `transformers serve FOLDER`. The last run is kept in the
    user's cache folder; `arena view` shows it. Exit code 1 when an episode ended in a fault of the agent's own.
    """
    from harness.inference.scripted.model import ScriptedUpstream
    from neurons.practice import run as practice

    def once(raw: bytes) -> int:
        """One run of one version of the file; the exit code."""
        settings = desk.settings(choice.model, choice.model_url, is_miner=True)
        require_accepted(agent, raw, report_of(raw, settings))
        source, done, at_once = source_of(raw), list[practice.RunRow](), practice.at_once_here(workers, settings)
        asked = practice.open_problems(settings, choice, at_once=at_once)
        is_scripted = any(isinstance(one, ScriptedUpstream) for _, ports in asked[:1] for one in ports.upstreams)
        if not asked:
            raise typer.BadParameter("the last run lost none of these problems", param_hint="--failed")
        rules, began_s = asked[0][1].policy, time.monotonic()
        say(_line(tuple(_WIDTHS)))
        limit_s = rules.limits.agent_time_ms // 1_000
        for row in _with_life(practice.run_here(source, asked, at_once), [one.problem_id for one, _ in asked], limit_s):
            done.append(row)
            say(_line(_cells(row)))
        try:
            about = {"agent": str(agent), "agent_sha256": text_hash(source), "policy": rules.name}
            practice.LocalRun(**about, rows=tuple(done)).keep()
        except OSError as error:
            typer.echo(f"the run is not kept: {error.filename}: {error.strerror}", err=True)
        cost = _cost_line(done, time.monotonic() - began_s, settings, is_scripted=is_scripted)
        rows = [practice.json_row(row) for row in done] if is_json() else None
        show(rows, _summary_lines(done, cost, is_scripted=is_scripted))
        codes = [EXIT_FAILED for row in done if row.evaluation and row.evaluation.body.failure]
        return max([*codes, *(exit_code(ArenaError(row.failure.code)) for row in done if row.failure)], default=0)

    if not watch:
        raise typer.Exit(once(read_agent(agent)))
    try:
        for raw in _versions(agent):
            try:
                once(raw)
            except (ArenaError, typer.Exit) as error:  # said, and the next version of the file is waited for
                typer.echo(str(error) if isinstance(error, ArenaError) else "", err=True)
            typer.echo(f"\nwatching {agent}; Ctrl-C ends it", err=True)
    except KeyboardInterrupt:
        typer.echo("stopped", err=True)


def _versions(agent: Path) -> Iterator[bytes]:
    """The file's bytes, now and whenever they are others; a moment without the file, as editors save it, is waited
    for."""
    known = read_agent(agent)
    yield known
    while True:
        time.sleep(_WATCH_S)
        if agent.exists() and (now := read_agent(agent)) != known:
            known = now
            yield known


def _line(cells: Sequence[str]) -> str:
    return "  ".join(f"{cell:<{width}}" for cell, width in zip(cells, _WIDTHS.values(), strict=True)).rstrip()


def _cells(row: RunRow) -> tuple[str, ...]:
    """One row: what was asked, rules met of rules asked, coefficient, and how it ended."""
    asked = row.problem.problem_id, row.problem.bucket
    if row.evaluation is None:
        return (*asked, "not run", "-", "-", "-", row.failure.code if row.failure else "")
    body, outcome, verdict = row.evaluation.body, row.evaluation.outcome, row.evaluation.verdict
    success, met = "unscored", "-"
    if isinstance(outcome, OutcomeScore):
        success = "yes" if outcome.is_success else "no"
        axes = [getattr(slot, axis) for slot in outcome.slots for axis in AXES]
        met = f"{sum(axis.hits for axis in axes)}/{sum(axis.total for axis in axes)}"
    coefficient = share_text(verdict.coefficient_e4) if isinstance(verdict, Verdict) else "-"
    ended = f"{body.failure.code} {body.stop}" if body.failure else body.stop
    return (*asked, success, met, coefficient, "yes" if body.is_agentic else "no", ended)


def _with_life(rows: Iterator[RunRow], names: Sequence[str], limit_s: int) -> Iterator[RunRow]:
    """The rows; while one takes long, a line on stderr every ten seconds that says which, and when it would end."""
    done, since_s, is_over = 0, time.monotonic(), threading.Event()

    def tell() -> None:
        while not is_over.wait(_LIFE_S):
            taken_s = time.monotonic() - since_s
            if taken_s >= _LIFE_S and not is_json():
                text = f"· {names[done]} runs for {taken_s:.0f} s; its own time ends at {limit_s} s"
                typer.echo(f"{text} ({done} of {len(names)} done)", err=True)

    threading.Thread(target=tell, daemon=True).start()
    try:
        for row in rows:
            done, since_s = min(done + 1, len(names) - 1), time.monotonic()
            yield row
    finally:
        is_over.set()


def _cost_line(done: Sequence[RunRow], took_s: float, settings: Settings, *, is_scripted: bool) -> str:
    """Tokens, cost and time of a run; the cost by the prices that the settings' endpoints name."""
    from neurons.settings.endpoints import named_endpoints

    totals = [row.evaluation.body.totals for row in done if row.evaluation]
    prompt, completion = sum(one.prompt_tokens for one in totals), sum(one.completion_tokens for one in totals)
    prices = {one.price for one in named_endpoints(settings)}
    price = prices.pop() if len(prices) == 1 else None
    cost = "no cost" if is_scripted else "cost not known: no endpoint names its price"
    if price is not None:
        micro_usd = (prompt * price.prompt_micro_usd + completion * price.completion_micro_usd) // 1_000_000
        cost = f"{micro_usd / 1_000_000:.4f} USD"
    return f"{prompt:,} + {completion:,} tokens, {cost}, {took_s:.1f} s"


def _summary_lines(done: Sequence[RunRow], cost: str, *, is_scripted: bool) -> Iterator[str]:
    """Each fault once, with the problems it ended: its code and the agent's own output, its traceback last; then the
    sum, and why points were lost."""
    from arena.view.page import loss_lines

    ended: dict[tuple[str, str], list[RunRow]] = {}
    for row in done:
        fault = row.failure or (row.evaluation and row.evaluation.body.failure)
        if fault and fault.code != NOT_RECORDED:
            ended.setdefault((fault.code, fault.detail), []).append(row)
    for (code, detail), rows in ended.items():
        more = f" and {len(rows) - 1} more" if len(rows) > 1 else ""
        yield f"\n{rows[0].problem.problem_id}{more}: {render(lookup(code), detail)}"
        if rows[0].evaluation and (tail := rows[0].evaluation.cost.output_tail[-_TAIL_CHARS:].strip()):
            yield textwrap.indent(printable(tail), "  ")
    evaluations = [row.evaluation for row in done if row.evaluation is not None]
    scores = [evaluation.score_e4 for evaluation in evaluations if evaluation.score_e4 is not None]
    solved, mean = sum(score > 0 for score in scores), sum(scores) / max(1, len(scores)) / 10_000
    yield f"\nsolved {solved} of {len(done)}; mean score {mean:.4f} over {len(scores)} scored (outcome x coefficient)"
    yield cost
    lost = [
        (row.evaluation, row.constraints)
        for row in done
        if row.evaluation and row.evaluation.score_e4 != 10_000
        if row.evaluation.body.recommended or row.evaluation.body.failure is None  # else its fault says it all
    ]
    if lost:
        yield f"\nWhy points were lost ({len(lost)} of {len(done)}); whole traces: arena view"
    for each in lost:
        yield ""
        yield from (line.text for line in loss_lines(*each, WIDTH))
    missing = sum(row.failure is not None and row.failure.code == NOT_RECORDED for row in done)
    if missing:
        yield f"\nnot run: {missing} of {len(done)} problems: the agent asks something else than when it was recorded."
        yield "Record again, or give --record and --replay the same file to ask for what is missing."
    if is_scripted:
        yield from ("", *_SCRIPTED_SAYS)


def read_agent(path: Path) -> bytes:
    """The bytes of an agent file. Raises ArenaError A1009."""
    with coded(path, "A1009"):
        return path.read_bytes()


def source_of(raw: bytes) -> str:
    """The text of an agent file, decoded as the gate does: what runs is what was checked. Raises ArenaError A1001."""
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ArenaError("A1001", f"byte {raw[error.start]:#04x} at offset {error.start}") from error


def report_of(source: bytes, settings: Settings) -> GateReport:
    """The gate's report on a source, from the validator's own rules and knowledge (without other miners' agents)."""
    from arena.gate.inspection import inspect_isolated
    from neurons.settings.inputs import gate_knowledge, policy_of, prepare_catalogue, prepare_suite

    policy = policy_of(settings)
    prepare_catalogue(settings)
    knowledge = gate_knowledge(settings, policy, prepare_suite(settings, policy))
    return inspect_isolated(source, policy.gate, knowledge)


def require_accepted(agent: Path, source: bytes, report: GateReport) -> None:
    """Show the report of a source that the gate rejects. Raises typer.Exit then."""
    if report.outcome == "reject":
        shown = refusal(report.failure) | {"findings": report.findings}
        show(shown, report_lines(agent, source, report), EXIT_FAILED)


def report_lines(agent: Path, source: bytes, report: GateReport) -> Iterator[str]:
    """A report: each finding with its line, why, and what to write instead; then the next command."""
    yield f"{badge(report.outcome, _COLOURS[report.outcome])}  {agent}"
    for found in report.findings:
        yield f"  {found.outcome}  {agent}{f':{found.line}' if found.line else ''}  {found.rule}"
        if evidence := source_line(source, found.line):
            yield f"      {found.line} | {evidence}"
        fix = f"fix: {what_to_change(found.rule, found.detail)}"
        for text in dict.fromkeys(filter(None, (printable(found.detail), RULES[found.rule].meaning, fix))):
            yield from textwrap.wrap(text, WIDTH, initial_indent="      ", subsequent_indent="        ")
    if report.failure is not None:
        yield f"{report.failure.code}: arena explain {report.failure.code}"
    elif report.outcome == "accept":
        yield f"  next: arena run {agent}"
    yield f"sha256 {report.source_sha256}\nrules {report.rules_version}, inputs {report.inputs_sha256[:12]}"


def source_line(source: bytes, line: int) -> str:
    """A line of a source as text that can be printed, cut; "" for 0 or a line that is not there."""
    lines = re.split("\r\n|\r|\n", source.decode("utf-8", "replace"))  # as Python counts them
    return printable(lines[line - 1].strip())[:_EVIDENCE_CHARS] if 0 < line <= len(lines) else ""
