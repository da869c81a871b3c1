"""The door's queue and the inbox, over a kill between a withdrawal's row and what follows from it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import cast

import msgspec
import structlog

from arena.chain.keys import generate_signer
from arena.store.postgres.store import PostgresStore
from arena.submissions.inbox import Inbox
from arena.submissions.model import SignedSubmission, make_submission
from neurons.loops.node import Node
from neurons.race.door import DoorLoop


def loop_of(store: PostgresStore, inbox: Inbox) -> DoorLoop:
    """The door's loop of a process that has just started."""
    node = SimpleNamespace(store=store, inbox=inbox, log=structlog.get_logger(), sharing=None)
    return DoorLoop(cast("Node", node), "http://127.0.0.1:1")


def waiting_in(inbox: Inbox) -> set[str]:
    return {entry.submission.agent_version_id for entry in inbox.pending() if entry.submission is not None}


async def test_what_was_withdrawn_before_a_kill_does_not_reach_the_gate(store: PostgresStore, tmp_path: Path) -> None:
    inbox, made = Inbox(tmp_path), list[SignedSubmission]()
    for _ in range(3):
        made.append(make_submission(generate_signer(), "agent", "def agent_main(problem):\n    return None\n", 1))
        sent = msgspec.json.encode(made[-1])
        await store.receive(made[-1].agent_version_id, made[-1].hotkey, 7, "agent", sent)
    withdrawn, waits, local = (each.agent_version_id for each in made)
    await loop_of(store, inbox).turn()
    assert waiting_in(inbox) == {withdrawn, waits, local}
    await store.close_arrival(withdrawn, "withdrawn")
    # killed here: the process that knew what it had put into the inbox is gone
    again = loop_of(store, inbox)
    await again.begin()
    assert waiting_in(inbox) == {waits, local}
    await again.turn()
    assert waiting_in(inbox) == {waits, local}


async def test_what_was_withdrawn_and_came_again_stays(store: PostgresStore, tmp_path: Path) -> None:
    inbox = Inbox(tmp_path)
    made = make_submission(generate_signer(), "agent", "def agent_main(problem):\n    return None\n", 1)
    for _ in range(2):
        await store.receive(made.agent_version_id, made.hotkey, 7, "agent", msgspec.json.encode(made))
        await loop_of(store, inbox).turn()
        await store.close_arrival(made.agent_version_id, "withdrawn")
    await store.receive(made.agent_version_id, made.hotkey, 7, "agent", msgspec.json.encode(made))
    again = loop_of(store, inbox)
    await again.begin()
    assert waiting_in(inbox) == {made.agent_version_id}
