"""`arena explain`: what a code, a gate rule, a finding, a judge's gate, a setting, a metric or a policy is."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from typing import Annotated

import msgspec
import typer

from arena.gate.rules import INSTEAD, RULES
from arena.policies import POLICIES
from foundation.codes import CODES
from foundation.errors import nearest
from judge.rubric import GATES, coefficient_e4, quality_of
from neurons.cli.options import command
from neurons.cli.presenter import echo_json, is_json, show
from problems.score import FINDINGS

app = typer.Typer()

_WIDTH = 80
_CODE, _POLICY = "code", "policy"


class Topic(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that can be explained: its kind, its name, a line about it and more facts by name."""

    kind: str
    name: str
    about: str
    facts: dict[str, str] = {}


@command(app)
def explain(
    name: Annotated[
        str | None,
        typer.Argument(metavar="NAME", help="What to explain. Without: all codes."),
    ] = None,
    is_all: Annotated[bool, typer.Option("--all", help="List everything that has a name.")] = False,
) -> None:
    """Explain a code, rule, finding, setting, metric or policy.

    arena explain A1020
    arena explain id-table
    arena explain paper

    Knows gate rules, findings, the judge's gates, settings, metrics and shipped policies as well. The first letter of a
    code says whose failure it is: A your agent's, V this validator's, U an upstream service's, P the problem's or
    catalogue's. Only an agent's own failures count against its score. The hash of a policy names it in every record:
    two validators race under the same rules when it is equal.
    """
    topics = list(topics_of())
    if name is None:
        shown = topics if is_all else [topic for topic in topics if topic.kind == _CODE]
        listed = [f"{topic.name:<6} {topic.about}" for topic in shown] + ["", "more: arena explain --all"]
        if is_all:
            listed = [f"{topic.kind:<13} {topic.name:<30} {topic.about}" for topic in topics]
        show(shown, [textwrap.shorten(line, _WIDTH, placeholder="…") for line in listed])
        return
    wanted = name.casefold()
    found = [topic for topic in topics if topic.name.casefold() == wanted]
    if not found:
        exact = {topic.name.casefold(): topic.name for topic in topics}
        meant = "".join(f"; did you mean {exact[each]}?" for each in nearest(wanted, exact)) or "."
        raise typer.BadParameter(f"nothing is called {name}{meant} All: arena explain --all")
    if found[0].kind == _POLICY:
        policy = POLICIES[found[0].name]
        echo_json({"policy_sha256": policy.policy_sha256, "policy": policy}, is_indented=not is_json())
        return
    lines = []
    for topic in found:
        about = topic.about if topic.kind == _CODE else f"{topic.kind}: {topic.about}"
        lines += textwrap.wrap(f"{topic.name}  {about}", _WIDTH, subsequent_indent="  ")
        for fact, value in topic.facts.items():
            lines += textwrap.wrap(f"{fact}: {value}", _WIDTH, initial_indent="  ", subsequent_indent="    ")
    show(found, lines)


def topics_of() -> Iterator[Topic]:
    """Everything that has a name."""
    from arena.view.reading import GATE_QUESTIONS
    from neurons.health.metrics import Metrics
    from neurons.settings.settings import ENVIRONMENT_PREFIX, abouts

    for row in CODES.values():
        retried = "yes" if row.is_retryable else "no"
        facts = {"whose fault": row.owner.value, "what it costs": row.cost, "tried again by itself": retried}
        yield Topic(kind=_CODE, name=row.code, about=row.title, facts=facts | {"fix": row.remedy})
    for rule in RULES.values():
        facts = {"outcome": f"{rule.outcome} ({rule.severity}), {rule.code}", "write instead": INSTEAD[rule.name]}
        yield Topic(kind="gate rule", name=rule.name, about=rule.meaning, facts=facts)
    for name, about in FINDINGS.items():
        yield Topic(kind="finding", name=name, about=about)
    for place, gate in enumerate(GATES):
        quality = quality_of(place)
        left = f"quality {quality / 10_000:.1f}, coefficient {coefficient_e4(quality) / 10_000:.4f}"
        yield Topic(kind="judge's gate", name=gate, about=GATE_QUESTIONS[gate], facts={"missed, it leaves": left})
    for name, about in abouts().items():
        how = f"{ENVIRONMENT_PREFIX}{name.upper()}, `{name}` in arena.toml, or a flag of the command"
        yield Topic(kind="setting", name=name, about=about, facts={"set it": how})
    for family in Metrics().registry.collect():
        name = family.name + ("_total" if family.type == "counter" else "")
        where = {"kind": family.type, "served at": "metrics_port of metrics_host, loopback unless set"}
        yield Topic(kind="metric", name=name, about=family.documentation, facts=where)
    for policy in POLICIES.values():
        yield Topic(kind=_POLICY, name=policy.name, about=policy.policy_sha256)
