"""One run that code drove, honest thoughts for it, and writers that answer what they are told to."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from harness.chat import Message
from harness.inference.port import ModelReply
from training.corpus.model import ExecutedTrace, Rewritten, TraceFacts, TraceSource, assemble_trace
from training.rewriting.known_facts import CallStep, CallTimeline
from training.rewriting.writing import Rewrite, rewrite
from training.trac.asking import Asker
from training.trac.scripted import ScriptedModels

QUERY = "I'm looking for a Lumora desk lamp with USB charging, in white, below 900 PHP, and a Tavik mouse pad."
LAMPS = (
    '[{"product_id":"4410023987","shop_id":"77120","title":"Lumora Desk Lamp USB white dimmable","price":849.5,'
    '"service":["freeShipping"],"sold_count":31},{"product_id":"4410555123","shop_id":"90021","title":"Brixon Clip '
    'Lamp black","price":420.0,"service":["COD"],"sold_count":4}]'
)
DETAILS = (
    '[{"product_id":"4410023987","description":"A lamp for the desk.","sku_options":{"color":"Polar Ivory",'
    '"arm":["brushed nickel"],"plug":'
    '"Type G2"}}]'
)
PADS = '[{"product_id":"5599001122","shop_id":"77120","title":"Tavik Mouse Pad XL stitched edge","price":129.0}]'
STEPS = (
    CallStep(name="find_product", arguments='{"q":"lumora desk lamp usb white","page":1,"price":"-900"}', result=LAMPS),
    CallStep(name="view_product_information", arguments='{"product_ids":"4410023987"}', result=DETAILS),
    CallStep(name="find_product", arguments='{"q":"tavik mouse pad","page":1}', result=PADS),
    CallStep(
        name="recommend_product",
        arguments='{"product_ids":"4410023987,5599001122"}',
        result='"Recommended to the user: 4410023987,5599001122"',
    ),
    CallStep(
        name="terminate", arguments='{"status":"success"}', result='"The dialogue has ended with status: success"'
    ),
)
WRITER = "scripted-writer"
BY = Rewritten(writer=WRITER, prompt_sha256="0" * 64)
TIMELINE = CallTimeline(query=QUERY, steps=STEPS)
HONEST = (
    "The shopper wants a Lumora desk lamp in white with USB charging for less than 900 PHP. I begin with those words"
    " and cap the price in the search, so that nothing too dear comes back.",
    'Two candidates came back. "Lumora Desk Lamp USB white dimmable" costs 849.50 PHP and is the only one of the brand;'
    " the Brixon is a black clip lamp. Its options are worth a look before I trust the title.",
    "The lamp comes in Polar Ivory, which is as white as it gets. That settles the first wish, and the mouse pad by"
    " Tavik is still open, so I look for that now.",
    "For the lamp I take 4410023987 at 849.5 PHP, and 5599001122 is a pad of the brand that was asked for, sold by shop"
    " 77120 as well. Both wishes are met, so I can answer.",
    "Everything that was asked for has its product. There is nothing left to do but to close the dialogue.",
)


def trace_of(timeline: CallTimeline, **facts: object) -> ExecutedTrace:
    """A trace in which code made the calls of a timeline."""
    source = TraceSource(kind="arena", place="v:1", sha256="0" * 64, is_verified=True)
    known = TraceFacts(**{"is_success": True, "is_agentic": False, **facts})
    trace = assemble_trace(source, [Message(role="user", content=timeline.query)], query=timeline.query, facts=known)
    fields = {name: getattr(trace, name) for name in trace.__struct_fields__}
    executed = tuple((step.name, step.arguments, step.result) for step in timeline.steps)
    return ExecutedTrace(executed=executed, **fields)


class Writer(ScriptedModels):
    """Answers each step with what it is given; from its second reply to a step on, with the same again."""

    def __init__(self, thoughts: Sequence[str]) -> None:
        self._thoughts, self.calls = thoughts, 0

    def complete(self, request: str) -> ModelReply:
        self.calls += 1
        messages = msgspec.json.decode(request)["messages"]
        step = len(msgspec.json.decode(messages[1]["content"])["done"])
        text = msgspec.json.encode({"thought": self._thoughts[step]}).decode()
        return msgspec.structs.replace(super().complete(request), content=text)


def written(folder: Path, writer: ScriptedModels, trace: ExecutedTrace) -> Rewrite:
    return rewrite(trace, BY, Asker(writer, folder, {}, sleep=lambda _: None), lambda _: ())
