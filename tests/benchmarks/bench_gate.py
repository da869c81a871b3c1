"""The gate on a long honest agent with a full-size catalogue to check against. Target: 80 ms, and 1.2 times that in its
own process once its template is warm."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Iterator, Sequence

from arena.gate.inspection import inspect, inspect_isolated
from arena.gate.knowledge import GateKnowledge, make_knowledge
from arena.policy import GateRules
from tests.benchmarks.row import Row

LINES = 1_850
IDS = 2_700_000
TARGET_MS = 80.0
_VOCABULARY = """
blue cotton shirt linen shade lamp seller price budget voucher official shipping wireless steel compare product cheapest
matches requirement customer attribute option colour size verify candidate shop service rating title
"""
_WORDS = _VOCABULARY.split()


def measure() -> Sequence[Row]:
    """Milliseconds of `inspect` (median of nine) and of `inspect_isolated` (median of five, of which one starts the
    template)."""
    rules = GateRules()
    rnd = random.Random(15)
    knowledge = _knowledge(rnd, rules)
    source = honest_agent(LINES, rnd)
    outcome = inspect(source, rules, knowledge).outcome
    if outcome != "accept":
        raise ValueError(f"the honest agent of this benchmark got {outcome}")
    pure_ms = _median_ms(9, lambda: inspect(source, rules, knowledge))
    child_ms = _median_ms(5, lambda: inspect_isolated(source, rules, knowledge))
    return [
        Row(
            name="gate, 1,850-line agent, 2.7 M ids",
            value=pure_ms,
            unit="ms",
            baseline=TARGET_MS,
            ratio=TARGET_MS / pure_ms,
        ),
        Row(
            name="gate, the same in its own process",
            value=child_ms,
            unit="ms",
            baseline=pure_ms,
            ratio=child_ms / pure_ms,
        ),
    ]


def honest_agent(lines: int, rnd: random.Random) -> str:
    """An agent of about `lines` lines with prompts, keyword lists, regular expressions and a loop over the tools."""
    parts = ['"""A long agent."""', "import json", "import re", "from arena_sdk import llm, tools", ""]
    index = 0
    while sum(part.count("\n") + 1 for part in parts) < lines:
        parts.append("\n".join(_step(index, rnd)))
        index += 1
    calls = "\n".join(f"    state = step_{number}(state)" for number in range(index))
    parts.append(f"def agent_main(problem):\n    state = dict(problem)\n{calls}\n    return None\n")
    return "\n".join(parts)


def _step(index: int, rnd: random.Random) -> Iterator[str]:
    yield ""
    yield f'PROMPT_{index} = """{_text(rnd, 40)}'
    yield f'{_text(rnd, 25)} {{query}}"""'
    yield f"KEYWORDS_{index} = [{', '.join(repr(_text(rnd, 2)) for _ in range(12))}]"
    yield f"PATTERN_{index} = re.compile(r'([0-9]+(?:\\.[0-9]+)?)\\s*(?:php|pesos|{rnd.choice(_WORDS)})')"
    yield ""
    yield ""
    yield f"def step_{index}(state):"
    yield f'    """{_text(rnd, 12)}."""'
    yield f"    reply = llm.chat(messages=[{{'role': 'user', 'content': PROMPT_{index}.format(query=state['query'])}}])"
    yield f"    words = [word for word in KEYWORDS_{index} if word in state['query'].lower()]"
    yield f"    limits = [float(value) for value in PATTERN_{index}.findall(state['query'])]"
    yield f"    if len(words) > {rnd.randrange(9)} and reply.content:"
    yield "        found = tools.find_product(q=' '.join(words), page=1, price=f'0-{max(limits, default=0)}')"
    yield "        state['seen'] = {item['product_id']: item for item in json.loads(found)}"
    yield f"    state.setdefault('notes', []).append({_text(rnd, 6)!r} + {_text(rnd, 3)!r})"
    yield "    return state"


def _text(rnd: random.Random, words: int) -> str:
    return " ".join(rnd.choice(_WORDS) for _ in range(words))


def _knowledge(rnd: random.Random, rules: GateRules) -> GateKnowledge:
    ids = (str(number) for number in rnd.sample(range(10**8, 10**10), IDS))
    texts = (" ".join(rnd.choice(_WORDS) + str(index) for index in range(40)) for _ in range(300))
    return make_knowledge(ids, texts, [], rules)


def _median_ms(count: int, action: Callable[[], object]) -> float:
    durations = []
    for _ in range(count):
        started = time.perf_counter()
        action()
        durations.append((time.perf_counter() - started) * 1_000)
    return statistics.median(durations)
