"""Blocks by timestamps and endpoints by numbers: pure rules that both chains stand on."""

from __future__ import annotations

import asyncio
from itertools import accumulate

from hypothesis import given
from hypothesis import strategies as st

from arena.chain.port import format_endpoint, split_endpoint
from arena.chain.real import BLOCK_MS, BlockTimes

GAPS = st.lists(st.sampled_from([1, 500, BLOCK_MS, BLOCK_MS, 3 * BLOCK_MS, 50 * BLOCK_MS]), min_size=1, max_size=80)


@given(GAPS, st.lists(st.integers(0, 10**8), min_size=1, max_size=8), st.data())
def test_whatever_was_asked_before_the_answer_is_that_of_reading_every_block(
    gaps: list[int], moments: list[int], data: st.DataObject
) -> None:
    chain = [0, *accumulate(gaps)]

    async def time_of(block: int) -> int:
        return chain[block]

    times = BlockTimes(time_of)
    for moment in moments:
        finalized = data.draw(st.integers(0, len(gaps)))
        final = chain[: finalized + 1]
        wanted = None if final[-1] <= moment else sum(time <= moment for time in final) - 1
        assert asyncio.run(times.last_block(moment, finalized)) == wanted


@given(st.integers(0, 2**128 - 1), st.integers(0, 65_535), st.integers(0, 255))
def test_whatever_stands_on_chain_reads_as_an_endpoint_or_as_none(ip: int, port: int, version: int) -> None:
    endpoint = format_endpoint(ip, port, version)
    assert endpoint == "" or int(split_endpoint(endpoint)[0]) == ip
