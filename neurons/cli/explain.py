"""`arena explain`: what a code, a gate rule, a finding, a judge's gate, a setting or a metric means, and what to do."""

from __future__ import annotations

import difflib
import textwrap
from collections.abc import Callable
from typing import Annotated

import msgspec
import typer

from foundation.codes import CODES
from neurons.cli.options import JsonOption
from neurons.cli.presenter import show

app = typer.Typer()

_WIDTH = 80


class Topic(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that can be explained: its kind, its name, a line about it and more facts by name."""

    kind: str
    name: str
    about: str
    facts: dict[str, str]


@app.command()
def explain(
    name: Annotated[
        str | None,
        typer.Argument(metavar="NAME", help="A code, gate rule, finding, setting or metric. Without one: all codes."),
    ] = None,
    is_all: Annotated[bool, typer.Option("--all", help="List rules, findings, settings and metrics, too.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Explain a code, rule, finding, setting or metric.

    arena explain A1020
    arena explain id-table
    arena explain arena_heartbeat_ms

    Knows gate rules, findings, the judge's gates, settings and metrics as well. The first letter of a code says whose
    failure it is: A your agent's, V this validator's, U an upstream service's, P the problem's or catalogue's. Only an
    agent's own failures count against its score.
    """
    if name is None and not is_all:
        rows = [{**msgspec.to_builtins(row), "owner": row.owner.value} for row in CODES.values()]
        lines = [f"{row.code}  {row.title}" for row in CODES.values()]
        show(rows, [*lines, "", "more: arena explain --all"], as_json=as_json)
        return
    if name is not None and (row := CODES.get(name.upper())):
        facts = {
            "whose fault": row.owner.value,
            "what it costs": row.cost,
            "tried again by itself": "yes" if row.is_retryable else "no",
            "fix": row.remedy,
        }
        show(
            [{**msgspec.to_builtins(row), "owner": row.owner.value}],
            _lines(row.code, row.title, facts),
            as_json=as_json,
        )
        return
    topics = [topic for read in READERS for topic in read()]
    if name is None:
        listed = [f"{topic.kind:<13} {topic.name:<30} {topic.about}" for topic in topics]
        show(topics, [line if len(line) <= _WIDTH else f"{line[: _WIDTH - 1]}…" for line in listed], as_json=as_json)
        return
    wanted = name.casefold()
    found = [topic for topic in topics if topic.name.casefold() == wanted]
    if not found:
        nearest = difflib.get_close_matches(
            wanted, [*(t.name.casefold() for t in topics), *map(str.casefold, CODES)], n=3, cutoff=0
        )
        exact = [t.name for t in topics] + list(CODES)
        shown = [one for near in nearest for one in exact if one.casefold() == near]
        meant = ", ".join(dict.fromkeys(shown))
        raise typer.BadParameter(f"nothing is called {name}; did you mean {meant}? All: arena explain --all")
    lines = [line for topic in found for line in _lines(topic.name, f"{topic.kind}: {topic.about}", topic.facts)]
    show(found, lines, as_json=as_json)


def gate_rules() -> list[Topic]:
    """The published rules of the static gate."""
    from arena.gate.rules import INSTEAD, RULES

    return [
        Topic(
            kind="gate rule",
            name=rule.name,
            about=rule.meaning,
            facts={"outcome": f"{rule.outcome} ({rule.severity}), {rule.code}", "write instead": INSTEAD[rule.name]},
        )
        for rule in RULES.values()
    ]


def findings() -> list[Topic]:
    """What scoring says of an answer."""
    from problems.scoring.score import FINDINGS

    return [Topic(kind="finding", name=name, about=about, facts={}) for name, about in FINDINGS.items()]


def judge_gates() -> list[Topic]:
    """The judge's questions, in order."""
    from arena.view.reading import GATE_QUESTIONS
    from judge.rubric import GATES, coefficient_e4, quality_of

    return [
        Topic(
            kind="judge's gate",
            name=gate,
            about=GATE_QUESTIONS[gate],
            facts={
                "missed, it leaves": f"quality {quality_of(place) / 10_000:.1f}, coefficient "
                f"{coefficient_e4(quality_of(place)) / 10_000:.4f}"
            },
        )
        for place, gate in enumerate(GATES)
    ]


def settings() -> list[Topic]:
    """Every setting of this software."""
    from neurons.node.settings import ENVIRONMENT_PREFIX, Settings

    return [
        Topic(
            kind="setting",
            name=name,
            about=field.description or "",
            facts={"set it": f"{ENVIRONMENT_PREFIX}{name.upper()}, `{name}` in arena.toml, or a flag of the command"},
        )
        for name, field in Settings.model_fields.items()
    ]


def metrics() -> list[Topic]:
    """What a node serves to Prometheus."""
    from neurons.health.metrics import Metrics

    return [
        Topic(
            kind="metric",
            name=family.name + ("_total" if family.type == "counter" else ""),
            about=family.documentation,
            facts={"kind": family.type, "served at": "metrics_port of metrics_host, loopback unless set"},
        )
        for family in Metrics().registry.collect()
    ]


READERS: tuple[Callable[[], list[Topic]], ...] = (gate_rules, findings, judge_gates, settings, metrics)


def _lines(name: str, about: str, facts: dict[str, str]) -> list[str]:
    lines = textwrap.wrap(f"{name}  {about}", _WIDTH, subsequent_indent="  ")
    for fact, value in facts.items():
        lines += textwrap.wrap(f"{fact}: {value}", _WIDTH, initial_indent="  ", subsequent_indent="    ")
    return lines
