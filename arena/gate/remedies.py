"""What to change: one sentence for each finding, for the miner whose file it is."""

from __future__ import annotations

from arena.gate.rules import INSTEAD

# What a line should say instead, by the first word of an import's detail.
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


def what_to_change(rule: str, detail: str) -> str:
    """A sentence for a finding: of an import by its module, else by its rule (`arena.gate.rules`)."""
    module = detail.split(".")[0].split(" ")[0] if rule == "import" else ""
    return _MODULES.get(module) or INSTEAD.get(rule, "")
