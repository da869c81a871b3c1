"""The gate on a long honest agent beside a catalogue of full size. Target: 80 ms, in its own process 1.2 times that."""

from __future__ import annotations

import random
import statistics
from collections.abc import Sequence
from functools import partial
from timeit import repeat

from arena.gate.inspection import inspect, inspect_isolated
from arena.gate.knowledge import make_knowledge
from arena.gate.rules import GateRules
from tests.benchmarks.row import Row

STEPS = 110  # 1,850 lines
IDS = 2_700_000
TARGET_MS = 80.0
_VOCABULARY = (
    "blue cotton shirt linen shade lamp seller price budget voucher official shipping wireless steel compare product"
    " cheapest matches requirement customer attribute option colour size verify candidate shop service rating title"
)
_WORDS = _VOCABULARY.split()
_STEP = """

PROMPT_{0} = \"\"\"{1}
{2} {{query}}\"\"\"
KEYWORDS_{0} = {3}
PATTERN_{0} = re.compile(r'([0-9]+(?:\\.[0-9]+)?)\\s*(?:php|pesos|{4})')


def step_{0}(state):
    \"\"\"{5}.\"\"\"
    reply = llm.chat(messages=[{{'role': 'user', 'content': PROMPT_{0}.format(query=state['query'])}}])
    words = [word for word in KEYWORDS_{0} if word in state['query'].lower()]
    limits = [float(value) for value in PATTERN_{0}.findall(state['query'])]
    if len(words) > {0} % 9 and reply.content:
        found = tools.find_product(q=' '.join(words), page=1, price=f'0-{{max(limits, default=0)}}')
        state['seen'] = {{item['product_id']: item for item in json.loads(found)}}
    state.setdefault('notes', []).append('{6}')
    return state"""


def measure() -> Sequence[Row]:
    """Milliseconds of `inspect` (median of nine) and of `inspect_isolated` (median of five)."""
    rules, rnd = GateRules(), random.Random(15)
    ids = (str(number) for number in rnd.sample(range(10**8, 10**10), IDS))
    texts = (" ".join(rnd.choice(_WORDS) + str(index) for index in range(40)) for _ in range(300))
    knowledge, source = make_knowledge(ids, texts, [], rules), honest_agent(rnd)
    outcome = inspect(source, rules, knowledge).outcome
    if outcome != "accept":
        raise ValueError(f"the honest agent of this benchmark got {outcome}")
    pure_ms, child_ms = (
        1_000 * statistics.median(repeat(partial(gate, source, rules, knowledge), "gc.enable()", repeat=n, number=1))
        for gate, n in ((inspect, 9), (inspect_isolated, 5))
    )
    return [
        Row(name="gate, 1,850-line agent, 2.7 M ids", value=pure_ms, unit="ms", baseline=TARGET_MS),
        Row(name="gate, the same in its own process", value=child_ms, unit="ms", baseline=pure_ms),
    ]


def honest_agent(rnd: random.Random) -> str:
    """A long agent with prompts, keyword lists, regular expressions and a loop over the tools."""

    def text(words: int) -> str:
        return " ".join(rnd.choice(_WORDS) for _ in range(words))

    steps = [
        _STEP.format(step, text(40), text(25), [text(2) for _ in range(12)], text(1), text(12), text(9))
        for step in range(STEPS)
    ]
    calls = "\n".join(f"    state = step_{step}(state)" for step in range(STEPS))
    head = '"""A long agent."""\nimport json\nimport re\nfrom arena_sdk import llm, tools\n'
    return (
        f"{head}{''.join(steps)}\n\n\ndef agent_main(problem):\n    state = dict(problem)\n{calls}\n    return None\n"
    )
