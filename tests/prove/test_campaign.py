"""Months among strangers in half an hour: three validators race on while one fault after the other is made, by day and
under load. After each the races go on without a person, every log verifies, and all weights are equal.

The nodes reach their chain by HTTP, and the third its peers, through links that can be cut or held half open. What each
fault came to is written into docs/prove.md. `PROVE_FAULTS` chooses some: `disk lost,loaded` for that one by day
and all under load.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
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

import psutil
import pytest

from arena.api.http import Server
from arena.chain.keys import HttpAuth, keypair_signer
from arena.exchange.log_digest import add_digest
from arena.exchange.port import Count, LogDigest, NoteQuestion, RowsQuestion
from arena.exchange.routes import Exchange
from arena.export.model import LogRow
from arena.records.log import LogStart, LogWalk, note_sha256, sign_checkpoint
from arena.store.objects import folder_location
from arena.web.server import ChainServer, ExchangeServer
from foundation.codes import NO_BATCH_LEFT
from harness.agents.registry import baseline_source
from neurons.cli.presenter import EXIT_INTEGRITY
from neurons.demo.demo import DemoAgent
from tests.neurons.arena_stand import build_small_catalogue, short_folder
from tests.neurons.process_stand import postgres_of
from tests.neurons.shared_nodes_stand import TAO_RAO, Network, SharedNode, free_port, wait_for
from tests.neurons.test_shared_nodes import AGENTS, listed_race, settled_by
from tests.prove.__main__ import PAGE
from tests.prove.test_lost_disk import OF_THE_DISK
from tests.test_cli import arena

PACE = float(os.environ.get("PROVE_PACE", "1.4"))  # more for a host that others load
RECOVERED_S, MARK_S, FAULT_S, FROZEN_S = 430 * PACE, 215 * PACE, 40.0, 60.0
STAKE_TAO, LIAR_TAO, LIAR_ROWS, DISK = 40_000, 2_000, 20_000, 6 << 30
AHEAD = "import time\nns = time.time_ns\ntime.time_ns = lambda: ns() + 90 * 10**9\n"
AHEAD += "time.time = lambda: time.time_ns() / 1e9\n"
HEAD = "| fault | back after s (under load) | status meanwhile |\n|---|--:|---|\n"
CAREFUL = DemoAgent("careful", "//Ben", baseline_source("scripted-careful"))


class Link(socketserver.ThreadingTCPServer):
    """What leads to a port: open, away (closed at once) or half open (an answer that never goes on)."""

    daemon_threads, block_on_close, request_queue_size = True, False, 128

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
        link.carried.add(self.request)
        with contextlib.suppress(OSError):
            if link.mode == "half" and self.request.recv(1 << 16):
                self.request.sendall(b'HTTP/1.1 200 OK\r\ncontent-length: 100000\r\n\r\n{"')
                self.request.recv(1)
            elif link.mode == "open":
                with socket.create_connection(("127.0.0.1", link.target)) as onward:
                    threading.Thread(target=carry, args=(onward, self.request), daemon=True).start()
                    carry(self.request, onward)
        link.carried.discard(self.request)


def carry(source: socket.socket, sink: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while piece := source.recv(1 << 16):
            sink.sendall(piece)
        sink.shutdown(socket.SHUT_RDWR)


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
    """A permit holder whose log is rows that nobody can read, as many as it can have others hold."""

    def __init__(self, races: list[str]) -> None:
        self.signer = keypair_signer("//Liar")
        start = LogStart(validator=self.signer.hotkey)
        self.made, walk = list[LogRow](), LogWalk(start)
        for seq in range(1, LIAR_ROWS + 1):
            links = {"seq": seq, "prev": walk.head.hash, "content_sha256": sha256(b"%d" % seq).hexdigest()}
            self.made.append(LogRow(validator=start.validator, **links, signature="ab" * 64, withheld="unreleased"))
            walk.take(self.made[-1])
        self.note, count = sign_checkpoint(walk.checkpoint, self.signer), Count(rows=1, rows_sha256="cd" * 32)
        for race in races:
            self.note = add_digest(self.note, LogDigest(race_id=race, count=count, start=start), self.signer)

    def has_permit(self, hotkey: str) -> bool:
        return True

    async def answer(self, caller: str, question: object) -> str | None:
        return self.note if isinstance(question, NoteQuestion) else None

    async def rows(self, caller: str, question: RowsQuestion) -> AsyncIterator[LogRow]:
        async def stream() -> AsyncIterator[LogRow]:
            for row in self.made[question.after : question.to]:
                yield row

        return stream()


class Site:
    """Three nodes, of which the third meets the faults on a disk of its own."""

    def __init__(self, base: Path, chain_port: int, network: Network) -> None:
        self.base, self.network, self.chains = base, network, list[Link]()
        self.nodes = [SharedNode(network, f"//{name}", STAKE_TAO) for name in ("First", "Second", "Third")]
        self.runs = [contextlib.ExitStack() for _ in self.nodes]
        self.processes = dict[int, subprocess.Popen[bytes]]()
        for node in self.nodes:
            self.chains.append(Link("127.0.0.1", free_port(), chain_port))
            node.flags["--subtensor.network"] = f"http://127.0.0.1:{self.chains[-1].server_address[1]}"
            node.flags["--bodies-url"] = folder_location(base / f"objects-{node.folder.name}")
        self.victim = node
        self.exchange = Link("127.0.0.2", node.port, node.port)
        node.flags["--public-endpoint"] = f"http://127.0.0.2:{node.port}"
        kept = node.folder.rename(base / "kept-folder")
        node.folder.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK}", "tmpfs", node.folder], check=True)
        subprocess.run(["cp", "-a", f"{kept}/.", node.folder], check=True)
        (node.folder / "validator.log").symlink_to(base / "third.log")  # a full disk cuts lines

    def start(self, number: int = 2, **environment: str) -> subprocess.Popen[bytes]:
        self.processes[number] = self.runs[number].enter_context(self.nodes[number].running(**environment))
        return self.processes[number]

    def stop(self, number: int = 2) -> None:
        self.runs[number].close()

    def kill(self, *, is_power_cut: bool = False) -> None:
        self.processes[2].kill()
        self.processes[2].wait()
        for each in postgres_of(self.victim) if is_power_cut else ():  # type: ignore[arg-type]
            with contextlib.suppress(psutil.NoSuchProcess):  # it ended with the others
                each.kill()

    def reach(self, happened: str = "ItemsEnqueued") -> None:
        """Wait until this happens in a race, as the victim sees it."""
        words, node = f'"happened":"{happened}"', self.victim
        before = node.log().count(words)
        wait_for(words, lambda: node.log().count(words) > before, node, self.processes[2], MARK_S)

    def says(self, number: int = 2) -> str:
        return sentence(self.nodes[number].folder)

    def is_well(self, before: set[str]) -> bool:
        """All settled a race since, alike; nobody waits for a person, and all pay alike."""
        alike = set.intersection(*(settled_by(node) for node in self.nodes)) - before
        if not alike or any(not self.says(number).startswith("all is well") for number in range(3)):
            return False
        races = [listed_race(node, max(alike)) for node in self.nodes]
        paid = [asyncio.run(self.network.chain.weights(node.signer.hotkey)) for node in self.nodes]
        return races[0] == races[1] == races[2] and paid[0] == paid[1] == paid[2] != ()


def sentence(folder: Path) -> str:
    """The verdict of a node's status and what it names first, but for its stock: that of an hour, not of 30 days."""
    shown = json.loads(arena("validator", "status", "--json", "--state-dir", str(folder)).stdout)
    points = [point for point in shown["points"] if point["code"] != NO_BATCH_LEFT]
    verdict = "NEEDS A PERSON" if any(point["is_urgent"] for point in points) else "all is well"
    named = [f"{one['code']} {one['about'].partition(': ')[0]}" for one in points[:1]]
    return ": ".join([verdict, *named])


# -- the faults: each is over when it returns what status said meanwhile


def killed_in_every_phase(site: Site) -> str:
    for happened in ("RaceOpened", "FieldFixed", "ItemsEnqueued", "SettlementProposed"):
        site.reach(happened)
        site.kill()
        said = site.says()
        site.start()
    return said


def power_cut(site: Site) -> str:
    submission = site.network.commit(AGENTS[1])
    site.reach()
    site.kill(is_power_cut=True)
    said = site.says()
    site.start()
    site.nodes[0].hand_in(AGENTS[1], submission)
    return said


def frozen(site: Site) -> str:
    site.reach()
    site.processes[2].send_signal(signal.SIGSTOP)
    time.sleep(FROZEN_S)
    said = site.says(0)
    site.processes[2].send_signal(signal.SIGCONT)
    return said


def cut(site: Site, links: list[Link], mode: str, number: int = 2) -> str:
    for link in links:
        link.turn(mode)
    time.sleep(FAULT_S)
    said = site.says(number)
    for link in links:
        link.turn("open")
    return said


def half_open(site: Site) -> str:
    site.reach()
    return cut(site, [site.exchange], "half", 0)


def without_a_chain(site: Site) -> str:
    site.reach()
    return cut(site, site.chains, "away")


def started_without_a_chain(site: Site) -> str:
    site.stop()
    site.chains[2].turn("away")
    site.start()
    return cut(site, site.chains[2:], "away")


def database_killed(site: Site) -> str:
    site.reach()
    for each in postgres_of(site.victim):  # type: ignore[arg-type]
        each.kill()
    return site.says()


def disk_full(site: Site) -> str:
    site.reach()
    size = shutil.disk_usage(site.victim.folder).used + (64 << 10)
    subprocess.run(["mount", "-o", f"remount,size={size}", site.victim.folder], check=True)
    time.sleep(FAULT_S)
    said = site.says()
    subprocess.run(["mount", "-o", f"remount,size={DISK}", site.victim.folder], check=True)
    return said


def flooded(site: Site) -> str:
    last = max(int(race.rpartition("-")[2]) for race in settled_by(site.nodes[0]))
    liar, chain = Liar(["", *(f"race-{number}" for number in range(last, last + 8))]), site.network.chain
    exchange = Exchange(liar, HttpAuth(liar.signer, time.time_ns))  # type: ignore[arg-type]
    seen = site.victim.log().count("its note counts")

    async def anchor(port: int) -> None:
        await chain.register(liar.signer)
        await chain.set_stake(liar.signer.hotkey, LIAR_TAO * TAO_RAO)
        await chain.publish(liar.signer, f"http://127.0.0.1:{port}")
        while site.victim.log().count("its note counts") < seen + 2:
            await chain.commit(liar.signer, note_sha256(liar.note))
            await asyncio.sleep(3)

    with served(lambda listener: ExchangeServer(exchange, listener)) as port:
        asyncio.run(asyncio.wait_for(anchor(port), MARK_S))
        said = site.says()
    asyncio.run(chain.set_stake(liar.signer.hotkey, 0))
    return said


def clock_ahead(site: Site) -> str:
    site.stop()
    (site.base / "ahead").mkdir()
    (site.base / "ahead" / "sitecustomize.py").write_text(AHEAD)
    site.start(PYTHONPATH=str(site.base / "ahead"))
    time.sleep(FAULT_S)
    said = site.says()
    site.stop()
    site.start()
    return said


def hotkey_used_twice(site: Site) -> str:
    twin = SharedNode(site.network, "//Twin", 0)
    twin.flags |= {name: site.victim.flags[name] for name in ("--wallet.hotkey", "--subtensor.network")}
    with twin.running() as process:
        assert process.wait(MARK_S) == EXIT_INTEGRITY, twin.log()[-2_000:]
    return sentence(twin.folder)


def restored(site: Site) -> str:
    """A disk is lost: what peers hold of the log is not to be had without its copy, which the node takes."""
    folder, kept = site.victim.folder, site.base / "kept"
    saved = arena("store", "backup", "--out", str(kept), "--state-dir", str(folder))
    assert saved.returncode == 0, saved.stderr
    site.reach("RaceSettled")
    site.reach()
    site.kill(is_power_cut=True)
    signed = {path.name: path.read_text() for path in (folder / "checkpoints").iterdir()}
    for name in OF_THE_DISK:
        subprocess.run(["rm", "-rf", folder / name], check=True)
    restored = arena("store", "restore", str(kept), "--state-dir", str(folder))
    assert restored.returncode == 0, restored.stderr
    copied = site.victim.flags["--bodies-url"]
    site.victim.flags["--bodies-url"] = folder_location(folder / "bodies")  # those of the backup
    assert site.start().wait(MARK_S) == EXIT_INTEGRITY, site.victim.log()[-2_000:]
    said = site.says()
    site.victim.flags["--bodies-url"] = copied
    site.start()
    site.reach("RaceSettled")
    assert {path.name: path.read_text() for path in (folder / "checkpoints").iterdir()}.items() >= signed.items()
    return said


FAULTS: dict[str, Callable[[Site], str]] = {
    "kill -9 at opening, field, work, settlement": killed_in_every_phase,
    "power cut between commitment and delivery": power_cut,
    "stopped for 60 s (status of a peer)": frozen,
    "half open (status of a peer)": half_open,
    "chain away from all": without_a_chain,
    "chain away at its start": started_without_a_chain,
    "PostgreSQL killed": database_killed,
    "disk full": disk_full,
    "a liar's 20,000 rows a race": flooded,
    "clock 90 s ahead": clock_ahead,
    "a second node with its hotkey (its status)": hotkey_used_twice,
    "disk lost, last backup restored": restored,
}
LOADED = (killed_in_every_phase, frozen, database_killed, flooded)
UNDER_LOAD = [name for name, make in FAULTS.items() if make in LOADED]
WORDS = os.environ.get("PROVE_FAULTS", "").split(",")


@contextlib.contextmanager
def load() -> Iterator[None]:
    """Four processes that take all they can get."""
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(4)]
    try:
        yield
    finally:
        for one in busy:
            one.kill()
            one.wait()


def met(site: Site, fault: Callable[[Site], str]) -> tuple[str, str]:
    """Make a fault: how long it took until all was well again, and what status said. Raises AssertionError."""
    said, ended = fault(site), time.monotonic()
    before = set.union(*(settled_by(node) for node in site.nodes))
    wait_for("all is well", lambda: site.is_well(before), site.victim, site.processes[2], RECOVERED_S)
    back = f"{time.monotonic() - ended:.0f}"
    for node in site.nodes:
        verified = arena("records", "verify", "--state-dir", str(node.folder))
        assert verified.returncode == 0, verified.stdout + verified.stderr
    return back, said


def read() -> dict[str, list[str]]:
    """The campaign's rows as the page has them: by fault, its times by day and under load, and what status said."""
    rows = {name: [""] * 3 for name in FAULTS}
    for line in PAGE.read_text("utf-8").partition("| proof |")[0].splitlines():
        name, *cells = (cell.strip() for cell in line.strip("|").split("|"))
        if name in rows:
            by_day, _, loaded = cells[0].partition(" (")
            rows[name] = [by_day, loaded.rstrip(")"), cells[1]]
    return rows


def write(rows: dict[str, list[str]]) -> None:
    """Renew the campaign's table on the page."""
    head, _, rest = PAGE.read_text("utf-8").partition("| fault |")
    table = HEAD
    for name, (by_day, loaded, said) in rows.items():
        table += f"| {name} | {by_day}{loaded and f' ({loaded})'} | {said.replace('|', '/')} |\n"
    PAGE.write_text(head + table + rest[rest.index("\n\n") + 1 :], encoding="utf-8")


@pytest.mark.prove
def test_nothing_that_happens_among_strangers_needs_a_person_and_nothing_is_lost() -> None:
    if os.geteuid() != 0:
        pytest.skip("a disk of a size of its own is mounted by root")
    rows, failed = read(), list[str]()
    with short_folder() as base, contextlib.ExitStack() as stack:
        network = Network(base, build_small_catalogue(base), races=110, pace=PACE)
        chain_port = stack.enter_context(served(lambda listener: ChainServer(network.chain, listener)))
        site = Site(base, chain_port, network)
        stack.callback(subprocess.run, ["umount", "-l", site.victim.folder], check=False)
        site.nodes[0].publish()
        committed = [(agent, network.commit(agent)) for agent in (AGENTS[0], CAREFUL)]
        for number in range(3):
            stack.callback(site.stop, number)
            site.start(number)
        for agent, submission in committed:
            site.nodes[0].hand_in(agent, submission)
        wait_for("all is well", lambda: site.is_well(set()), site.victim, site.processes[2], RECOVERED_S)
        for column, (when, names) in enumerate((("by day", list(FAULTS)), ("loaded", UNDER_LOAD))):
            with load() if column else contextlib.nullcontext():
                for name in [name for name in names if any(word in f"{when}: {name}" for word in WORDS)]:
                    row = rows[name]
                    try:
                        row[column], row[2] = met(site, FAULTS[name])
                    except (AssertionError, OSError) as error:
                        failed.append(f"{name}: {error}")
                        print(failed[-1], flush=True)
                        row[column] = "never"
                        site.stop()
                        site.start()
                    print(time.strftime("%H:%M:%S"), when, name, row, flush=True)
                    write(rows)
    assert not failed, "\n".join(failed)
