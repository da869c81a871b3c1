"""What models cost: the ledger beside an endpoint that counts by itself, caps that are held, and what is foreseen."""

from __future__ import annotations

import asyncio
import json
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import asdict, replace

from arena.race.admission import RaceRecords
from arena.race.forecast import Cost, forecast, past_episodes, spent
from arena.records.model import Context, Subject
from arena.records.port import UsageTotal, WorkItem
from foundation.errors import ArenaError
from harness.inference.gateway import ModelUsage
from harness.inference.scripted.model import complete
from harness.limits import TokenPrice
from judge.rubric import GATES
from neurons.demo.demo import running_validator
from neurons.loops.purse import Purse
from neurons.settings.endpoints import chosen_endpoints
from neurons.settings.settings import Budget, Endpoint, resolve
from tests.harness.inference_stand import OtherServer, raw
from tests.neurons.arena_stand import SMALL, make_run, opened_store
from tests.neurons.test_outages import follow

PRICE, DEAR = (TokenPrice(prompt_micro_usd=sum_, completion_micro_usd=4 * sum_) for sum_ in (150_000, 300_000))
LISTED = raw(json.dumps({"data": [{"id": model} for model in ("scripted-toy", "scripted-judge")]}).encode())


class Meter:
    """An endpoint of the scripted model and of a judge who is never content, which counts tokens by itself."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self._lock = threading.Lock()

    def __call__(self, request: dict[str, Any]) -> tuple[int, bytes]:
        held = dict.fromkeys(GATES, False) | {GATES[0]: True}
        said = {"gates": held, "quality": 0.3, "citations": [], "explanation": "no"}
        message = {"role": "assistant", "content": json.dumps(said)}
        is_judge = request["model"] == "scripted-judge"
        choices = [{"index": 0, "finish_reason": "stop", "message": message}]
        reply = {"id": "c", "object": "chat.completion", "created": 0, "model": "scripted-judge", "choices": choices}
        reply = reply if is_judge else complete(request)
        read, wrote = (len(json.dumps(part)) // 4 for part in (request, reply["choices"]))
        reply["usage"] = {"prompt_tokens": read, "completion_tokens": wrote, "total_tokens": read + wrote}
        with self._lock:
            self.counts.update({f"{is_judge} in": read, f"{is_judge} out": wrote})
        return 200, json.dumps(reply).encode()


TABLES = """
[[upstreams]]
name = "meter"
base_url = "{url}"
price = {{ prompt_micro_usd = 150_000, completion_micro_usd = 600_000 }}
[[upstreams]]
name = "jury"
role = "judge"
base_url = "{url}"
price = {{ prompt_micro_usd = 300_000, completion_micro_usd = 1_200_000 }}
[budget]
race_usd = {cap}
"""


@pytest.mark.parametrize(("cap", "state"), [(50.0, "settled"), (0.2, "cancelled")])
def test_a_race_costs_what_its_endpoint_counted_and_ends_cleanly_at_its_cap(
    cap: float, state: str, arena_base: Path, small_catalogue: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    meter = Meter()
    with OtherServer(then=meter, listed=LISTED) as server:
        (tmp_path / "arena.toml").write_text(TABLES.format(url=server.base_url, cap=cap))
        monkeypatch.setenv("ARENA_CONFIG", str(tmp_path / "arena.toml"))
        run = make_run(arena_base, small_catalogue, names=("expert",))
        with running_validator(run) as process:
            settlement = follow(run, lambda view: view.is_over, process).race.settlement
    assert settlement is not None and settlement.state == state

    async def read() -> list[UsageTotal]:
        async with opened_store(run.settings) as store:
            return await store.usage_totals()

    rows = asyncio.run(read())
    inference, judging = spent(rows)
    for cost, key, price in ((inference, False, PRICE), (judging, True, DEAR)):
        read, wrote = meter.counts[f"{key} in"], meter.counts[f"{key} out"]
        assert (cost.prompt_tokens, cost.completion_tokens) == (read, wrote)
        assert 0 <= (cost.micro_usd or 0) - price.cost_micro_usd(read, wrote) < 100  # each attempt rounds up
    raced = [row for row in rows if row.stage == "race"]
    assert (spent(raced)[0].plus(spent(raced)[1]).micro_usd or 0) <= cap * 1e6
    if state == "cancelled":
        why = "3 of 6 problems are void: a cap on what models cost was reached"
        assert settlement.reason == why and not settlement.standings
    else:
        assert len(settlement.standings) == 1 and settlement.standings[0].missing == 0
        every = past_episodes(rows)
        again = forecast("next", SMALL.race, 1, 1, rows, (Cost(), Cost()))
        assert again.episodes == every[2] == 12 and again.inference == every[0] and again.judging == every[1]


class Books:
    """A store's ledger, in memory."""

    validator = "v"

    def __init__(self) -> None:
        self.rows: list[UsageTotal] = []

    async def usage_totals(self) -> list[UsageTotal]:
        return self.rows

    def put(self, context: Context, micro_usd: int) -> list[ModelUsage]:
        counts = {"model": "m", "requests": 1, "prompt_tokens": 9}
        costs = {"m": micro_usd, "judge/m": 0}
        found = [ModelUsage(upstream=name, cost_micro_usd=cost, **counts) for name, cost in costs.items()]
        about = {"day": "2026-01-01", "race_id": context.race_id, "stage": context.stage, "agent_version_id": "a"}
        self.rows += [UsageTotal(episodes=1, **about, **asdict(usage)) for usage in found]
        return found


RACE_ITEMS = [
    WorkItem(
        item_id=f"{problem}/{agent}",
        subject=Subject(agent_version_id=f"a{agent}", miner_hotkey="m", agent_sha256="0" * 64),
        context=Context(stage="race", race_id="r/1", problem_id=problem),
    )
    for problem in ("p", "q", "s")
    for agent in range(3)
]
MOST, START_MS = 1_000, 1_767_225_600_000
COSTS = st.integers(1, MOST)


async def run_all(purse: Purse, books: Books, costs: list[int]) -> dict[str, set[bool]]:
    """By problem: whether its items were run, four at a time."""
    ran: dict[str, set[bool]] = {}
    room = asyncio.Semaphore(4)

    async def one(context: Context, micro_usd: int) -> None:
        async with room:
            refused = await purse.enter(context)
            ran.setdefault(context.problem_id, set()).add(refused is None)
            if refused is None:
                await asyncio.sleep(0)
                purse.leave(context, books.put(context, micro_usd))
            else:
                assert refused.code == "U3022"

    await asyncio.gather(*(one(item.context, cost) for item, cost in zip(RACE_ITEMS, costs, strict=True)))
    return ran


@given(costs=st.lists(COSTS, min_size=len(RACE_ITEMS), max_size=len(RACE_ITEMS)), cap=st.integers(0, 20 * MOST))
def test_no_cap_is_passed_and_a_process_that_starts_again_knows_what_was_spent(costs: list[int], cap: int) -> None:
    async def course() -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("neurons.loops.purse._WAIT_S", 0)
            books, budget = Books(), Budget(race_usd=(cap + 1) / 1e6, day_usd=1.0)
            for _ in range(2):
                purse = Purse(
                    books, budget, (Cost(micro_usd=MOST), Cost()), (Cost(), Cost()), lambda: 1_767_225_600_000
                )
                await purse.plan("r/1", RACE_ITEMS, RaceRecords())
                ran = await run_all(purse, books, costs)
                total = sum(row.cost_micro_usd or 0 for row in books.rows)
                assert total <= cap + 1
                if cap >= 2 * MOST * len(RACE_ITEMS):
                    assert all(each == {True} for each in ran.values())

    asyncio.run(course())


@pytest.mark.parametrize(
    ("budget", "cap"),
    [
        (Budget(race_usd=0.004), "r/1: race_usd $0.004"),
        (Budget(judge_race_tokens=72), "r/1: judge_race_tokens 72"),  # nor is it run without a verdict
    ],
)
async def test_a_problem_without_room_is_not_begun_once_the_mean_is_known(budget: Budget, cap: str) -> None:
    books, first = Books(), RACE_ITEMS[0].context
    for number in range(8):
        books.put(replace(first, race_id=f"r/0{number}"), 500)
    purse = Purse(books, budget, (Cost(micro_usd=MOST), Cost()), (Cost(), Cost()), lambda: 0)
    await purse.plan("r/1", RACE_ITEMS, RaceRecords())  # three problems of three pairs at 500
    ran = await run_all(purse, books, [500] * len(RACE_ITEMS))
    assert sorted(map(sorted, ran.values())) == [[False], [True], [True]]
    assert purse.refusal is not None and purse.refusal.detail == cap


def test_a_cap_needs_prices_and_the_older_setting_says_where_it_went(tmp_path: Path) -> None:
    named = {"upstreams": (Endpoint(name="a", base_url="http://a"),), "budget": Budget(day_usd=1.0)}
    with pytest.raises(ArenaError, match=r"V2030.*\[budget\] caps.* a \(http://a\) has no price"):
        chosen_endpoints(resolve(named).settings, SMALL)
    (tmp_path / "arena.toml").write_text("judge_race_tokens = 5\n")
    with pytest.raises(ArenaError, match=r"judge_race_tokens is a key of \[budget\] now"):
        resolve({}, tmp_path / "arena.toml")
