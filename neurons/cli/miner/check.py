"""`arena check`: the gate's report on an agent file, in words that say what to write instead."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from foundation.errors import ArenaError
from neurons.cli.exit_codes import EXIT_FAILED
from neurons.cli.model_urls import endpoint_settings
from neurons.cli.options import BuiltIndexOption, JsonOption
from neurons.cli.presenter import badge, echo_json, printable

if TYPE_CHECKING:
    from arena.gate.report import GateReport
    from neurons.node.settings import ResolvedSettings, Settings
    from neurons.practice.content_cache import ContentCache

app = typer.Typer()

WIDTH = 80
_EVIDENCE_CHARS = 100
_COLOURS = {"accept": "green", "review": "yellow", "reject": "red"}

AgentFile = Annotated[Path, typer.Argument(metavar="AGENT.py", help="The agent file.")]
Policy = Annotated[str | None, typer.Option(help="Policy by name or JSON file; without a judge endpoint: demo.")]
StateDir = Annotated[Path | None, typer.Option(help="State folder instead of the one set.")]


@app.command()
def check(
    agent: AgentFile,
    catalogue: BuiltIndexOption = None,
    policy: Policy = None,
    state_dir: StateDir = None,
    as_json: JsonOption = False,
) -> None:
    """Gate an agent file with the validator's own code.

    arena check my_agent/agent.py

    Nothing in the file is executed. Each finding names its line and rule, shows the line, and says what to write
    instead. A `reject` is certain; a `review` asks a person to look. What the gate accepts here it accepts at a
    validator with the same policy and catalogue. Exit code 1 on a reject.
    """
    source = read_agent(agent)

    import msgspec

    from arena.gate.rules import what_to_change

    report = report_of(source, miner_settings(policy, catalogue, state_dir).settings)
    if as_json:
        rows = [
            {
                **msgspec.to_builtins(found),
                "evidence": source_line(source, found.line),
                "instead": what_to_change(found.rule, found.detail),
            }
            for found in report.findings
        ]
        failure = report.failure.code if report.failure else ""
        echo_json({**msgspec.to_builtins(report), "findings": rows, "code": failure})
    else:
        show_report(agent, source, report)
    if report.outcome == "reject":
        raise typer.Exit(EXIT_FAILED)


def read_agent(path: Path) -> bytes:
    """The bytes of an agent file. Raises ArenaError A1009."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise ArenaError("A1009", f"{path}: {error.strerror}") from error


def miner_settings(
    policy: str | None,
    catalogue: Path | None,
    state_dir: Path | None,
    model_urls: Sequence[str] = (),
    model: str | None = None,
) -> ResolvedSettings:
    """A miner's settings: where nobody chose a policy or a judge, the demo policy holds, which needs no key.

    `model_urls` as `endpoint_settings` takes them.
    """
    from neurons.node.settings import resolve

    flags = {"policy": policy, "catalogue_dir": catalogue, "state_dir": state_dir, "models": model}
    flags |= endpoint_settings(model_urls)
    resolved = resolve(flags)
    is_chosen = any(row.name == "policy" and row.source != "default" for row in resolved.rows)
    if is_chosen or resolved.settings.judge_base_url:
        return resolved
    return resolve({**flags, "policy": "demo"})


def open_cache() -> ContentCache:
    """The user's cache; a folder that can't be written is said on stderr."""
    from neurons.practice.content_cache import ContentCache, default_cache_dir

    return ContentCache(default_cache_dir(), lambda line: typer.echo(line, err=True))


def report_of(source: bytes, settings: Settings) -> GateReport:
    """The gate's report on a source, from the validator's own rules and knowledge (without other miners' agents)."""
    from arena.gate.isolation import inspect_isolated
    from neurons.node.public_inputs import gate_knowledge, policy_of, prepare_catalogue, prepare_suite

    policy = policy_of(settings)
    prepare_catalogue(settings)
    knowledge = gate_knowledge(settings, policy, prepare_suite(settings, policy))
    return inspect_isolated(source, policy.gate, knowledge)


def show_report(agent: Path, source: bytes, report: GateReport) -> None:
    """Print a report: each finding with its line, what to write instead, and the next command."""
    typer.echo(f"{badge(report.outcome, _COLOURS[report.outcome])}  {agent}")
    for found in report.findings:
        for line in finding_lines(agent, source, found.outcome, found.rule, found.line, found.detail):
            typer.echo(line)
    if report.failure is not None:
        typer.echo(f"{report.failure.code}: arena explain {report.failure.code}")
    elif report.outcome == "accept":
        typer.echo(f"  next: arena run {agent}")
    typer.echo(f"sha256 {report.source_sha256}")
    typer.echo(f"rules {report.rules_version}, inputs {report.inputs_sha256[:12]}")


def finding_lines(agent: Path, source: bytes, outcome: str, rule: str, line: int, detail: str) -> Iterator[str]:
    """One finding: where, what and why, the line as it stands, and what to write instead."""
    from arena.gate.rules import RULES, what_to_change

    where = f"{agent}:{line}" if line else f"{agent}"
    yield f"  {outcome}  {where}  {rule}"
    if evidence := source_line(source, line):
        yield f"      {line} | {evidence}"
    said = [printable(detail), RULES[rule].meaning, f"fix: {what_to_change(rule, detail)}"]
    for text in dict.fromkeys(filter(None, said)):
        yield from textwrap.wrap(text, WIDTH, initial_indent="      ", subsequent_indent="        ")


def source_line(source: bytes, line: int) -> str:
    """A line of a source as text that can be printed, cut; "" for 0 or a line that is not there."""
    lines = re.split("\r\n|\r|\n", source.decode("utf-8", "replace"))  # as Python counts them
    return printable(lines[line - 1].strip())[:_EVIDENCE_CHARS] if 0 < line <= len(lines) else ""
