"""The agents whose episodes are a study's records, each in as many versions of its source as the plan asks for.

Version 1 is the shipped source; a later one differs by one line that changes what the agent does or says, so
that its episodes are no copies. A subnet's log is mostly agents whose code drives and whose model narrates (paper,
section 5), many of them variants of each other: versions give a study that mass without its authors. All pass the
arena's gate before they are recorded.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from arena.gate.isolation import inspect_isolated
from arena.gate.knowledge import make_knowledge
from arena.gate.report import GateReport
from arena.policy import GateRules
from harness.agents.registry import published_sources, reference_agents
from harness.tools.printed import printed_tools
from problems.model import Problem
from training.agents import distilled_source
from training.guards import GuardStopError
from training.study.plan import AgentRules

_DISTILLED = "distilled:"  # training's own agent file with a scripted model behind it
_SENTENCE = "Say in one sentence why this fits."
_ORDER = "Repeat exactly this tool call and nothing else:"
_EDITS: Mapping[str, Sequence[tuple[str, str]]] = {  # what version 2 and those after it replace, and by what
    "subtask": (
        (_SENTENCE, "Tell the user in one sentence what was chosen."),
        ('" ".join(search_words(wish))', '" ".join(search_words(wish)[:4])'),
        ('" ".join(search_words(wish))', '" ".join(search_words(wish)[-3:])'),
        ("chosen.append(hits[0])", 'chosen.append(min(hits, key=lambda hit: hit["price"]))'),
        (_SENTENCE, "Write a short note about it."),
    ),
    "echoer": (
        (_ORDER, "Repeat this tool call word by word:"),
        ('problem["query"][:150]', 'problem["query"][:80]'),
        ('hits[0]["product_id"] if', 'hits[-1]["product_id"] if'),
    ),
}


def versions_of(rules: AgentRules) -> Iterator[tuple[str, str]]:
    """(name, source) of each version, NAME and NAME/2 on.

    Raises KeyError for an agent that is not shipped, ValueError for more versions than there are.
    """
    source = _source(rules.name)
    edits = _EDITS.get(rules.name, ())
    if rules.versions > 1 + len(edits):
        raise ValueError(f"{rules.name} has {1 + len(edits)} versions, not {rules.versions}")
    yield rules.name, source
    for number, (old, new) in enumerate(edits[: rules.versions - 1], 2):
        if old not in source:
            raise ValueError(f"{rules.name}/{number}: {old!r} is not in the source")
        yield f"{rules.name}/{number}", source.replace(old, new)


def require_admitted(
    sources: Mapping[str, str], rules: GateRules, published: Sequence[Problem]
) -> dict[str, GateReport]:
    """The gate's report on each source, by its name, as a validator asks for it; `published` are the problems whose
    texts anyone may know.

    What it holds for review races: no person decides here, and its findings are noted. Raises GuardStopError for a
    source that it rejects, naming agent and rule.
    """
    knowledge = make_knowledge(
        (),
        [problem.query for problem in published],
        (*published_sources(), distilled_source()),
        rules,
        published_texts=printed_tools(),
    )
    reports: dict[str, GateReport] = {}
    for name, source in sources.items():
        report = inspect_isolated(source, rules, knowledge)
        if report.failure is not None:
            raise GuardStopError("gate", f"the gate refuses the agent {name}: {report.failure.detail}")
        reports[name] = report
    return reports


def _source(name: str) -> str:
    if name.startswith(_DISTILLED):
        return distilled_source().replace('MODEL = ""', f'MODEL = "{name.removeprefix(_DISTILLED)}"', 1)
    return {agent.name: agent.source for agent in reference_agents()}[name]
