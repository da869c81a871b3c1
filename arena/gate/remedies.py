"""What to change: one sentence for each finding, for the miner whose file it is."""

from __future__ import annotations

from arena.gate.report import Finding

# What a line should say instead, by the first word of a finding's detail; else by its rule.
_MODULES = {
    "subprocess": "no process can be started: leave the import out",
    "socket": "there is no network: reach tools and models through ProxyClient or arena_sdk",
    "httpx": "there is no network: reach tools and models through ProxyClient, requests or arena_sdk",
    "aiohttp": "there is no network: reach tools and models through ProxyClient, requests or arena_sdk",
    "openai": "there is no network: reach models through ProxyClient or arena_sdk.llm",
    "pathlib": "there are no files: keep the text in the agent's file",
    "tempfile": "there are no files: keep the data in memory",
    "numpy": "only the standard library is there: write it with math and statistics",
    "pandas": "only the standard library is there: write it with lists and dicts",
}
_RULES = {
    "encoding": "save the file as UTF-8 without an encoding line or a byte order mark",
    "size": "shorten the file",
    "parse": "correct the syntax on that line",
    "depth": "split the nested expression or block",
    "entry": "define `def agent_main(problem):` at the top level of the file",
    "invisible": "delete the invisible character",
    "identifier": "rename it with letters of ASCII",
    "import": "leave it out; what may be taken from which module is in arena/gate/capabilities/modules.py",
    "decoder-import": "write the data as plain text or a plain list",
    "builtin": "leave it out: a dict of functions, or a plain value, does what it did",
    "attribute": "leave it out, or give your own field another name",
    "id-table": "delete the ids: an id counts only if a search of the run brought it",
    "copy": "submit a program of your own",
}


def what_to_change(finding: Finding) -> str:
    """A sentence for a finding that rejects; an empty text for one that a person will look at."""
    if finding.outcome != "reject":
        return ""
    module = finding.detail.split(".")[0].split(" ")[0] if finding.rule == "import" else ""
    return _MODULES.get(module) or _RULES[finding.rule]
