"""The agents' SDK as an editor or a plain interpreter sees it, outside any jail."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from harness.tools.registry import profile_schemas
from tests.harness.agent_stand import play, problems
from tests.harness.jail_stand import reference_sandbox

GUEST = Path(__file__).parents[2] / "harness" / "sandbox" / "guest"


def python(program: str) -> str:
    """Output of `program` under a bare interpreter that knows nothing but the standard library and the SDK."""
    bare = f"import sys; sys.path.insert(0, {str(GUEST)!r})\n"
    command = [sys.executable, "-I", "-S", "-c", bare + program]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout


def test_it_imports_with_the_standard_library_alone_and_says_that_there_is_no_host():
    program = """
from arena_sdk import ToolError, llm, tools
print(tools.schemas(), llm.models())
for attempt in (lambda: tools.find_product(q="x"), lambda: llm.chat([{"role": "user", "content": "x"}])):
    try:
        attempt()
    except ToolError as error:
        print(error.message)
"""
    first, *hints = python(program).splitlines()
    assert first == "[] []"
    assert len(hints) == 2 and all("arena run" in hint for hint in hints)


def test_what_is_sent_and_how_answers_come_back():
    program = """
import json
from arena_sdk import ToolError, _link, llm, tools
sent = []
def transport(method, params):
    sent.append([method, params])
    if method == "llm.chat":
        return {"content": "c", "reasoning": "r", "tool_calls": [], "message": {"role": "assistant"},
                "finish_reason": "stop", "usage": {"prompt_tokens": 1}}
    failure = {"code": "A1050", "message": "no"} if params["name"] == "bad" else None
    return {"result": "[1]", "failure": failure}
_link.transport, _link.schemas, _link.models = transport, '[{"a": 1}]', ("m1", "m2")
got = [tools.find_product(q="x", page=2), tools.call("other", a=None, b=1), tools.execute("bad", "{broken")]
try:
    tools.call("bad")
except ToolError as error:
    got.append([error.code, error.message])
reply = llm.chat([{"role": "user", "content": "hi"}], temperature=0, tools=tools.schemas(), seed=4)
got += [reply.content == reply["content"] == "c", reply.message, reply.usage, json.loads(json.dumps(reply)) == reply]
print(json.dumps({"got": got, "sent": sent}))
"""
    out = json.loads(python(program))
    assert out["got"] == [
        [1], [1], "[1]", ["A1050", "no"], True, {"role": "assistant"}, {"prompt_tokens": 1}, True,
    ]  # fmt: skip
    assert out["sent"] == [
        ["tool.call", {"name": "find_product", "arguments": {"q": "x", "page": 2}}],
        ["tool.call", {"name": "other", "arguments": {"b": 1}}],
        ["tool.call", {"name": "bad", "arguments": "{broken"}],
        ["tool.call", {"name": "bad", "arguments": {}}],
        [
            "llm.chat",
            {"messages": [{"role": "user", "content": "hi"}], "model": "m1", "seed": 4, "tools": [{"a": 1}],
             "temperature": 0},
        ],
    ]  # fmt: skip


def test_the_typed_functions_have_the_parameters_of_the_schemas():
    program = """
import inspect, json
from arena_sdk import tools
print(json.dumps({name: list(inspect.signature(function).parameters) for name, function in vars(tools).items()
                  if inspect.isfunction(function) and not name.startswith("_")}))
"""
    typed = json.loads(python(program))
    for schema in json.loads(profile_schemas("sn15")):
        function = schema["function"]
        assert typed[function["name"]] == list(function["parameters"]["properties"]), function["name"]


# -- the page for miners

PAGE = (GUEST / "README.md").read_text("utf-8")
BLOCKS = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("source", BLOCKS, ids=["smallest", "agentic", "failures"])
def test_every_agent_of_the_miners_page_runs_and_recommends_what_a_search_brought(source: str):
    episode = play(source, problems()[0], reference_sandbox(source))
    assert episode.body.failure is None, episode.exit.output_tail
    assert episode.body.recommended and episode.body.unsurfaced == ()
    assert episode.body.is_agentic == ("tools.execute(" in source)
