"""Peers that lie, withhold, stall and replay: nothing of theirs is held, they are named, and the next one is asked."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from arena.exchange.port import Peer, RowsQuestion
from arena.exchange.pull import PullPace
from arena.export.model import LogRow
from tests.arena.exchange_stand import Case

Change = Callable[[list[LogRow]], list[LogRow]]


class Meddler:
    """Peers of which one changes the rows it passes on."""

    def __init__(self, peers, liar: str, change: Change) -> None:
        self._peers, self._liar, self._change, self.ask = peers, liar, change, peers.ask

    async def rows(self, peer: Peer, question: RowsQuestion):
        rows = [row async for row in self._peers.rows(peer, question)]
        for row in self._change(rows) if peer.hotkey == self._liar else rows:
            yield row


@pytest.fixture
async def case(tmp_path: Path) -> Case:
    return await Case(tmp_path).fill()


def change_content(rows: list[LogRow]) -> list[LogRow]:
    forged = msgspec.Raw(bytes(rows[1].content).replace(b'"is_success":true', b'"is_success":null'))
    return [rows[0], msgspec.structs.replace(rows[1], content=forged), *rows[2:]]


def change_stub_hash(rows: list[LogRow]) -> list[LogRow]:
    return [*rows[:8], msgspec.structs.replace(rows[8], content_sha256="ab" * 32)]


def hide_one(rows: list[LogRow]) -> list[LogRow]:
    return [rows[0], msgspec.structs.replace(rows[1], content=None, withheld="unreleased"), *rows[2:]]


def change_signature(rows: list[LogRow]) -> list[LogRow]:
    return [msgspec.structs.replace(rows[0], signature=rows[1].signature), *rows[1:]]


ATTACKS: dict[str, Change] = {
    "another content": change_content,
    "another hash in a stub": change_stub_hash,
    "a stub where a whole record is due": hide_one,
    "all of them stubs": lambda rows: [msgspec.structs.replace(r, content=None, withheld="unreleased") for r in rows],
    "two rows swapped": lambda rows: [rows[1], rows[0], *rows[2:]],
    "a row left out": lambda rows: [*rows[:4], *rows[5:]],
    "a row twice": lambda rows: [rows[0], *rows],
    "the end cut off": lambda rows: rows[:5] if rows[0].seq == 1 else [],
    "the beginning cut off": lambda rows: rows[1:],
    "rows of another validator": lambda rows: [msgspec.structs.replace(row, validator="5Other") for row in rows],
    "the signature of another record": change_signature,
    "a body": lambda rows: [msgspec.structs.replace(rows[0], body=msgspec.Raw(b"{}")), *rows[1:]],
    "a malformed hash": lambda rows: [msgspec.structs.replace(rows[0], content_sha256="zz"), *rows[1:]],
    "a row beyond the note": lambda rows: [*rows, msgspec.structs.replace(rows[-1], seq=rows[-1].seq + 1)],
    "nothing": lambda rows: [],
}  # fmt: skip


@pytest.mark.parametrize("attack", ATTACKS)
async def test_a_liar_is_named_and_the_next_peer_is_asked(case: Case, attack: str) -> None:
    liar = Meddler(case.net.peers(case.reader), case.author.hotkey, ATTACKS[attack])
    pulled = await case.pull(liar)
    assert pulled.log is not None
    assert [(c.peer, c.failure.code) for c in pulled.complaints] == [(case.author.hotkey, "U3042")]


@pytest.mark.parametrize(("window_rows", "blamed"), [(1, []), (100, ["U3040"])])
async def test_a_peer_has_as_long_as_enough_rows_come_in_each_window(
    case: Case, monkeypatch, window_rows: int, blamed: list[str]
) -> None:
    """Nine rows that take longer than one window; each in an answer of its own."""
    monkeypatch.setattr("arena.exchange.peer_service.ANSWER_ROWS", 1)

    class Slow(Meddler):
        async def rows(self, peer: Peer, question: RowsQuestion):
            if peer.hotkey == self._liar:
                await asyncio.sleep(0.2)
            async for row in super().rows(peer, question):
                yield row

    peers = Slow(case.net.peers(case.reader), case.author.hotkey, list)
    pulled = await case.pull(peers, pace=PullPace(window_s=1.0, window_rows=window_rows))
    assert pulled.log is not None
    assert [c.failure.code for c in pulled.complaints] == blamed
