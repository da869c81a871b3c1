"""What `arena init` writes: a shipped example with a guide in front, its test, and a problem of a public suite."""

from __future__ import annotations

from importlib import resources

from harness.agents.registry import published_sources
from problems.suites.formats import write_problems
from problems.suites.shipped import load_shipped

_SUITE = "s1"
_BEGINS = '"""A second agent: '  # of the example that the template is


def agent_files() -> dict[str, str]:
    """File name to content. The agent's code is one that every gate knows as published, so nobody owns it."""
    (example,) = (source for source in published_sources() if source.startswith(_BEGINS))
    _, _, code = example.partition('"""\n\n')
    templates = resources.files("neurons.practice").joinpath("template")
    return {
        "agent.py": templates.joinpath("agent_head.txt").read_text("utf-8") + code,
        "test_agent.py": templates.joinpath("test_agent.txt").read_text("utf-8"),
        "problem.jsonl": next(iter(write_problems(load_shipped(_SUITE).problems))) + "\n",
    }
