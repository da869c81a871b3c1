"""A node's address on chain: published once, told when it is refused, tried again soon, and looked at now and then."""

from __future__ import annotations

import dataclasses
import io
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

import pytest
import structlog

from arena.chain.keys import generate_signer
from arena.chain.port import ChainResult
from foundation.errors import ArenaError
from neurons.loops.node import Permits
from neurons.race.door import LOOK_BLOCKS, PUBLISH_EVERY_S, DoorLoop
from neurons.race.log import QUALIFYING
from neurons.race.sharing import SharingLoop
from tests.neurons.clock_stand import BLOCK_MS, Desk, Time

HERE = "http://127.0.0.1:8750"
AWAY = ArenaError("U3030", "away")


class Address:
    """A node that keeps its address on a chain that can refuse, be away, and counts what it is asked."""

    def __init__(self, folder: Path, loop: Literal["door", "sharing"]) -> None:
        self.said = io.StringIO()
        log = structlog.wrap_logger(
            structlog.PrintLogger(self.said),
            processors=[structlog.processors.add_log_level, structlog.processors.JSONRenderer()],
            wrapper_class=structlog.make_filtering_bound_logger(0),
        )
        self.desk = Desk(None, generate_signer(), folder, Time())  # type: ignore[arg-type]  # nothing here is stored
        self.chain = self.desk.chain
        self.answers: list[ChainResult | ArenaError] = []
        self.tries = self.metagraphs = 0
        node = dataclasses.replace(self.desk.node, log=log)
        self._publish, self._metagraph = self.chain.publish, self.chain.metagraph
        self.chain.publish, self.chain.metagraph = self.publish, self.metagraph  # type: ignore[method-assign]
        if loop == "door":
            door = DoorLoop(node, HERE)
            self.turn, self.every_s = door.publish, PUBLISH_EVERY_S
        else:
            ports: Any = SimpleNamespace(endpoint=HERE, permits=Permits(), peers=None, submission_cache=None)
            self.turn, self.every_s = SharingLoop(node, ports, lambda: QUALIFYING).turn, 1.0

    async def publish(self, signer: Any, endpoint: str) -> ChainResult:
        self.tries += 1
        answer = self.answers.pop(0) if self.answers else await self._publish(signer, endpoint)
        if isinstance(answer, ArenaError):
            raise answer
        return answer

    async def metagraph(self, block: int | None = None) -> Any:
        self.metagraphs += 1
        return await self._metagraph(block)

    async def pass_s(self, seconds: float) -> None:
        """Turn as the loop does; a chain that is away is tried again by the next turn."""
        for _ in range(int(seconds / self.every_s)):
            self.desk.time.pass_s(self.every_s)
            try:
                await self.turn()
            except ArenaError as error:
                assert error is AWAY

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.said.getvalue().splitlines()]


@pytest.fixture(params=["door", "sharing"])
async def address(request: pytest.FixtureRequest, tmp_path: Path) -> Address:
    made = Address(tmp_path, request.param)
    await made.desk.settle_in()
    return made


def result(status: Literal["ok", "rate_limited", "failed"], detail: str = "") -> ChainResult:
    return ChainResult(status=status, block=9, detail=detail)


async def test_it_is_published_once_and_said(address: Address) -> None:
    await address.pass_s(1_200)
    assert address.tries == 1
    (line,) = address.lines()
    assert (line["level"], line["endpoint"], line["status"]) == ("info", HERE, "ok")
    assert line["event"].endswith("address published")


async def test_a_refusal_is_a_warning_with_its_reason_and_never_told_as_done(address: Address) -> None:
    address.answers = [result("failed", "can't pay the chain's fee"), result("rate_limited", "50 blocks")]
    await address.pass_s(400)
    first, second, third = address.lines()
    assert [line["level"] for line in (first, second, third)] == ["warning", "warning", "info"]
    assert first["event"].endswith("address not published") and "can't pay the chain's fee" in first["text"]
    assert (first["seconds"], second["seconds"]) == (60, 120)
    assert third["event"].endswith("address published")


async def test_a_chain_that_was_away_for_a_moment_costs_a_minute_and_not_twenty(address: Address) -> None:
    address.answers = [AWAY]
    await address.pass_s(100)
    assert address.tries == 2
    assert [line["status"] for line in address.lines()] == ["ok"]


async def test_another_address_on_chain_is_replaced_within_minutes(address: Address) -> None:
    await address.pass_s(2_400)
    await address._publish(address.desk.signer, "http://127.0.0.1:9")
    await address.pass_s(2 * LOOK_BLOCKS * BLOCK_MS / 1_000)
    assert address.tries == 2 and [line["status"] for line in address.lines()] == ["ok", "ok"]


async def test_the_door_reads_the_subnet_once_in_many_blocks(tmp_path: Path) -> None:
    door = Address(tmp_path, "door")
    await door.desk.settle_in()
    await door.pass_s(1_800)
    before = door.metagraphs
    await door.pass_s(4 * LOOK_BLOCKS * BLOCK_MS / 1_000)
    assert 3 <= door.metagraphs - before <= 5
