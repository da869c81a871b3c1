"""Whose fault an episode is, over generated guests: never ours by anything a guest does, never the agent's by a fault
of ours.

The real host loop, recorder, tools, gateway and death reader; the model behind the gateway writes what it was told,
so completions are as hostile as requests.
"""

from __future__ import annotations

import collections
import errno
import fcntl
import json
import os
import random
import signal
import struct
import time
from collections.abc import Iterator
from typing import NamedTuple

import msgspec
import pytest

from arena.policies import PAPER
from foundation.canonical import canonical_bytes, foreign_text
from foundation.codes import Owner
from foundation.errors import ArenaError
from harness.catalogue.port import Catalogue
from harness.inference.gateway import Gateway
from harness.inference.port import InferenceRules, ModelReply
from harness.sandbox.jail import explain_death
from harness.sandbox.port import GuestConversation, GuestExit, GuestJob, Host, Pipes, SandboxLevel, encode_result
from harness.session import EpisodePorts, EpisodeRules, run_episode
from harness.tools.registry import Toolbox, profile_tools
from harness.trace import EmittedCall, EvaluationBody
from judge.render import render, shown_bytes
from tests.harness.catalogue_stand import catalogue_of, product
from tests.harness.episode_stand import problem

# -- byte streams as a jail's process could send them, the same for the same seed: well-formed frames whose values are
# hostile (depth, size, encodings, numbers, call texts), and some that break the frames; `PipeSandbox` plays one through
# the real host loop, over real pipes, and reads its death as the adapters do
PIPE_BYTES = 1 << 20
TOOLS = tuple(profile_tools("sn15"))
PARAMETERS = tuple(dict.fromkeys(one.name for tool in profile_tools("sn15").values() for one in tool.parameters))
ROLES = ("system", "user", "user", "assistant", "tool", "developer", "\ufeff")
FIELDS = ("model", "temperature", "max_tokens", "tools", "seed", "tool_choice", "n", "stream", "stop", "tool_calls")
NUMBERS = (0, 1, -1, 2, 2.5, 1e308, -0.0, 1e-320, 2**53, 2**63, 2**64, 10**30, -(2**63), 99999)
CALL = '{"name": "find_product", "arguments": {"q": "red lamp"}}'
TEXTS = (
    *("red lamp", "1000000001", "1000000001, 1000000002", "", " ", "0-100", "order", "COD", "a" * 256, "9" * 4301),
    *("\x00", "\x1f\x7f", "\ufeff", "\u2028", "\udcff", "é" * 50, "ﷺ" * 40, "\U0001f9ff", "٣", "²", "\u202e"),
    *(opening * 4000 for opening in ("[", "{", '{"a":', "(", '"', "\\", "<tool_call>", "find_product(")),
    *("[" * depth + "1" + "]" * depth for depth in (100, 500, 1100)),
    '{"name": "find_product", "arguments": ' * 300 + "{}" + "}" * 300,
    f"find_product(page={'9' * 5000})",
    f'{{"price": {"9" * 9000}}}',
    "lamp AND *:* ~2 ^9 " * 300,
    f"<tool_call>{CALL}</tool_call>",
    "Action: find_product\nAction Input: " + CALL,
    "find_product(q='red lamp', page=1)",
    "<find_product><q>red lamp</q></find_product>" * 30,
    "name: find_product\narguments:\n  q: red lamp\n",
    json.dumps(CALL),
)
BROKEN = (
    *(struct.pack(">I", length) + b"{}" for length in (0, 1, 5, 2**31, 2**32 - 1)),
    struct.pack(">I", 4) + b"\xff\xfe\x00\x01",
    *(
        struct.pack(">I", len(body)) + body
        for body in (
            b'{"jsonrpc": "2.0", "id": NaN, "method": "tool.call", "params": {}}',
            b'{"jsonrpc":"2.0","id":1,"method":"tool.call","params":{"name":"\\ud800","arguments":{}}}',
            b"[" * 1500,
            b"null",
            b'{"jsonrpc":"2.0","method":"ready","params":{}}',
        )
    ),
)


class Traffic(NamedTuple):
    """What one guest sends, and how its process ends: an exit status as a supervisor reports it."""

    stream: bytes
    status: int
    was_out_of_memory: bool


def traffic(seed: int) -> Traffic:
    """The guest of that seed."""
    rng = random.Random(seed)
    frames = [_request(rng, number) for number in range(1, rng.choice((1, 2, 2, 3, 5, 9)))]
    if rng.random() < 0.6:
        kind = rng.choice(("", "load", "raise", "not_json", "other"))
        error = rng.choice((rng.choice(TEXTS), "MemoryError: ", "OSError: [Errno 28] x", "RecursionError: deep", ""))
        last = {"claim": _value(rng)} if rng.random() < 0.5 else {"error": error, "kind": kind}
        frames.append(frame({"jsonrpc": "2.0", "method": "final", "params": last}))
    stream = b"".join(frames)
    if rng.random() < 0.05:
        stream = stream[: rng.randrange(len(stream) + 1)]
    status = rng.choice((rng.randrange(256), -rng.choice(sorted(signal.valid_signals())), rng.randrange(-70, 400)))
    # "ready" is sent before the agent is loaded: what goes wrong until then is no agent's doing
    ready = frame({"jsonrpc": "2.0", "method": "ready", "params": {"python": "3.11"}})
    return Traffic((ready + stream)[:PIPE_BYTES], status, rng.random() < 0.02)


def frame(message: object) -> bytes:
    """A frame of the guest's protocol."""
    body = json.dumps(message, ensure_ascii=False).encode("utf-8", "surrogatepass")
    return struct.pack(">I", len(body)) + body


def _request(rng: random.Random, request_id: int) -> bytes:
    if rng.random() < 0.08:
        return rng.choice(BROKEN)
    request = {"jsonrpc": "2.0", "id": request_id, "method": "tool.call"}
    text = rng.choice(TEXTS).encode("utf-8", "replace").decode()
    if rng.random() < 0.4:  # a call that reaches a tool or the model, whatever its text says
        arguments: object = rng.choice(({"q": text}, {"q": "red lamp", "price": text}, {"q": text, "page": 2}))
        request["params"] = {"name": "find_product", "arguments": arguments}
    elif rng.random() < 0.5:
        arguments = {rng.choice(PARAMETERS): _value(rng) for _ in range(rng.randrange(5))}
        arguments = rng.choice((arguments, json.dumps(arguments, ensure_ascii=False), _value(rng)))
        request["params"] = {"name": rng.choice((*TOOLS, *TOOLS, text, "terminate ")), "arguments": arguments}
    else:
        contents = (_value(rng) if rng.random() < 0.2 else rng.choice(TEXTS) for _ in range(rng.randrange(1, 5)))
        chat: dict[str, object] = {"messages": [{"role": rng.choice(ROLES), "content": one} for one in contents]}
        chat["messages"] += [{"role": "user", "content": text or "?"}]  # type: ignore[operator]
        chat |= {field: _value(rng) for field in FIELDS if rng.random() < 0.04}
        request |= {"method": "llm.chat", "params": chat}
    if rng.random() < 0.03:
        request[rng.choice(("id", "method", "params", "jsonrpc"))] = _value(rng)
    return frame(request)


def _value(rng: random.Random) -> object:
    value: object = rng.choice((rng.choice(TEXTS), rng.choice(NUMBERS), None, True, ["a", 1, None], {"1": 2.5}))
    for _ in range(rng.choice((0, 0, 0, 1, 40, 240))):
        value = [value] if rng.random() < 0.5 else {rng.choice(PARAMETERS): value}
    return value


class PipeSandbox:
    """A `Sandbox` whose guest is a traffic: all it ever sends is in the pipe before the host begins to read."""

    level = SandboxLevel(
        name="reference-agents-only", layers=(), guest_sha256="0" * 64, python_version="3.11", may_race=False
    )

    def __init__(self, guest: Traffic) -> None:
        self._guest = guest

    def run(self, job: GuestJob, host: Host) -> GuestExit:
        host_in, guest_out = os.pipe()
        guest_in, host_out = os.pipe()
        output, printing = os.pipe()
        for end in (guest_out, host_out):
            fcntl.fcntl(end, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
        os.write(guest_out, self._guest.stream)
        os.close(guest_out)
        os.write(printing, b"a traceback\n")
        os.close(printing)
        with (
            os.fdopen(host_out, "wb", 0) as to_guest,
            os.fdopen(host_in, "rb", 0) as from_guest,
            os.fdopen(output, "rb", 0) as said,
        ):
            pipes = Pipes(to_guest=to_guest, from_guest=from_guest, output=said)
            try:
                first = encode_result(0, {})
                ended = GuestConversation(pipes, job.limits, host, time.monotonic, on_ready=lambda: first).run()
            finally:
                os.close(guest_in)
        if ended.end != "died":
            return ended
        return explain_death(ended, self._guest.status, was_out_of_memory=self._guest.was_out_of_memory)


# -- whose fault it is
CASES = 1_000
BATCHES = 2
RULES = EpisodeRules(policy_sha256="0" * 64, catalogue_sha256="1" * 64, limits=PAPER.limits, models=("stand",))


@pytest.fixture(scope="module")
def catalogue(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Catalogue]:
    products = (
        product("1000000001", "Red Reading Lamp", shop_id="700100", attributes={"Color": ["red"]}),
        product("1000000002", "Paper Lamp Shade", shop_id="700100"),
        product("1000000003", "Blue Canvas Bag", shop_id="700101"),
    )
    yield catalogue_of(products, tmp_path_factory.mktemp("catalogue"))


class Parrot:
    """An upstream that writes what the last message says: as its content, and as the arguments of a call."""

    name = "parrot"

    def complete(self, request: str, *_: object, **__: object) -> ModelReply:
        said = str(json.loads(request)["messages"][-1].get("content") or "")
        call = EmittedCall(call_id="c1", name="find_product", arguments=said)
        message = {"role": "assistant", "content": said, "tool_calls": []}
        return ModelReply(
            model="stand",
            content=said,
            calls=(call,),
            prompt_tokens=9,
            completion_tokens=9,
            message=foreign_text(message),
        )

    def probe(self, *_: object) -> bool:
        return True


def play(guest: Traffic, catalogue: Catalogue, upstream: object | None = None) -> EvaluationBody:
    toolbox = Toolbox("sn15", catalogue)
    gateway = Gateway(
        InferenceRules(models=("stand",), attempts=1),
        [upstream or Parrot()],
        toolbox.schemas,
        RULES.limits,
        sleep=lambda _: None,
    )
    ports = EpisodePorts(toolbox=toolbox, gateway=gateway, sandbox=PipeSandbox(guest), shown_bytes=shown_bytes)
    return run_episode("", problem(), ports, RULES).body


@pytest.mark.parametrize("batch", range(BATCHES))
def test_nothing_a_guest_does_is_anybodys_fault_but_its_own(catalogue: Catalogue, batch: int):
    stops: collections.Counter[str] = collections.Counter()
    for seed in range(batch * CASES // BATCHES, (batch + 1) * CASES // BATCHES):
        body = play(traffic(seed), catalogue)  # an ArenaError here is a fault that a guest laid on us
        assert body.failure is None or body.failure.owner is Owner.AGENT, (seed, body.failure)
        assert canonical_bytes(body)
        stops[body.stop] += 1
    assert {"returned", "raised", "not_json", "died", "protocol", "frame", "terminated"} <= stops.keys(), stops


@pytest.mark.parametrize("batch", range(2))
def test_a_trace_shows_no_more_bytes_than_were_counted(catalogue: Catalogue, batch: int):
    for seed in range(batch * 250, batch * 250 + 250):
        body = play(traffic(seed), catalogue)
        counted = sum(map(shown_bytes, body.events))
        assert len(render(msgspec.structs.replace(body, query="")).text.encode()) <= counted + 40


FAULTS: dict[str, Exception] = {
    "a full disk": OSError(errno.ENOSPC, "No space left on device"),
    "a full memory": MemoryError(),
    "a bug of the engine": RecursionError("maximum recursion depth exceeded"),
    "another bug": KeyError("postings"),
    "a coded fault": ArenaError("U3010", "the catalogue is away"),
}


class BrokenCatalogue:
    """Fails at every access, and knows how often."""

    content_sha256 = "1" * 64

    def __init__(self, error: Exception) -> None:
        self._error, self.asked = error, 0

    def __getattr__(self, name: str) -> object:
        def fail(*_: object, **__: object) -> object:
            self.asked += 1
            raise self._error

        return fail


class DeadUpstream:
    """An endpoint that is away, for the probe too."""

    name = "dead"

    def __init__(self, error: Exception) -> None:
        self._error, self.asked = error, 0

    def complete(self, *_: object, **__: object) -> ModelReply:
        self.asked += 1
        raise self._error

    def probe(self, *_: object, **__: object) -> bool:
        return False


@pytest.mark.parametrize("batch", range(BATCHES))
def test_no_fault_of_ours_is_charged_to_an_agent(catalogue: Catalogue, batch: int):
    """The same guests over tools, a catalogue and a model that fail: a case counts when it reached what is broken."""
    reached = 0
    faults = list(FAULTS.values())
    for seed in range(batch * CASES // BATCHES, (batch + 1) * CASES // BATCHES):
        error = faults[seed % len(faults)]
        broken = BrokenCatalogue(error)
        dead = DeadUpstream(ArenaError("U3002", "connection refused") if seed % 2 else error)
        try:
            body = play(traffic(seed), broken, dead)  # type: ignore[arg-type]
        except ArenaError as raised:
            assert raised.owner is not Owner.AGENT, (seed, raised)
            assert broken.asked + dead.asked > 0, (seed, raised)
            reached += 1
            continue
        assert broken.asked + dead.asked == 0, (seed, body.stop, body.failure)
    assert reached > CASES // BATCHES // 4
