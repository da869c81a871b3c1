"""Limits are policy data: one row a limit, each breach with a stop reason of its own and an owner, on real jails."""

from __future__ import annotations

import msgspec
import pytest

from foundation.codes import CODES
from foundation.codes.row import Owner
from foundation.errors import ArenaError
from harness.limits import EpisodeLimits, ModelPrice, completion_cost
from harness.session import run_episode
from tests.harness.episode_stand import StandGateway, ports, problem, rules
from tests.harness.jail_stand import WHY_NO_JAIL, best_sandbox, has_jail

MIB = 1 << 20
PRICES = (ModelPrice(model="stand", prompt_micro_usd=2_000_000, completion_micro_usd=6_000_000),)


def agent(*lines: str) -> str:
    head = "import os, sys, time, threading\nfrom arena_sdk import llm, tools\n"
    return head + "def agent_main(problem):\n" + "".join(f"    {line}\n" for line in lines)


ASK = "llm.chat([{'role': 'user', 'content': 'x'}])"
FORKS = ("for _ in range({}):", "    if os.fork() == 0: time.sleep(20)")
BUSY = (
    "for _ in range(30):",
    "    if os.fork() == 0:",
    "        while time.process_time() < 0.4: pass",
    "        os._exit(0)",
    "    os.wait()",
)
# limit -> (its value here, an agent that breaks it, stop reason, code)
ROWS: dict[str, tuple[int, str, str, str]] = {
    "steps": (3, agent("while True:", f"    {ASK}"), "steps", "A1021"),
    "completions": (3, agent("while True:", f"    {ASK}"), "steps", "A1021"),
    "tool_calls": (3, agent("while True: tools.find_product(q='x')"), "tool_calls", "A1022"),
    "prompt_tokens": (25, agent("while True:", f"    {ASK}"), "tokens", "A1023"),
    "completion_tokens": (9, agent("while True:", f"    {ASK}"), "tokens", "A1023"),
    "cost_micro_usd": (120, agent("while True:", f"    {ASK}"), "cost", "A1034"),
    "agent_time_ms": (500, agent("while True: pass"), "wall_clock", "A1020"),
    "cpu_time_s": (1, agent(*BUSY), "cpu", "A1031"),
    "memory_bytes": (120 * MIB, agent("return len(bytearray(b'x' * (200 << 20)))"), "memory", "A1030"),
    "processes": (16, agent(*(line.format(60) for line in FORKS)), "processes", "A1032"),
    "disk_bytes": (4 * MIB, agent("open('note', 'wb').write(b'x' * (9 << 20))"), "disk", "A1033"),
    "output_bytes": (10_000, agent("while True: print('x' * 999)"), "output", "A1026"),
    "frame_bytes": (4_096, agent("os.write(4, b'\\0\\0\\xff\\xff'); time.sleep(20)"), "frame", "A1029"),
    "host_work": (100_000, agent("while True: tools.find_product(q='x')"), "host_work", "A1038"),
    "rpc_bytes": (9_000, agent("while True: tools.find_product(q='x' * 999)"), "frame", "A1029"),
    "result_bytes": (900, agent("while True: tools.find_product(q='x')"), "results", "A1036"),
    "trace_bytes": (900, agent("while True: tools.find_product(q='x')"), "trace", "A1036"),
    "body_bytes": (900, agent("while True: tools.find_product(q='x')"), "body", "A1036"),
}
OFF_BY_DEFAULT = {
    "completions",
    "cost_micro_usd",
    "host_work",
    "result_bytes",
    "trace_bytes",
    "body_bytes",
}  # 0: not limited


@pytest.fixture(autouse=True)
def jail() -> None:
    if not has_jail():
        pytest.skip(WHY_NO_JAIL)


def body(source: str, gateway: StandGateway | None = None, **limits: object):
    chosen = EpisodeLimits(**{"agent_time_ms": 20_000, "prices": PRICES, **limits})
    given = msgspec.structs.replace(rules(), limits=chosen)
    return run_episode(source, problem(), ports(best_sandbox(), gateway), given).body


@pytest.mark.parametrize("limit", ROWS)
def test_a_breach_has_its_own_stop_reason_and_is_the_agents(limit):
    value, source, stop, code = ROWS[limit]
    got = body(source, **{limit: value})
    assert (got.stop, got.failure and got.failure.code) == (stop, code), got
    assert got.failure.owner is Owner.AGENT and CODES[code].owner is Owner.AGENT


ROUND = ("while True:", f"    {ASK}", f"    {ASK}", f"    {ASK}", "    tools.find_product(q='x')")


def test_where_completions_have_a_limit_of_their_own_a_step_is_a_round_of_completions_and_calls():
    got = body(agent(*ROUND), steps=2, completions=50)
    assert (got.stop, got.failure.detail, got.totals.steps, got.totals.tool_calls) == ("steps", "2 steps", 6, 2)
    got = body(agent(*ROUND), steps=20, completions=5)
    assert (got.stop, got.failure.detail, got.totals.steps) == ("steps", "5 completions", 5)
    got = body(agent(*ROUND), steps=2)
    assert (got.failure.detail, got.totals.steps, got.totals.tool_calls) == ("2 steps", 2, 0)


@pytest.mark.parametrize("limit", sorted(ROWS.keys() - OFF_BY_DEFAULT))
def test_a_small_agent_stays_within_every_limit_that_the_policy_ships(limit):
    got = body(agent(ASK, "tools.find_product(q='x')", "open('note', 'w').write('x')", "print('x')", "return 1"))
    assert (got.stop, got.failure.code) == ("returned", "A1060")
    assert getattr(EpisodeLimits(), limit) > ROWS[limit][0]


def test_cost_is_counted_by_the_policys_price_table_and_stands_in_the_record():
    got = body(agent(ASK, ASK))
    # 10 prompt tokens at 2 micro-USD and 5 completion tokens at 6, twice
    assert got.totals.cost_micro_usd == 2 * (10 * 2 + 5 * 6)
    assert got.stop == "returned"


@pytest.mark.parametrize(
    ("model", "prompt", "completion", "expected"),
    [("stand", 1, 0, 2), ("stand", 0, 1, 6), ("other", 1_000, 1_000, 0), ("stand", 0, 0, 0)],
)
def test_the_price_of_a_completion(model, prompt, completion, expected):
    assert completion_cost(EpisodeLimits(prices=PRICES), model, prompt, completion) == expected


def test_a_tool_call_over_its_limit_is_refused_and_nothing_reads_it():
    lines = ("try: tools.find_product(q='x' * 5000)", "except Exception as error: return error.code")
    got = body(agent(*lines), argument_bytes=1_000)
    assert (got.claim, got.events) == ('"A1050"', ())


def test_a_source_over_its_limit_is_never_started():
    with pytest.raises(ArenaError) as caught:
        body("#" * 2_000, source_bytes=1_000)
    assert caught.value.failure.code == "A1004"
