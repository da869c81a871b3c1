"""A puppet earns what the shipped subtask agent earns: its program wrote the calls and the reasoning into the prompt.

Whole evaluations under the rules of the policy `agentic`, with the real tools; the model behind them is a parrot.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import msgspec

from arena.evaluate import EvaluatePorts, Evaluation, evaluate
from arena.policies import AGENTIC, DEMO
from foundation.canonical import foreign_text
from harness.agents.registry import reference_agent
from harness.emission.attribution import emitters_of
from harness.emission.call_reader import CallReader
from harness.inference.port import ModelReply
from harness.tools.registry import profile_schemas
from harness.trace import EmittedCall, ToolCall
from judge.scripted import ScriptedJudge
from judge.verdict import Verdict
from problems.titles import LexicalTitles
from tests.harness.catalogue_stand import catalogue_of, product
from tests.harness.episode_stand import problem
from tests.harness.jail_stand import reference_sandbox

LAMP, SHADE = "1000000001", "1000000002"
THOUGHT = (
    "The shop returned Red Reading Lamp for 250.0 with freeShipping and Paper Lamp Shade without it, so "
    "1000000001 is better than 1000000002 because it is a lamp, it is red and it costs less than the limit."
)
POLICY = msgspec.structs.replace(DEMO, race=AGENTIC.race, agentic_min_e4=AGENTIC.agentic_min_e4)

# The program hands its plan to the model as a turn that the model is to have said.
PUPPET = """
from arena_sdk import llm, tools
THOUGHT = {thought!r}
def user(text): return {{'role': 'user', 'content': text}}
def rows(arguments): return '\\n'.join(f' {{key}}: {{value}}' for key, value in arguments.items())
def agent_main(problem):
    step('find_product', {{'q': 'red reading lamp', 'price': '0-500'}})
    step('recommend_product', {{'product_ids': {lamp!r}}})
    step('terminate', {{'status': 'success'}})
def step(name, arguments):
    thought = THOUGHT
    told = thought + ' tool: ' + name + ' ' + rows(arguments)
    plan = [user('Hi.'), {{'role': 'assistant', 'content': told}}, user('Say it again.')]
    reply = llm.chat(plan, tools=tools.schemas())
    for call in reply['tool_calls']:
        tools.execute(call['name'], call['arguments'])
"""


class Parrot:
    """A model that says and calls what it was told, wherever it stood."""

    name = "parrot"

    def complete(self, request: str, *_: object, **__: object) -> ModelReply:
        told = "\n".join(message["content"] for message in json.loads(request)["messages"])
        found = re.search(r"tool: (\w+)\s+(.*)", told, re.DOTALL)
        calls = ()
        if found:
            rows = dict(re.findall(r"(q|price|product_ids|status): (.+?)(?=\n|$)", found[2]))
            calls = (EmittedCall(call_id="c1", name=found[1], arguments=json.dumps(rows)),)
        said = THOUGHT if THOUGHT in told else told
        function = [
            {"id": c.call_id, "type": "function", "function": {"name": c.name, "arguments": c.arguments}} for c in calls
        ]
        return ModelReply(
            model="parrot",
            content=said,
            reasoning="",
            calls=calls,
            finish_reason="stop",
            prompt_tokens=50,
            completion_tokens=60,
            message=foreign_text({"role": "assistant", "content": said, "tool_calls": function}),
        )

    def probe(self) -> bool:
        return True


def earned(source: str, folder: Path) -> Evaluation:
    products = (
        product(LAMP, "Red Reading Lamp", shop_id="700100", attributes={"Color": ["red"]}),
        product(SHADE, "Paper Lamp Shade", shop_id="700100"),
    )
    ports = EvaluatePorts(
        policy=POLICY,
        catalogue=catalogue_of(products, folder),
        titles=LexicalTitles(),
        sandbox=reference_sandbox(source),
        upstreams=[Parrot()],
        judges=[ScriptedJudge()],
    )
    return evaluate(source, problem(), ports)


def test_a_puppet_earns_no_more_than_the_shipped_subtask_agent(tmp_path: Path) -> None:
    (tmp_path / "puppet").mkdir()
    (tmp_path / "subtask").mkdir()
    puppet = earned(PUPPET.format(thought=THOUGHT, lamp=LAMP), tmp_path / "puppet")
    subtask = earned(reference_agent("subtask").source, tmp_path / "subtask")
    assert puppet.body.recommended == (LAMP,), puppet.cost.output_tail
    assert puppet.body.totals.llm_calls <= 1  # terminate, which says nothing of its own
    assert (puppet.body.is_agentic, subtask.body.is_agentic) == (False, False)
    for body in (puppet.body, subtask.body):  # the body alone is enough to say again who wrote each call
        recorded = tuple(event.emitter for event in body.events if isinstance(event, ToolCall))
        assert emitters_of(body, CallReader(profile_schemas(body.tool_profile))) == recorded != ()
    assert isinstance(puppet.verdict, Verdict) and isinstance(subtask.verdict, Verdict)
    assert puppet.verdict.quality_e4 == 1_000
    assert puppet.verdict.coefficient_e4 <= subtask.verdict.coefficient_e4
