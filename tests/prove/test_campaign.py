"""Months among strangers in half an hour: three validators race on while one fault after the other is made, by day and
under load. After each the races go on without a person, every log verifies, and all weights are equal.

The nodes reach their chain by HTTP, and each other, through links that can be cut or held half open. What each fault
came to is written into docs/prove.md.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import shutil
import signal
import socket
import socketserver
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from hashlib import sha256
from pathlib import Path

import pytest

from arena.api.http import Server
from arena.chain.keys import HttpAuth, keypair_signer
from arena.exchange.log_digest import add_tally
from arena.exchange.port import Count, LogDigest, NoteQuestion, RowsQuestion
from arena.exchange.routes import Exchange
from arena.export.model import LogRow
from arena.records.log import LogStart, LogWalk, note_sha256, sign_checkpoint
from arena.store.objects import folder_location
from arena.web.server import ChainServer, ExchangeServer
from foundation.codes import NO_BATCH_LEFT
from harness.agents.registry import baseline_source, reference_agent
from neurons.cli.presenter import EXIT_INTEGRITY
from neurons.demo.demo import DemoAgent
from tests.neurons.arena_stand import build_small_catalogue, short_folder
from tests.neurons.process_stand import postgres_of
from tests.neurons.shared_nodes_stand import TAO_RAO, Network, SharedNode, free_port, wait_for
from tests.neurons.test_shared_nodes import listed_race, settled_by
from tests.prove.__main__ import PAGE
from tests.test_cli import arena

RECOVERED_S, MARK_S, FAULT_S, FROZEN_S = 420.0, 240.0, 40.0, 60.0
STAKE_TAO, LIAR_TAO, LIAR_ROWS = 40_000, 2_000, 20_000
AHEAD = "import time\n_ns, _s = time.time_ns, time.time\ntime.time_ns = lambda: _ns() + 90 * 10**9\n"
AHEAD += "time.time = lambda: _s() + 90\n"
OF_THE_DISK = ("postgres", "checkpoints", "store.json", "node.json", "held")
AGENTS = (
    DemoAgent("expert", "//Ada", baseline_source("scripted-expert")),
    DemoAgent("careful", "//Ben", baseline_source("scripted-careful")),
    DemoAgent("subtask", "//Dov", reference_agent("subtask").source),
)
HEAD = "| fault | back after s | under load | log verified | weights equal | status meanwhile |\n"
HEAD += "|---|--:|--:|---|---|---|\n"


class Link(socketserver.ThreadingTCPServer):
    """What leads to a port of this host: open, away (closed at once), or half open (an answer that never goes on)."""

    daemon_threads, block_on_close, allow_reuse_address, request_queue_size = True, False, True, 128

    def __init__(self, host: str, port: int, target: int) -> None:
        super().__init__((host, port), Carried)
        self.target, self.mode, self.carried = target, "open", set[socket.socket]()
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def turn(self, mode: str) -> None:
        """From now on, also for what is connected."""
        self.mode = mode
        for one in list(self.carried):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)


class Carried(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        link: Link = self.server  # type: ignore[assignment]
        with contextlib.suppress(OSError):
            if link.mode == "half":
                self.request.recv(1 << 16)
                self.request.sendall(b'HTTP/1.1 200 OK\r\ncontent-length: 100000\r\n\r\n{"')
                link.carried.add(self.request)
                self.request.recv(1)
            if link.mode == "open":
                with socket.create_connection(("127.0.0.1", link.target)) as onward:
                    link.carried |= (both := {self.request, onward})
                    threading.Thread(target=carry, args=(onward, self.request), daemon=True).start()
                    carry(self.request, onward)
                    link.carried -= both


def carry(source: socket.socket, sink: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while piece := source.recv(1 << 16):
            sink.sendall(piece)
        sink.shutdown(socket.SHUT_WR)


@contextlib.contextmanager
def served(make: Callable[[socket.socket], Server]) -> Iterator[int]:
    """A server in a thread of this process; its port."""
    listener, loop, stop = socket.create_server(("127.0.0.1", 0)), asyncio.new_event_loop(), asyncio.Event()
    thread = threading.Thread(target=lambda: loop.run_until_complete(make(listener).run(stop)))
    thread.start()
    try:
        yield listener.getsockname()[1]
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()


class Liar:
    """A permit holder whose log is rows that nobody can read, as many as it may ask others to hold."""

    def __init__(self, races: list[str]) -> None:
        self.signer = keypair_signer("//Liar")
        self.rows_made, walk = list[LogRow](), LogWalk(LogStart(validator=self.signer.hotkey))
        for number in range(1, LIAR_ROWS + 1):
            content, prev = sha256(b"%d" % number).hexdigest(), walk.head.hash
            facts = {"validator": self.signer.hotkey, "seq": number, "prev": prev, "content_sha256": content}
            self.rows_made.append(LogRow(**facts, signature="ab" * 64, withheld="unreleased"))
            walk.take(self.rows_made[-1])
        self.note = sign_checkpoint(walk.checkpoint, self.signer)
        for race in races:
            count = Count(rows=1, rows_sha256="cd" * 32)
            due = LogDigest(race_id=race, count=count, start=LogStart(validator=self.signer.hotkey))
            self.note = add_tally(self.note, due, self.signer)

    def has_permit(self, hotkey: str) -> bool:
        return True

    async def answer(self, caller: str, question: object) -> str | None:
        return self.note if isinstance(question, NoteQuestion) else None

    async def rows(self, caller: str, question: RowsQuestion) -> AsyncIterator[LogRow]:
        async def stream() -> AsyncIterator[LogRow]:
            for row in self.rows_made[question.after : question.to]:
                yield row

        return stream()


class Site:
    """Three nodes that run, of which the third meets the faults."""

    def __init__(self, base: Path, chain_port: int, network: Network) -> None:
        self.base, self.network = base, network
        self.nodes = [SharedNode(network, f"//{name}", STAKE_TAO) for name in ("First", "Second", "Third")]
        self.victim = self.nodes[2]
        self.chains, self.doors, self.exchanges = list[Link](), list[Link](), list[Link]()
        for node in self.nodes:
            at, door = free_port(), free_port()
            self.chains.append(Link("127.0.0.1", at, chain_port))
            self.doors.append(Link("127.0.0.2", door, door))
            self.exchanges.append(Link("127.0.0.2", node.port, node.port))
            node.flags |= {"--subtensor.network": f"http://127.0.0.1:{at}", "--door-port": door}
            node.flags |= {"--public-endpoint": f"http://127.0.0.2:{node.port}"}
            node.flags |= {"--bodies-url": folder_location(base / f"{node.folder.name}-objects")}
        self.disk = mounted(self.victim.folder)
        self.runs = [contextlib.ExitStack() for _ in self.nodes]
        self.processes = dict[int, subprocess.Popen[bytes]]()

    @property
    def process(self) -> subprocess.Popen[bytes]:
        return self.processes[2]

    def start(self, number: int = 2, **environment: str) -> subprocess.Popen[bytes]:
        running = self.runs[number].enter_context(self.nodes[number].running(**environment))
        self.processes[number] = running
        return running

    def kill(self, *, is_power_cut: bool = False) -> None:
        self.process.kill()
        self.process.wait()
        for each in postgres_of(self.victim) if is_power_cut else ():  # type: ignore[arg-type]
            each.kill()

    def stop(self, number: int = 2) -> None:
        self.runs[number].close()

    def reach(self, words: str, node: SharedNode | None = None) -> None:
        """Wait until the victim's log says this once more."""
        node = node or self.victim
        before = node.log().count(words)
        process = self.processes[self.nodes.index(node)]
        wait_for(words, lambda: node.log().count(words) > before, node, process, MARK_S)

    def says(self, number: int = 2) -> str:
        return sentence(self.nodes[number].folder)

    def recovered(self, before: set[str]) -> bool:
        """A race that was settled by none before is settled alike by all, none waits for a person, all pay alike."""
        alike = set.intersection(*(settled_by(node) for node in self.nodes)) - before
        if not alike or any(not self.says(number).startswith("all is well") for number in range(3)):
            return False
        races = [listed_race(node, max(alike)) for node in self.nodes]
        paid = [asyncio.run(self.network.chain.weights(node.signer.hotkey)) for node in self.nodes]
        return races[0] == races[1] == races[2] and paid[0] == paid[1] == paid[2] != ()


def mounted(folder: Path) -> bool:
    """Put a node's folder onto a disk of its own, whose size can be changed; False where none can be made."""
    kept = folder.rename(folder.with_name(f"{folder.name}-kept"))
    folder.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=6g", "tmpfs", folder], check=False, capture_output=True)
    subprocess.run(["cp", "-a", f"{kept}/.", folder], check=True)
    return done.returncode == 0


def sentence(folder: Path) -> str:
    """The verdict of a node's status and what it names first, but for its stock: that of an hour, not of 30 days."""
    shown = json.loads(arena("validator", "status", "--json", "--state-dir", str(folder)).stdout)
    points = [point for point in shown["points"] if point["code"] != NO_BATCH_LEFT]
    verdict = "NEEDS A PERSON" if any(point["is_urgent"] for point in points) else "all is well"
    return re.sub(r"5\w{47}", "HOTKEY", ": ".join([verdict, *(f"{one['code']} {one['about']}" for one in points[:1])]))


# -- the faults: each is over when it returns what status said meanwhile


def killed_in_every_phase(site: Site) -> str:
    for happened in ("RaceOpened", "FieldFixed", "ItemsEnqueued", "SettlementProposed"):
        site.reach(f'"happened":"{happened}"')
        site.kill()
        said = site.says()
        site.start()
    return said


def power_cut(site: Site) -> str:
    """An agent is committed before, and handed in after."""
    agent = AGENTS[2]
    submission = site.network.commit(agent)
    site.reach('"happened":"ItemsEnqueued"')
    site.kill(is_power_cut=True)
    said = site.says()
    site.start()
    site.victim.hand_in(agent, submission)
    return said


def frozen(site: Site) -> str:
    site.reach('"happened":"ItemsEnqueued"')
    site.process.send_signal(signal.SIGSTOP)
    time.sleep(FROZEN_S)
    said = site.says()
    site.process.send_signal(signal.SIGCONT)
    return said


def of_links(links: Callable[[Site], list[Link]], mode: str, number: int = 2) -> Callable[[Site], str]:
    def cut(site: Site) -> str:
        site.reach('"happened":"ItemsEnqueued"')
        for link in links(site):
            link.turn(mode)
        time.sleep(FAULT_S)
        said = site.says(number)
        for link in links(site):
            link.turn("open")
        return said

    return cut


def started_without_a_chain(site: Site) -> str:
    site.stop()
    site.chains[2].turn("away")
    site.start()
    time.sleep(FAULT_S)
    said = site.says()
    site.chains[2].turn("open")
    return said


def database_killed(site: Site) -> str:
    site.reach('"happened":"ItemsEnqueued"')
    for each in postgres_of(site.victim):  # type: ignore[arg-type]
        each.kill()
    return site.says()


def disk_full(site: Site) -> str:
    if not site.disk:
        return "not made: no disk of its own can be mounted here"
    site.reach('"happened":"ItemsEnqueued"')
    used = shutil.disk_usage(site.victim.folder).used
    for size in (used + (64 << 10), 6 << 30):
        subprocess.run(["mount", "-o", f"remount,size={size}", site.victim.folder], check=True)
        if size < 6 << 30:
            time.sleep(FAULT_S)
            said = site.says()
    return said


def flooded(site: Site) -> str:
    last = max(int(race.rpartition("-")[2]) for race in settled_by(site.nodes[0]))
    liar = Liar(["", *(f"race-{number}" for number in range(last, last + 8))])
    chain = site.network.chain
    exchange = Exchange(liar, HttpAuth(liar.signer, time.time_ns))  # type: ignore[arg-type]
    with served(lambda listener: ExchangeServer(exchange, listener)) as port:

        async def anchor() -> None:
            await chain.register(liar.signer)
            await chain.set_stake(liar.signer.hotkey, LIAR_TAO * TAO_RAO)
            await chain.publish(liar.signer, f"http://127.0.0.1:{port}")
            while site.victim.log().count("its note counts") < 2:
                await chain.commit(liar.signer, note_sha256(liar.note))
                await asyncio.sleep(3)

        asyncio.run(asyncio.wait_for(anchor(), MARK_S))
        said = site.says()
        asyncio.run(chain.set_stake(liar.signer.hotkey, 0))
    return said


def clock_ahead(site: Site) -> str:
    site.stop()
    (site.base / "ahead").mkdir(exist_ok=True)
    (site.base / "ahead" / "sitecustomize.py").write_text(AHEAD)
    site.start(PYTHONPATH=str(site.base / "ahead"))
    time.sleep(FAULT_S)
    said = site.says()
    site.stop()
    site.start()
    return said


def hotkey_used_twice(site: Site) -> str:
    """Another node with the hotkey and an empty folder: the others hold notes of the log, so that it is refused."""
    twin = SharedNode(site.network, "//Twin", 0)
    twin.flags |= {name: site.victim.flags[name] for name in ("--wallet.hotkey", "--subtensor.network")}
    with twin.running() as process:
        assert process.wait(MARK_S) == EXIT_INTEGRITY, twin.log()[-2_000:]
    return sentence(twin.folder)


def restored(site: Site) -> str:
    """Its disk is lost, and it starts from an earlier backup: refused without its log's copy, well with it."""
    kept = arena("store", "backup", "--out", str(site.base / "kept"), "--state-dir", str(site.victim.folder))
    assert kept.returncode == 0, kept.stderr
    site.reach('"happened":"RaceSettled"')
    site.reach('"happened":"ItemsEnqueued"')
    site.kill(is_power_cut=True)
    for name in OF_THE_DISK:
        shutil.move(site.victim.folder / name, site.base / f"gone-{time.time_ns()}-{name}")
    restored = arena("store", "restore", str(site.base / "kept"), "--state-dir", str(site.victim.folder))
    assert restored.returncode == 0, restored.stderr
    shutil.rmtree(site.base / "kept")
    copied = site.victim.flags["--bodies-url"]
    site.victim.flags["--bodies-url"] = folder_location(site.base / "empty")
    assert site.start().wait(MARK_S) == EXIT_INTEGRITY, site.victim.log()[-2_000:]
    said = site.says()
    site.victim.flags["--bodies-url"] = copied
    site.start()
    return said


FAULTS: dict[str, Callable[[Site], str]] = {
    "kill -9 at opening, field, work and settlement": killed_in_every_phase,
    "power cut between an agent's commitment and its delivery": power_cut,
    "stopped for 60 s": frozen,
    "half open to its peers": of_links(lambda site: site.exchanges[2:], "half", 0),
    "chain away from all in mid-race": of_links(lambda site: site.chains, "away"),
    "chain away at its start": started_without_a_chain,
    "PostgreSQL killed": database_killed,
    "disk full": disk_full,
    "a liar's 20,000 rows a race": flooded,
    "clock 90 s ahead": clock_ahead,
    "a second node with its hotkey": hotkey_used_twice,
    "disk lost, last backup restored": restored,
}
UNDER_LOAD = [
    name for name, fault in FAULTS.items() if fault in (killed_in_every_phase, frozen, database_killed, flooded)
]


@contextlib.contextmanager
def load(ports: list[int]) -> Iterator[None]:
    """Four processes that take all they can, and malformed requests at every port."""
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(4)]
    is_over = threading.Event()

    def bother() -> None:
        while not is_over.wait(0.01):
            for port in ports:
                with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 2) as one:
                    one.sendall(b"X\r\n\r\n")
                    one.recv(100)

    thread = threading.Thread(target=bother)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()
        for one in busy:
            one.kill()
            one.wait()


def written(rows: dict[str, list[str]]) -> None:
    """Renew the campaign's table on the page."""
    head, _, rest = PAGE.read_text("utf-8").partition("| proof |")
    cells = ([name, *(cell.replace("|", "/") for cell in row)] for name, row in rows.items())
    table = HEAD + "".join(f"| {' | '.join(row)} |\n" for row in cells)
    PAGE.write_text(f"{head.partition('| fault |')[0]}{table}\n| proof |{rest}", encoding="utf-8")


def met(site: Site, fault: Callable[[Site], str]) -> tuple[str, str]:
    """Make a fault; how long it took until all was well again, and what status said before. Raises AssertionError."""
    said, ended = fault(site), time.monotonic()
    before = set.union(*(settled_by(node) for node in site.nodes))
    wait_for("recovered", lambda: site.recovered(before), site.victim, site.process, RECOVERED_S)
    back = f"{time.monotonic() - ended:.0f}"
    for node in site.nodes:
        verified = arena("records", "verify", "--state-dir", str(node.folder))
        assert verified.returncode == 0, verified.stdout + verified.stderr
    return back, said


@pytest.mark.prove
def test_nothing_that_happens_among_strangers_needs_a_person_and_nothing_is_lost() -> None:
    rows, failed = {name: ["", "", "", "", ""] for name in FAULTS}, list[str]()
    with short_folder() as base, contextlib.ExitStack() as stack:
        network = Network(base, build_small_catalogue(base), races=110)
        chain_port = stack.enter_context(served(lambda listener: ChainServer(network.chain, listener)))
        site = Site(base, chain_port, network)
        if site.disk:
            stack.callback(subprocess.run, ["umount", "-l", site.victim.folder], check=False)
        site.nodes[0].publish()
        committed = [(agent, network.commit(agent)) for agent in AGENTS[:2]]
        for number in range(3):
            stack.callback(site.stop, number)
            site.start(number)
        for agent, submission in committed:
            site.nodes[0].hand_in(agent, submission)
        wait_for("recovered", lambda: site.recovered(set()), site.victim, site.process, RECOVERED_S)
        for column, faults in enumerate((FAULTS, {name: FAULTS[name] for name in UNDER_LOAD})):
            with load([node.port for node in site.nodes]) if column else contextlib.nullcontext():
                for name, fault in faults.items():
                    row = rows[name]
                    try:
                        row[column], row[4] = met(site, fault)
                        row[2:4] = "yes", "yes"
                    except AssertionError as error:
                        failed.append(f"{name}: {error}")
                        row[column] = "never"
                    print(time.strftime("%H:%M:%S"), "loaded" if column else "by day", name, row, flush=True)
                    written(rows)
    assert not failed, "\n".join(failed)
